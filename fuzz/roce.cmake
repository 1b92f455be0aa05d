weft_add_fuzzer(fuzz_roce_hello
  SOURCES roce_hello.cc
  DEPS weft_roce
  CORPUS corpus/roce_hello)
weft_add_fuzzer(fuzz_roce_datagram
  SOURCES roce_datagram.cc
  DEPS weft_roce
  CORPUS corpus/roce_datagram)
weft_add_fuzzer(fuzz_rdma_cm_messages
  SOURCES rdma_cm_messages.cc
  DEPS weft_roce weft_wire
  CORPUS corpus/rdma_cm_messages)
