weft_add_fuzzer(fuzz_sockets_grant
  SOURCES sockets_grant.cc
  DEPS weft_grant
  CORPUS corpus/sockets_grant)
