weft_add_test(wire_test
  LABELS unit
  SOURCES wire_ddp_test.cc wire_examples_test.cc wire_fpdu_test.cc wire_mpa_startup_test.cc
          wire_port_map_test.cc wire_print_test.cc wire_rdmap_test.cc wire_terminate_test.cc
  DEPS weft_wire)
