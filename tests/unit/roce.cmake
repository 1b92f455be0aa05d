weft_add_test(roce_test
  LABELS unit
  SOURCES roce_datagram_test.cc roce_greeting_test.cc roce_hello_test.cc roce_rules_test.cc
  DEPS weft_roce)
