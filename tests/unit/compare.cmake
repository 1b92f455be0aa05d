# bench/compare: reading what rivals print, medians and ratios, plots. Standard library of Python
# only.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT WEFT_SANITIZE)
  weft_add_script_test(
    compare_modules_test COMMAND "${Python3_EXECUTABLE}"
    "${CMAKE_CURRENT_LIST_DIR}/compare_modules_test.py" LABELS unit)
endif()
