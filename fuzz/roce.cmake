weft_add_fuzzer(fuzz_roce_hello
  SOURCES roce_hello.cc
  DEPS weft_roce
  CORPUS corpus/roce_hello)
weft_add_fuzzer(fuzz_roce_datagram
  SOURCES roce_datagram.cc
  DEPS weft_roce
  CORPUS corpus/roce_datagram)
