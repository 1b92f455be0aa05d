weft_add_test(io_test TOGETHER
  LABELS unit
  SOURCES io_address_test.cc io_cancel_test.cc io_config_test.cc io_counters_page_test.cc io_engine_test.cc io_epoll_test.cc
          io_fork_test.cc io_log_test.cc io_signal_test.cc io_socket_test.cc io_ticks_test.cc io_cores_test.cc
  DEPS weft_io Threads::Threads)

weft_add_test(trace_test LABELS unit SOURCES trace_pcap_test.cc DEPS weft_trace Threads::Threads)
if(TARGET io_test)
  target_include_directories(io_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endif()
