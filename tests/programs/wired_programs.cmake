# Programs of the RoCE-like device; CMakeLists.txt includes this.

# Programs that wire queue pairs by hand, under `weft run --personality roce`.
programs_test(
  wired_programs
  devices
  device_node
  rc_pingpong
  srq_pingpong
  uc_pingpong
  unreliable
  ud_pingpong
  datagrams
  pcap
  pingpong_needs_a_gid
  secret
  write
  read
  send
  atomic
  bidirectional
  events
  four_qps
  inline
  srq
  depth
  unreliable_send
  unreliable_sizes
  datagrams_send
  datagrams_latency
  all_sizes_send
  by_rdma_cm
  rc_pingpong@namespaces
  uc_pingpong@namespaces
  secret@namespaces
  ud_pingpong@namespaces
  write@namespaces
  send@namespaces
  read@namespaces)

programs_test(wired_programs unreliable_write WAITS)
programs_test(wired_programs all_sizes_write all_sizes_read LONG)

# One device for each interface.
verbs_program(device_probe device_probe.c)
programs_test(
  device_programs
  roce_table@two_links
  iwarp_table@two_links
  narrowed@two_links
  show_gids@two_links
  binding_iwarp@two_links
  binding_roce@two_links
  requests_iwarp@two_links
  requests_roce@two_links
  rc_pingpong@two_links
  ud_pingpong@two_links
  sandboxed@two_links
  weft_devices@two_links
  index_without_gid@two_links
  across@two_links
  coming_and_going@two_links
  not_mixed@two_links)

# UCX over it, and Open MPI over UCX. A program of UCX's users beside those of its package.
find_library(WEFT_TEST_UCP NAMES ucp)
find_library(WEFT_TEST_UCS NAMES ucs)
find_path(WEFT_TEST_UCP_INCLUDE_DIR ucp/api/ucp.h)
if(WEFT_TEST_UCP AND WEFT_TEST_UCS AND WEFT_TEST_UCP_INCLUDE_DIR)
  add_executable(ucx_listener EXCLUDE_FROM_ALL ucx_listener.c)
  set_target_properties(ucx_listener PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                                "${WEFT_TEST_OUTPUT_DIRECTORY}")
  target_include_directories(ucx_listener SYSTEM PRIVATE "${WEFT_TEST_UCP_INCLUDE_DIR}")
  target_link_libraries(ucx_listener PRIVATE "${WEFT_TEST_UCP}" "${WEFT_TEST_UCS}")
  _weft_in_test_targets(ucx_listener programs)
endif()
programs_test(
  ucx_programs
  info
  uct_rc
  uct_ud
  tag
  put_get
  atomics
  am_stream
  open_mpi
  open_mpi_four
  netpipe
  listener
  listener_iwarp
  listener@namespaces
  listener_iwarp@namespaces
  rails@two_links
  open_mpi_rails@two_links
  by_default@namespaces
  by_default@two_links
  tag@namespaces
  uct_ud@namespaces)
