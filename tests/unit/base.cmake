weft_add_test(base_test TOGETHER
  LABELS unit
  SOURCES base_bytes_test.cc base_crc32c_test.cc base_result_test.cc
          base_seq_time_test.cc
  DEPS weft_base)
if(NOT WEFT_CORE_ONLY)
  target_link_libraries(base_test PRIVATE Threads::Threads)
endif()
