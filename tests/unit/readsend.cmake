if(TARGET weft_readsend)
  weft_add_test(readsend_test LABELS unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/readsend_pipeline_test.cc"
                DEPS weft_readsend)
endif()
