# The data server's protocol, without a server.
if(TARGET weft_store)
  weft_add_test(
    store_test
    LABELS unit
    SOURCES "${CMAKE_CURRENT_LIST_DIR}/store_peer_user_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/store_protocol_test.cc"
    DEPS weft_store)
endif()
if(TARGET weft_video)
  weft_add_test(video_test LABELS unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/video_film_test.cc" DEPS
                weft_video)
endif()
