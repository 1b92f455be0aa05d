# Everything from outside the tree. All of it is packaged in Debian 12; docs/dependencies.md says
# what each is for and scripts/install-deps.sh installs it.

if(WEFT_BOARD)
  # A compiler for a board must not see the headers of this machine: one of them alone is copied.
  find_file(WEFT_EXPECTED_HEADER tl/expected.hpp PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  configure_file("${WEFT_EXPECTED_HEADER}" "${PROJECT_BINARY_DIR}/board-include/tl/expected.hpp"
                 COPYONLY)
  add_library(tl::expected INTERFACE IMPORTED GLOBAL)
  target_include_directories(tl::expected SYSTEM
                             INTERFACE "${PROJECT_BINARY_DIR}/board-include")
else()
  find_package(tl-expected REQUIRED)
endif()

if(NOT WEFT_CORE_ONLY)
  find_package(Threads REQUIRED)
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(benchmark QUIET)
endif()

# ISA-L computes CRC32C at memory speed on x86-64. Elsewhere the target is empty, WEFT_HAVE_ISAL is
# not defined, and base falls back to its own code.
set(WEFT_HAVE_ISAL OFF)
if(NOT WEFT_CORE_ONLY AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  find_path(WEFT_ISAL_INCLUDE_DIR isa-l/crc.h)
  find_library(WEFT_ISAL_LIBRARY isal)
  if(WEFT_ISAL_INCLUDE_DIR AND WEFT_ISAL_LIBRARY)
    set(WEFT_HAVE_ISAL ON)
    add_library(Weft::isal UNKNOWN IMPORTED GLOBAL)
    set_target_properties(
      Weft::isal
      PROPERTIES IMPORTED_LOCATION "${WEFT_ISAL_LIBRARY}"
                 INTERFACE_INCLUDE_DIRECTORIES "${WEFT_ISAL_INCLUDE_DIR}"
                 INTERFACE_COMPILE_DEFINITIONS "WEFT_HAVE_ISAL=1")
  endif()
endif()
if(NOT TARGET Weft::isal)
  add_library(Weft::isal INTERFACE IMPORTED GLOBAL)
endif()

# io_uring, for what reads files without waiting for the disk. Without it those parts are left out.
if(NOT WEFT_CORE_ONLY)
  find_path(WEFT_URING_INCLUDE_DIR liburing.h)
  find_library(WEFT_URING_LIBRARY uring)
  if(WEFT_URING_INCLUDE_DIR AND WEFT_URING_LIBRARY)
    add_library(Weft::uring UNKNOWN IMPORTED GLOBAL)
    set_target_properties(
      Weft::uring PROPERTIES IMPORTED_LOCATION "${WEFT_URING_LIBRARY}"
                             INTERFACE_INCLUDE_DIRECTORIES "${WEFT_URING_INCLUDE_DIR}")
  else()
    message(STATUS "liburing-dev not found: ReadSend, and weft serve and get, are left out")
  endif()
endif()

# Debian packages GoogleTest as binaries for the machine's own architecture and as source. A cross
# build compiles the source, without our warnings.
function(weft_build_googletest)
  set_property(DIRECTORY PROPERTY COMPILE_OPTIONS "")
  set(INSTALL_GTEST OFF)
  set(CMAKE_CXX_VISIBILITY_PRESET default)
  add_subdirectory(/usr/src/googletest "${PROJECT_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
endfunction()

set(WEFT_TESTS_ENABLED OFF)
if(CMAKE_CROSSCOMPILING AND WEFT_TESTS AND EXISTS /usr/src/googletest/CMakeLists.txt)
  get_property(weft_compile_options DIRECTORY PROPERTY COMPILE_OPTIONS)
  weft_build_googletest()
  set_property(DIRECTORY PROPERTY COMPILE_OPTIONS "${weft_compile_options}")
  foreach(lib gtest gtest_main gmock gmock_main)
    if(NOT TARGET GTest::${lib})
      add_library(GTest::${lib} ALIAS ${lib})
    endif()
  endforeach()
  set(WEFT_TESTS_ENABLED ON)
elseif(WEFT_TESTS STREQUAL "AUTO")
  find_package(GTest QUIET)
  if(TARGET GTest::gmock)
    set(WEFT_TESTS_ENABLED ON)
  else()
    message(STATUS "GoogleTest not found: the tests are left out")
  endif()
elseif(WEFT_TESTS)
  find_package(GTest REQUIRED)
  set(WEFT_TESTS_ENABLED ON)
endif()
