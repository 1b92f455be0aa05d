# Everything from outside the tree. All of it is packaged in Debian 12; docs/dependencies.md says
# what each is for and scripts/install-deps.sh installs it.

find_package(tl-expected REQUIRED)

if(NOT WEFT_CORE_ONLY)
  find_package(Threads REQUIRED)
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(benchmark QUIET)
endif()

# ISA-L computes CRC32C at memory speed on x86-64. Elsewhere base falls back to its own code.
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

set(WEFT_TESTS_ENABLED OFF)
if(WEFT_TESTS STREQUAL "AUTO")
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
