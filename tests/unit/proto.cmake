weft_add_test(proto_test TOGETHER
  LABELS unit
  SOURCES proto_parts_test.cc proto_startup_depths_test.cc proto_startup_test.cc proto_states_test.cc proto_violation_test.cc
  DEPS weft_proto)
