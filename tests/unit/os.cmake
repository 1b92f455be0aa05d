weft_add_test(os_test TOGETHER
  LABELS unit
  SOURCES os_addresses_test.cc os_cancel_test.cc os_cores_test.cc os_epoll_test.cc os_job_threads_test.cc
          os_log_test.cc os_signal_queue_test.cc os_sigpipe_test.cc os_ticks_test.cc
  DEPS weft_os Threads::Threads)
if(TARGET os_test)
  target_include_directories(os_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endif()
