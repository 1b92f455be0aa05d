weft_add_test(exs_test LABELS unit SOURCES exs_counts_test.cc exs_socket_end_test.cc exs_operation_test.cc exs_tables_test.cc DEPS weft_exs_rules)
# The rest of libexs, with verbs and rdma_cm that the test has made up.
if(TARGET weft_exs_objects)
  weft_add_test(exs_parts_test
    LABELS unit
    SOURCES exs_core_parts_test.cc exs_fake_verbs.cc exs_rdma_port_test.cc
    DEPS weft_exs_objects "${WEFT_EXS_RDMACM}" "${WEFT_EXS_IBVERBS}" Threads::Threads)
endif()
