weft_add_test(sockets_grant_test LABELS unit TIMEOUT 900 SOURCES sockets_grant_test.cc
              DEPS weft_grant Threads::Threads)
weft_add_test(sockets_lanes_test LABELS unit SOURCES sockets_fd_table_test.cc sockets_lane_parts_test.cc sockets_lanes_test.cc sockets_rendezvous_test.cc
              sockets_silent_clients_test.cc sockets_stream_test.cc sockets_unread_test.cc sockets_watched_test.cc
              DEPS weft_lanes Threads::Threads)
