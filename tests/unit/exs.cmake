weft_add_test(exs_test LABELS unit SOURCES exs_counts_test.cc exs_socket_end_test.cc exs_operation_test.cc exs_tables_test.cc DEPS weft_exs_rules)
