# lwIP, compiled from its source (scripts/get-lwip.sh) with the options in src/lwip/port.
#
#   WEFT_LWIP_DIR         its source; empty: none was found
#   weft_add_lwip(NAME [DEFINITIONS d...] [SOURCES s...])
#       A static library of lwIP's core, IPv4 and Ethernet, with `d` defined for it and all that use
#       it. `s` are further files of its src folder, without `.c`.

set(weft_lwip_version "2.1.3+dfsg1-2")
if(DEFINED ENV{XDG_CACHE_HOME})
  set(weft_cache "$ENV{XDG_CACHE_HOME}")
else()
  set(weft_cache "$ENV{HOME}/.cache")
endif()
set(WEFT_LWIP_DIR "" CACHE PATH "Source of lwIP; empty: where scripts/get-lwip.sh puts it")
if(NOT WEFT_LWIP_DIR)
  set(WEFT_LWIP_DIR "${weft_cache}/weft/lwip-${weft_lwip_version}")
endif()
if(NOT EXISTS "${WEFT_LWIP_DIR}/src/Filelists.cmake")
  set(WEFT_LWIP_DIR "")
endif()

function(weft_add_lwip name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEFINITIONS;SOURCES")
  # Not by lwIP's own Filelists.cmake: that makes targets of fixed names, once per project.
  set(sources ${arg_SOURCES} netif/ethernet)
  foreach(file init def inet_chksum ip mem memp netif pbuf stats sys tcp tcp_in tcp_out timeouts)
    list(APPEND sources core/${file})
  endforeach()
  foreach(file etharp icmp ip4 ip4_addr)
    list(APPEND sources core/ipv4/${file})
  endforeach()
  list(TRANSFORM sources PREPEND "${WEFT_LWIP_DIR}/src/")
  list(TRANSFORM sources APPEND ".c")
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${sources}
                             "${PROJECT_SOURCE_DIR}/src/lwip/port/checksum.c"
                             "${PROJECT_SOURCE_DIR}/src/lwip/port/lwip_hosts.c")
  # Code of others: our warnings are not theirs, and its headers are not ours to check.
  target_compile_options(${name} PRIVATE -w)
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/src/lwip/port")
  target_include_directories(${name} SYSTEM PUBLIC "${WEFT_LWIP_DIR}/src/include")
  target_compile_definitions(${name} PUBLIC ${arg_DEFINITIONS})
endfunction()
