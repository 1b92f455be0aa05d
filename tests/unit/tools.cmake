# The command line: what needs no engine behind it. The library's objects that a test does not use
# are not linked. Text handling gains little from the sanitizers, and its headers cost minutes to
# build.
if(TARGET weft_static AND NOT WEFT_SANITIZE)
  weft_add_test(
    tools_test TOGETHER
    SOURCES
    "${CMAKE_CURRENT_LIST_DIR}/tools_control_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_message_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_parse_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_pattern_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_plan_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_report_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_stat_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_stats_test.cc"
    "${CMAKE_CURRENT_LIST_DIR}/tools_where_test.cc"
    DEPS
    weft_cli
    LABELS
    unit)
endif()
