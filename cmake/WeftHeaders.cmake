# Headers that nearly every source includes, read once for all: a third of the time that a source
# takes to compile. With WEFT_UNITY only; without it each source stands by itself, and
# scripts/check-clang.py finds what it forgot to include.
#
#   weft_share_headers(DIR...)
#       Gives every library of these folders the headers below.
#
#   weft_use_headers(TARGET)
#       Gives them to one library.
#
#   weft_share_test_headers(TARGET)
#       Gives a program of tests/ those of GoogleTest besides. It has to be compiled with -O0.

set(weft_headers
    <algorithm> <array> <atomic> <bit> <cassert> <cerrno> <chrono> <cstddef> <cstdint> <cstdio>
    <cstdlib> <cstring> <deque> <functional> <limits> <memory> <mutex> <new> <optional> <span>
    <string> <string_view> <thread> <tl/expected.hpp> <unordered_map> <utility> <vector>)

# _weft_add_headers(NAME [STATIC] [HEADERS h...]): a target whose precompiled headers others take.
# A library or a program, as those are: position independence has to agree.
function(_weft_add_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "STATIC" "" "HEADERS")
  set(source "${PROJECT_BINARY_DIR}/${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
  if(arg_STATIC)
    add_library(${name} STATIC EXCLUDE_FROM_ALL "${source}")
  else()
    add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${WEFT_TEST_OUTPUT_DIRECTORY}")
  target_link_libraries(${name} PRIVATE tl::expected)
  target_precompile_headers(${name} PRIVATE ${weft_headers} ${arg_HEADERS})
endfunction()

# Whether all sources of `target` are C++, compiled with the options of the whole tree. Programs are
# not position-independent in the same way; they are small. DISABLE_PRECOMPILE_HEADERS says so of
# what has options of its own.
function(_weft_can_share_headers result target)
  get_target_property(type ${target} TYPE)
  get_target_property(sources ${target} SOURCES)
  get_target_property(own ${target} PRECOMPILE_HEADERS)
  get_target_property(disabled ${target} DISABLE_PRECOMPILE_HEADERS)
  get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
  list(FILTER sources EXCLUDE REGEX "\\.(cc|h)$|TARGET_OBJECTS")
  if(type MATCHES "^(STATIC|SHARED|OBJECT)_LIBRARY$" AND visibility STREQUAL "hidden"
     AND NOT sources AND NOT own AND NOT disabled)
    set(${result} ON PARENT_SCOPE)
  else()
    set(${result} OFF PARENT_SCOPE)
  endif()
endfunction()

function(weft_use_headers target)
  _weft_can_share_headers(can ${target})
  if(NOT can OR NOT WEFT_UNITY OR WEFT_BOARD)
    return()
  endif()
  if(NOT TARGET weft_library_headers)
    _weft_add_headers(weft_library_headers STATIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_library_headers)
endfunction()

function(weft_share_headers)
  foreach(dir IN LISTS ARGN)
    get_property(targets DIRECTORY "${dir}" PROPERTY BUILDSYSTEM_TARGETS)
    get_property(below DIRECTORY "${dir}" PROPERTY SUBDIRECTORIES)
    foreach(target IN LISTS targets)
      weft_use_headers(${target})
    endforeach()
    weft_share_headers(${below})
  endforeach()
endfunction()

function(weft_share_test_headers target)
  if(NOT TARGET weft_test_headers)
    _weft_add_headers(weft_test_headers HEADERS <gmock/gmock.h> <gtest/gtest.h>)
    target_compile_options(weft_test_headers PRIVATE -O0)
    target_link_libraries(weft_test_headers PRIVATE GTest::gmock)
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_test_headers)
endfunction()
