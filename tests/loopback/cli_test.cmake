# The real `weft` program, as users run it: both sides are processes of their own.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET weft_command AND Python3_FOUND AND NOT WEFT_SANITIZE)
  foreach(case IN ITEMS Basics Stat Report Perf TwoProcesses Strangers Ping)
    set(file cli_test.py)
    if(case MATCHES "^(Perf|TwoProcesses|Strangers)$")
      set(file cli_perf_test.py)
    endif()
    set(how WAITS)
    if(case MATCHES "^(Report|Perf)$")
      set(how "")
    endif()
    weft_add_script_test(
      loopback_cli.${case} ${how}
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/${file}"
              "$<TARGET_FILE:weft_command>" ${case}
      LABELS loopback
      TIMEOUT 300)
  endforeach()
endif()

# `weft selftest` against `weft selftest --serve`, and against peers that break rules.
if(TARGET weft_command AND Python3_FOUND AND NOT WEFT_SANITIZE)
  foreach(case IN ITEMS Plain Settings Ring Verbs BrokenPeers Usage)
    weft_add_script_test(
      loopback_selftest.${case}
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/selftest_test.py"
              "$<TARGET_FILE:weft_command>" ${case}
      LABELS loopback
      TIMEOUT 300
      WAITS)
  endforeach()
endif()

# [ADDRESS:]PORT and HOST[:PORT], and the older forms, in every command.
if(TARGET weft_command AND Python3_FOUND AND NOT WEFT_SANITIZE)
  weft_add_script_test(
    loopback_where
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/where_test.py"
            "$<TARGET_FILE:weft_command>"
    LABELS loopback
    TIMEOUT 300)
  foreach(program weft_data weft_mount_program weft_video_program exs_perf)
    if(TARGET ${program})
      add_dependencies(weft_tests ${program})
    endif()
  endforeach()
endif()
