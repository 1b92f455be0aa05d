weft_add_test(proto_test TOGETHER
  LABELS unit
  SOURCES proto_parts_test.cc proto_startup_depths_test.cc proto_startup_test.cc proto_states_test.cc proto_violation_test.cc
  DEPS weft_rddp weft_exs_rules)
if(TARGET proto_test)
  target_compile_definitions(proto_test PRIVATE "WEFT_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
endif()
