weft_add_test(roce_test
  LABELS unit
  SOURCES roce_cm_header_test.cc roce_datagram_test.cc roce_greeting_test.cc roce_hello_test.cc roce_rules_test.cc
  DEPS weft_roce)
