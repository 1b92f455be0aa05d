weft_add_test(lab_test LABELS unit SOURCES lab_cable_test.cc lab_commands_test.cc lab_link_test.cc
              DEPS weft_lab)
