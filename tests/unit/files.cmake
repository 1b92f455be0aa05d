# The data server's protocol, without a server.
if(TARGET weft_files)
  weft_add_test(
    files_test
    LABELS unit
    SOURCES "${CMAKE_CURRENT_LIST_DIR}/files_attributes_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_changes_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_details_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_extras_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_filter_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_hidden_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_kept_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_messages_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_pace_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_pages_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_peer_user_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_protocol_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_session_memory_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_session_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_set_ids_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_status_port_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_streams_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_tree_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_unflushed_test.cc"
    DEPS weft_mount weft_files)
endif()
if(TARGET weft_video)
  weft_add_test(
    files_video_test
    LABELS unit
    SOURCES "${CMAKE_CURRENT_LIST_DIR}/files_film_test.cc"
            "${CMAKE_CURRENT_LIST_DIR}/files_playback_test.cc"
    DEPS weft_video)
endif()
