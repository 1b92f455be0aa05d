# The real `weft` program, as users run it: both sides are processes of their own.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET weft_command AND Python3_FOUND AND NOT WEFT_SANITIZE)
  weft_add_script_test(
    loopback_cli
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/cli_test.py"
            "$<TARGET_FILE:weft_command>"
    LABELS loopback
    TIMEOUT 300
    SERIAL)
endif()

# `weft selftest` against `weft selftest --serve`, and against peers that break rules.
if(TARGET weft_command AND Python3_FOUND AND NOT WEFT_SANITIZE)
  weft_add_script_test(
    loopback_selftest
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/selftest_test.py"
            "$<TARGET_FILE:weft_command>"
    LABELS loopback
    TIMEOUT 300)
endif()
