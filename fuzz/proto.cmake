weft_add_fuzzer(fuzz_proto_startup
  SOURCES proto_startup.cc
  DEPS weft_proto
  CORPUS corpus/proto_startup)
weft_add_fuzzer(fuzz_proto_connection
  SOURCES ../tests/sim/endpoint.cc proto_connection.cc
  DEPS weft_proto GTest::gtest
  CORPUS corpus/proto_connection)
weft_add_fuzzer(fuzz_proto_ddp
  SOURCES ../tests/sim/ddp_side.cc proto_ddp.cc
  DEPS weft_proto
  CORPUS corpus/proto_ddp)
weft_add_fuzzer(fuzz_proto_wired
  SOURCES ../tests/sim/endpoint.cc proto_wired.cc
  DEPS weft_proto GTest::gtest
  CORPUS corpus/proto_wired)
