# Helper functions for the CMakeLists.txt of each folder.
#
#   weft_add_library(NAME SOURCES a.cc... [PUBLIC_DEPS t...] [DEPS t...])
#       A static, position-independent library of one layer. Includes are relative to src/ and
#       include/. PUBLIC_DEPS (or DEPS, which are private) are targets; a dependency whose types
#       appear in the layer's headers is public. With no SOURCES it is a header-only library.
#
#   weft_add_product(NAME LAYERS t... [PUBLIC_DEPS t...] [DEPS t...] [SOURCES ...])
#       The libraries that are installed: NAME (shared) and NAME_static, made from the objects of
#       the layers. The shared one exports what the public headers declare. DEPS names all that the
#       layers need from outside the tree.
#
#   weft_add_program(TARGET [NAME weft] SOURCES ... [DEPS ...] [INSTALL])
#       An executable in bin/, called NAME there. In tests/: a helper that is built with the tests,
#       in tests-bin/.
#
#   weft_add_test(NAME SOURCES ... [DEPS ...] [LABELS l...] [TIMEOUT s] [ARGS ...] [ENV k=v...]
#                 [SERIAL] [DISCOVER] [TOGETHER])
#       A GoogleTest program and its entry in ctest. It counts as skipped, not as passed, with exit
#       code 77, and when one of its cases was skipped and none failed. SERIAL: nothing else runs
#       beside it. DISCOVER: one ctest entry per test case instead of one in all. TOGETHER: its
#       sources are compiled at once, where no two give the same name to something of theirs.
#
#   weft_add_script_test(NAME COMMAND ... [LABELS l...] [TIMEOUT s] [ENV k=v...] [SERIAL])
#       Any other command as a test, with the same conventions.
#
#   weft_add_fuzzer(NAME SOURCES ... [DEPS ...] [CORPUS dir])
#       SOURCES define LLVMFuzzerTestOneInput. With WEFT_SANITIZE=fuzzer: a libFuzzer program,
#       run for WEFT_FUZZ_SECONDS by ctest. Otherwise: a program that replays the corpus.
#
#   weft_add_bench(NAME SOURCES ... [DEPS ...])
#       A Google Benchmark program in bin/, left out where that library is missing.

set(WEFT_FUZZ_SECONDS 10 CACHE STRING "How long ctest runs each libFuzzer target")

# Tests are built on request, so that building the programs stays quick: target weft_tests for all,
# weft_tests_LABEL for those with one label.
add_custom_target(weft_tests)

function(_weft_in_test_targets target)
  add_dependencies(weft_tests ${target})
  foreach(label IN LISTS ARGN)
    if(NOT TARGET weft_tests_${label})
      add_custom_target(weft_tests_${label})
    endif()
    add_dependencies(weft_tests_${label} ${target})
  endforeach()
endfunction()

# Without an operating system (WEFT_CORE_ONLY) the upper layers and what they stand on don't exist;
# neither do the tests that need them.
function(_weft_lacks_layer result)
  set(lacks OFF)
  foreach(dep IN LISTS ARGN)
    if(WEFT_CORE_ONLY AND dep MATCHES "^weft|::" AND NOT TARGET ${dep})
      set(lacks ON)
    endif()
  endforeach()
  set(${result} ${lacks} PARENT_SCOPE)
endfunction()

# Libraries and programs that only tests use are not part of the default target either.
function(_weft_only_for_tests target)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/(tests|fuzz|bench)(/|$)")
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                                 "${WEFT_TEST_OUTPUT_DIRECTORY}")
      _weft_in_test_targets(${target})
    endif()
  endif()
endfunction()

function(weft_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC_DEPS;DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weft_add_library(${name}): unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(sources ${arg_SOURCES})
  list(FILTER sources INCLUDE REGEX "\\.(c|cc|cpp|S)$")
  if(NOT sources)
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    _weft_only_for_tests(${name})
    if(arg_DEPS)
      target_link_libraries(${name} PRIVATE ${arg_DEPS})
    endif()
  endif()
  target_compile_features(${name} ${scope} cxx_std_20)
  target_include_directories(
    ${name} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  if(arg_PUBLIC_DEPS)
    target_link_libraries(${name} ${scope} ${arg_PUBLIC_DEPS})
  endif()
endfunction()

function(_weft_product target type)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LAYERS;PUBLIC_DEPS;DEPS;SOURCES")
  set(objects "")
  foreach(layer IN LISTS arg_LAYERS)
    get_target_property(layer_type ${layer} TYPE)
    if(NOT layer_type STREQUAL "INTERFACE_LIBRARY")
      list(APPEND objects "$<TARGET_OBJECTS:${layer}>")
    endif()
  endforeach()
  add_library(${target} ${type} ${objects} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(
    ${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                     "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC_DEPS} PRIVATE ${arg_DEPS})
endfunction()

function(weft_add_product name)
  include(GNUInstallDirs)
  _weft_product(${name} SHARED ${ARGN})
  set(map "${PROJECT_SOURCE_DIR}/cmake/weft.map")
  set_target_properties(
    ${name} PROPERTIES VERSION "${WEFT_ABI}.${PROJECT_VERSION}" SOVERSION "${WEFT_ABI}"
                       LINK_DEPENDS "${map}")
  target_link_options(${name} PRIVATE "LINKER:--version-script=${map}")
  if(NOT WEFT_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
  _weft_product(${name}_static STATIC ${ARGN})
  set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name})
  add_library(Weft::${name} ALIAS ${name})
  add_library(Weft::${name}_static ALIAS ${name}_static)
endfunction()

function(_weft_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src"
                                               "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${target} PRIVATE ${arg_DEPS})
endfunction()

function(weft_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INSTALL" "NAME" "SOURCES;DEPS")
  _weft_executable(${target} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS})
  _weft_only_for_tests(${target})
  if(arg_NAME)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${arg_NAME})
  endif()
  if(arg_INSTALL)
    include(GNUInstallDirs)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH
                                               "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()

# Properties common to every ctest entry. The sanitizers abort at the first report, so that a
# report can't hide in the output of a passing test. die_after_fork=0: tests fork, and the child
# starts its own threads.
function(_weft_test_properties test)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;WAITS" "TIMEOUT" "LABELS;ENV")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(WEFT_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  # The limit ends a test that hangs. One that computes all the time may have a fifth of a CPU.
  if(arg_TIMEOUT LESS 300)
    set(arg_TIMEOUT 300)
  endif()
  if(WEFT_SANITIZE)
    # Ten times as slow, and each seed takes the same paths: all seeds run without sanitizers.
    list(APPEND arg_ENV "WEFT_SEEDS=0.25")
  endif()
  set(env ${arg_ENV} "WEFT_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
          "WEFT_LIB_DIR=${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  if(WEFT_SANITIZE STREQUAL "thread")
    list(APPEND env "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:\
suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  elseif(WEFT_SANITIZE)
    list(APPEND env "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
         "UBSAN_OPTIONS=print_stacktrace=1")
  endif()
  # The last lines of GoogleTest when cases were skipped; when some failed, others follow.
  set(skipped "\\[  PASSED  \\] [0-9]+ tests?\\.\n\\[  SKIPPED \\] [0-9]+ tests?, listed below:\n\
(\\[  SKIPPED \\] [^\n]*\n)+$")
  set_tests_properties(
    "${test}" PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77
                         SKIP_REGULAR_EXPRESSION "${skipped}" ENVIRONMENT "${env}")
  if(arg_SERIAL)
    set_tests_properties("${test}" PROPERTIES RUN_SERIAL ON)
  endif()
  # ctest --parallel is three times the number of cores: three tests on two cores, since most are
  # not busy all the time, or six of those that wait most of it.
  if(NOT arg_WAITS)
    set_tests_properties("${test}" PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# The source of a test is compiled in a hurry: not optimized, and with the headers of GoogleTest
# read once for all tests. What it tests is optimized as ever.
function(weft_compile_quickly target)
  target_compile_options(${target} PRIVATE -O0)
  weft_share_test_headers(${target})
endfunction()

function(weft_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;WAITS;DISCOVER;TOGETHER" "TIMEOUT"
                        "SOURCES;DEPS;LABELS;ARGS;ENV")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weft_add_test(${name}): unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  _weft_lacks_layer(skip ${arg_DEPS})
  if(skip)
    return()
  endif()
  _weft_executable(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS} GTest::gmock
                   GTest::gtest_main)
  weft_compile_quickly(${name})
  if(arg_TOGETHER)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${WEFT_UNITY})
  endif()
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON RUNTIME_OUTPUT_DIRECTORY
                                                               "${WEFT_TEST_OUTPUT_DIRECTORY}")
  _weft_in_test_targets(${name} ${arg_LABELS})
  set(how "")
  foreach(word SERIAL WAITS)
    if(arg_${word})
      list(APPEND how ${word})
    endif()
  endforeach()
  if(arg_DISCOVER)
    include(GoogleTest)
    gtest_discover_tests(
      ${name} TEST_PREFIX "${WEFT_TEST_PREFIX}${name}." DISCOVERY_MODE PRE_TEST
      EXTRA_ARGS ${arg_ARGS}
      PROPERTIES TIMEOUT 300 LABELS "${arg_LABELS}")
    return()
  endif()
  add_test(NAME "${WEFT_TEST_PREFIX}${name}" COMMAND ${name} ${arg_ARGS})
  _weft_test_properties("${WEFT_TEST_PREFIX}${name}" ${how} TIMEOUT ${arg_TIMEOUT} LABELS
                        ${arg_LABELS} ENV ${arg_ENV})
endfunction()

function(weft_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;WAITS" "TIMEOUT" "COMMAND;LABELS;ENV")
  if(WEFT_CORE_ONLY)
    return()
  endif()
  set(how "")
  foreach(word SERIAL WAITS)
    if(arg_${word})
      list(APPEND how ${word})
    endif()
  endforeach()
  add_test(NAME "${WEFT_TEST_PREFIX}${name}" COMMAND ${arg_COMMAND})
  _weft_test_properties("${WEFT_TEST_PREFIX}${name}" ${how} TIMEOUT ${arg_TIMEOUT} LABELS
                        ${arg_LABELS} ENV ${arg_ENV})
endfunction()

function(weft_add_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "weft_add_fuzzer(${name}): unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  _weft_lacks_layer(skip ${arg_DEPS})
  if(skip)
    return()
  endif()
  set(corpus "")
  if(arg_CORPUS)
    cmake_path(ABSOLUTE_PATH arg_CORPUS BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
               OUTPUT_VARIABLE corpus)
  endif()
  set(replay "")
  if(WEFT_SANITIZE STREQUAL "fuzzer")
    # New inputs go to a scratch folder: the corpus in the tree only changes by hand.
    set(scratch "${CMAKE_CURRENT_BINARY_DIR}/${name}-found")
    file(MAKE_DIRECTORY "${scratch}")
    set(args -max_total_time=${WEFT_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
             -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/${name}- "${scratch}" ${corpus})
  else()
    if(NOT TARGET weft_fuzz_replay)
      add_library(weft_fuzz_replay STATIC EXCLUDE_FROM_ALL
                  "${PROJECT_SOURCE_DIR}/cmake/fuzz_replay.cc")
    endif()
    set(replay weft_fuzz_replay)
    set(args ${corpus})
  endif()
  _weft_executable(${name} SOURCES ${arg_SOURCES} DEPS ${replay} ${arg_DEPS})
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON RUNTIME_OUTPUT_DIRECTORY
                                                               "${WEFT_TEST_OUTPUT_DIRECTORY}")
  if(WEFT_SANITIZE STREQUAL "fuzzer")
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endif()
  _weft_in_test_targets(${name} fuzz)
  add_test(NAME "${WEFT_TEST_PREFIX}${name}" COMMAND ${name} ${args})
  math(EXPR timeout "${WEFT_FUZZ_SECONDS} + 120")
  _weft_test_properties("${WEFT_TEST_PREFIX}${name}" TIMEOUT ${timeout} LABELS fuzz)
endfunction()

function(weft_add_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  if(NOT TARGET benchmark::benchmark)
    message(STATUS "Google Benchmark not found: ${name} is left out")
    return()
  endif()
  _weft_executable(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS} benchmark::benchmark_main
                   benchmark::benchmark)
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(weft_benches ${name})
endfunction()

# Benchmarks too are built on request.
add_custom_target(weft_benches)
