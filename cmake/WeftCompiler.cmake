# Language level, warnings, sanitizers and output folders: everything that holds for all
# targets of this tree. There is no third-party code in the tree, so directory scope is enough.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The source uses POSIX and a few Linux calls (accept4, epoll, TCP_USER_TIMEOUT). g++ defines
# _GNU_SOURCE itself; C needs to be told.
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(WEFT_TEST_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests-bin")

# -g1 keeps line numbers in stack traces without making the tree several times larger. NDEBUG is
# left out on purpose, see "Assertions" in CONTRIBUTING.md.
foreach(lang C CXX)
  set(CMAKE_${lang}_FLAGS_RELEASE "-O2 -g1")
  if(NOT WEFT_ASSERTS)
    string(APPEND CMAKE_${lang}_FLAGS_RELEASE " -DNDEBUG")
  endif()
endforeach()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(WEFT_WERROR)
  add_compile_options(-Werror)
endif()

if(WEFT_SANITIZE STREQUAL "address")
  # A null pointer that is used ends the program anyway, and AddressSanitizer says where; checking
  # each for it takes a fifth of the compile time.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null
                      -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
elseif(WEFT_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(WEFT_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WEFT_SANITIZE=fuzzer needs clang; use the preset named fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
elseif(NOT WEFT_SANITIZE STREQUAL "")
  message(FATAL_ERROR "WEFT_SANITIZE is '${WEFT_SANITIZE}'; it can be empty, address, thread "
                      "or fuzzer")
endif()

# Most of the time to compile a source goes into the headers that it includes, so sources of one
# target are compiled several at a time. Boards compile each source by itself: their images are
# made of what is called.
if(WEFT_UNITY AND NOT WEFT_BOARD)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)
endif()

find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE)
  foreach(lang C CXX)
    if(NOT DEFINED CMAKE_${lang}_COMPILER_LAUNCHER)
      # Without this, what is compiled with a precompiled header is not cached.
      set(CMAKE_${lang}_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
                                          CCACHE_SLOPPINESS=pch_defines,time_macros "${WEFT_CCACHE}")
    endif()
  endforeach()
endif()

# On a board: small, no exceptions, no RTTI, and only what is called.
if(WEFT_BOARD)
  set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
  add_compile_definitions(WEFT_PROFILE_SMALL) # src/base/profile.h
  include_directories(BEFORE "${CMAKE_CURRENT_SOURCE_DIR}/src/lwip/board/include") # assert.h
  add_compile_options(-Os -fno-exceptions -ffunction-sections -fdata-sections
                      -fno-common -fomit-frame-pointer)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-threadsafe-statics>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-use-cxa-atexit>
                      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${CMAKE_CURRENT_SOURCE_DIR}/src/lwip/board/std_shim.h>")
endif()
