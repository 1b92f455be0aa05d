# The side of a test that uses Weft: target weft_test_support, made once for all suites.
include_guard(GLOBAL)
add_library(weft_test_support STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/weft_side.cc"
                                                      "${CMAKE_CURRENT_LIST_DIR}/weft_side.h")
target_include_directories(weft_test_support PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(weft_test_support PUBLIC weft)

# weft_nth_fails(TARGET): its functions in place of the C library's are seen by all libraries.
function(weft_nth_fails target)
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
  target_compile_options(${target} PRIVATE -fno-builtin)
endfunction()
