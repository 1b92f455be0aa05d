weft_add_test(io_test TOGETHER
  LABELS unit
  SOURCES io_address_test.cc io_config_test.cc io_counters_page_test.cc io_engine_test.cc
          io_fork_test.cc io_datagram_link_test.cc io_link_test.cc io_socket_test.cc
  DEPS weft_io Threads::Threads)

weft_add_test(trace_test LABELS unit SOURCES trace_pcap_test.cc DEPS weft_trace Threads::Threads)
