# The data server and its client, as users run them.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET weft_data AND Python3_FOUND AND NOT WEFT_SANITIZE STREQUAL "thread")
  weft_add_script_test(
    loopback_data
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 300)
  add_dependencies(weft_tests weft_data)
endif()
