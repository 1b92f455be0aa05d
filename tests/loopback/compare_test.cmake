# bench/compare --quick, whole: it runs, and what it counts is right. What it measures is not
# judged.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET weft_command AND TARGET weft_costs AND Python3_FOUND AND NOT WEFT_SANITIZE)
  weft_add_script_test(
    loopback_compare
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/compare_test.py"
            "$<TARGET_FILE:weft_command>"
    LABELS loopback long
    TIMEOUT 600
    SERIAL)
  foreach(program weft_data weft_video_program)
    if(TARGET ${program})
      add_dependencies(weft_tests ${program})
    endif()
  endforeach()
endif()
