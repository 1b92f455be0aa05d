weft_add_test(verbs_test
  WAITS TOGETHER
  LABELS unit
  SOURCES verbs_channel_test.cc verbs_connection_test.cc verbs_datagram_test.cc verbs_device_test.cc verbs_events_test.cc
          verbs_listener_backlog_test.cc verbs_listener_crowd_test.cc verbs_listener_test.cc verbs_memory_probe_test.cc verbs_memory_test.cc verbs_patience_test.cc verbs_peer_directory_test.cc verbs_revocation_test.cc verbs_secret_test.cc verbs_send_turn_test.cc verbs_sleepers_test.cc verbs_srq_test.cc verbs_testing.cc
          verbs_window_test.cc verbs_wiring_flow_test.cc verbs_wiring_strangers_test.cc verbs_wiring_test.cc
  DEPS weft_verbs weft_io weft_proto fmt::fmt Threads::Threads)
if(TARGET verbs_test)
  target_include_directories(verbs_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endif()
weft_add_test(states_test
  LABELS unit
  SOURCES states_page_test.cc ../../src/rsockets/rs_farewell.cc ../../src/rsockets/rsocket_states.cc
          ../../src/sockets/granted/join_states.cc
  DEPS weft_verbs weft_rddp weft_exs_rules weft_proto)
if(TARGET states_test)
  target_compile_definitions(states_test PRIVATE "WEFT_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
endif()
