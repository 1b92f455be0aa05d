# A served folder as a file system. Skipped where /dev/fuse is not to be had.
if(TARGET weft_mount_program AND Python3_FOUND AND NOT WEFT_SANITIZE STREQUAL "thread")
  weft_add_script_test(
    loopback_mount
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/mount_test.py"
            "$<TARGET_FILE:weft_data>" "$<TARGET_FILE:weft_mount_program>"
    LABELS loopback
    TIMEOUT 300
    WAITS)
  weft_add_script_test(
    loopback_mount_posix
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/mount_posix_test.py"
            "$<TARGET_FILE:weft_data>" "$<TARGET_FILE:weft_mount_program>"
    LABELS loopback
    TIMEOUT 300
    WAITS)
  weft_add_script_test(
    loopback_mount_objects
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/mount_objects_test.py"
            "$<TARGET_FILE:weft_data>" "$<TARGET_FILE:weft_mount_program>"
    LABELS loopback
    TIMEOUT 180
    WAITS)
  add_dependencies(weft_tests weft_mount_program weft_data)
endif()
