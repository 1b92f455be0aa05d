weft_add_test(sockets_test LABELS unit SOURCES sockets_channel_test.cc
              DEPS weft_channel Threads::Threads)
weft_add_test(sockets_grant_test LABELS unit SOURCES sockets_grant_test.cc
              DEPS weft_grant Threads::Threads)
