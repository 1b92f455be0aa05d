# The symbols of libibverbs.so.1: which it exports, under which version nodes, and which of them
# lead on to the machine's own library.
#
#   weft_ibverbs_symbols(MAP file.map TRAMPOLINES file.inc)
#
# The public nodes are append-only across releases of rdma-core; Weft implements those of release
# 44, and answers for those that came later (symbols-later.txt). The private node is renamed
# whenever rdma-core's interface to its drivers changes: programs that are linked with driver
# libraries (libmlx5, libefa) name it, so it has to be that of the installed library. It is read
# from there; without one, release 44's is taken.

set(WEFT_IBVERBS_LIBRARY "" CACHE FILEPATH "libibverbs.so.1 of rdma-core, read for its symbols")

# Private nodes of other releases, so that a build runs beside another rdma-core too.
set(weft_private_releases 33 34 57 59 64 65)

function(_weft_read_symbols out library)
  set(${out} "" PARENT_SCOPE)
  if(NOT library OR NOT CMAKE_READELF)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_READELF} -W --dyn-syms "${library}" OUTPUT_VARIABLE text
                  ERROR_QUIET RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    return()
  endif()
  string(REGEX MATCHALL "FUNC +GLOBAL +DEFAULT +[0-9]+ +[A-Za-z0-9_]+@@IBVERBS_[A-Z0-9_.]+" rows
               "${text}")
  set(symbols "")
  foreach(row IN LISTS rows)
    string(REGEX REPLACE ".* ([A-Za-z0-9_]+)@@(IBVERBS_[A-Z0-9_.]+)$" "\\2 \\1" symbol "${row}")
    list(APPEND symbols "${symbol}")
  endforeach()
  set(${out} "${symbols}" PARENT_SCOPE)
endfunction()

function(_weft_find_ibverbs)
  if(WEFT_IBVERBS_LIBRARY)
    return()
  endif()
  foreach(dir IN ITEMS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /lib/${CMAKE_LIBRARY_ARCHITECTURE}
                       /usr/lib64 /usr/lib)
    if(EXISTS "${dir}/libibverbs.so.1")
      set(WEFT_IBVERBS_LIBRARY "${dir}/libibverbs.so.1" CACHE FILEPATH "" FORCE)
      return()
    endif()
  endforeach()
endfunction()

# Symbol version directives for `name`: `node` is the default, `others` are older or newer names of
# the same thing.
function(_weft_symvers out name node)
  set(text ".symver weft_t_${name},${name}@@${node}\\n")
  foreach(other IN LISTS ARGN)
    string(APPEND text ".symver weft_t_${name},${name}@${other}\\n")
  endforeach()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(weft_ibverbs_symbols)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "MAP;TRAMPOLINES" "")
  _weft_find_ibverbs()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/symbols-44.txt")
  file(STRINGS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/symbols-44.txt" known REGEX "^IBVERBS_")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/symbols-later.txt")
  file(STRINGS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/symbols-later.txt" later REGEX "^IBVERBS_")
  list(APPEND known ${later})
  _weft_read_symbols(installed "${WEFT_IBVERBS_LIBRARY}")

  set(primary IBVERBS_PRIVATE_34)
  foreach(symbol IN LISTS installed)
    if(symbol MATCHES "^(IBVERBS_PRIVATE_[0-9]+) ")
      set(primary "${CMAKE_MATCH_1}")
      break()
    endif()
  endforeach()
  set(others "")
  foreach(release IN LISTS weft_private_releases)
    if(NOT primary STREQUAL "IBVERBS_PRIVATE_${release}")
      list(APPEND others "IBVERBS_PRIVATE_${release}")
    endif()
  endforeach()

  # Which function goes where.
  set(public "")        # node and name, implemented by Weft
  set(forwarded "")     # names of trampolines
  set(public_names "")
  foreach(symbol IN LISTS known)
    string(REGEX MATCH "^([^ ]+) (.+)$" ignored "${symbol}")
    set(node "${CMAKE_MATCH_1}")
    set(name "${CMAKE_MATCH_2}")
    if(node MATCHES "PRIVATE" )
      if(NOT name MATCHES "^verbs_register_driver_")
        list(APPEND forwarded "${name}")
        set(node_${name} "${primary}")
      endif()
    elseif(name MATCHES "^ibv_copy_")
      # Between kernel and user structs: only real drivers and the real librdmacm call them.
      list(APPEND forwarded "${name}")
      set(node_${name} "${node}")
      list(APPEND public_names "${name}")
      list(APPEND public "${node} ${name}")
    else()
      list(APPEND public "${node} ${name}")
      list(APPEND public_names "${name}")
    endif()
  endforeach()
  set(newer "")
  foreach(symbol IN LISTS installed)
    string(REGEX MATCH "^([^ ]+) (.+)$" ignored "${symbol}")
    set(node "${CMAKE_MATCH_1}")
    set(name "${CMAKE_MATCH_2}")
    if(name IN_LIST public_names OR name IN_LIST forwarded
       OR name MATCHES "^verbs_register_driver_")
      continue()
    endif()
    list(APPEND forwarded "${name}")
    if(node MATCHES "PRIVATE")
      set(node_${name} "${primary}")
    else()
      set(node_${name} "${node}")
      list(APPEND public "${node} ${name}")
      list(APPEND newer "${name}")
    endif()
  endforeach()

  set(rows "")
  set(index 0)
  foreach(name IN LISTS forwarded)
    if(node_${name} STREQUAL primary)
      _weft_symvers(symvers ${name} ${primary} ${others})
    else()
      _weft_symvers(symvers ${name} ${node_${name}})
    endif()
    string(APPEND rows "WEFT_TRAMPOLINE(${index}, ${name}, \"${symvers}\")\n")
    math(EXPR index "${index} + 1")
  endforeach()
  set(register_names "")
  foreach(node IN LISTS primary others)
    string(REPLACE "IBVERBS_PRIVATE_" "verbs_register_driver_" name "${node}")
    _weft_symvers(symvers ${name} ${node})
    string(APPEND rows "WEFT_TRAMPOLINE(${index}, ${name}, \"${symvers}\")\n")
    list(APPEND register_names "${name}")
    math(EXPR index "${index} + 1")
  endforeach()
  set(others_of_data "")
  foreach(node IN LISTS others)
    string(APPEND others_of_data
           ".symver verbs_allow_disassociate_destroy_,verbs_allow_disassociate_destroy@${node}\\n")
  endforeach()
  file(CONFIGURE OUTPUT "${arg_TRAMPOLINES}" @ONLY CONTENT
"// Made by symbols.cmake.
@rows@#undef WEFT_TRAMPOLINE
#define WEFT_PRIVATE_NODE \"@primary@\"
#define WEFT_DATA_SYMVERS \\
  \".symver verbs_allow_disassociate_destroy_,verbs_allow_disassociate_destroy@@@primary@\\n\" \\
  \"@others_of_data@\"
")

  # The map: public nodes in order, each inheriting from the one before, then the private ones.
  set(nodes "")
  foreach(symbol IN LISTS public)
    string(REGEX REPLACE " .*" "" node "${symbol}")
    list(APPEND nodes "${node}")
  endforeach()
  list(REMOVE_DUPLICATES nodes)
  list(SORT nodes COMPARE NATURAL)
  set(map "/* Made by symbols.cmake. */\n")
  set(previous "")
  foreach(node IN LISTS nodes)
    string(APPEND map "${node} {\n  global:\n")
    foreach(symbol IN LISTS public)
      if(symbol MATCHES "^([^ ]+) (.+)$" AND CMAKE_MATCH_1 STREQUAL node)
        string(APPEND map "    ${CMAKE_MATCH_2};\n")
      endif()
    endforeach()
    if(NOT previous)
      string(APPEND map "  local: *;\n")
    endif()
    string(APPEND map "}${previous};\n")
    set(previous " ${node}")
  endforeach()
  foreach(node IN LISTS primary others)
    string(APPEND map "${node} {\n")
    if(node STREQUAL primary)
      string(APPEND map "  global:\n    verbs_allow_disassociate_destroy;\n")
      foreach(name IN LISTS forwarded)
        if(node_${name} STREQUAL primary)
          string(APPEND map "    ${name};\n")
        endif()
      endforeach()
    endif()
    string(REPLACE "IBVERBS_PRIVATE_" "verbs_register_driver_" name "${node}")
    if(NOT node STREQUAL primary)
      string(APPEND map "  global:\n")
    endif()
    string(APPEND map "    ${name};\n}${previous};\n")
  endforeach()
  string(APPEND map "WEFT_IBVERBS_1 {\n  global:\n    weft_ibv_*;\n};\n")
  file(CONFIGURE OUTPUT "${arg_MAP}" CONTENT "${map}" @ONLY)

  list(LENGTH installed count)
  if(count EQUAL 0)
    message(STATUS "libibverbs: none found to read, exporting the symbols of rdma-core 44")
  else()
    message(STATUS "libibverbs: ${WEFT_IBVERBS_LIBRARY} has ${primary}")
  endif()
  if(newer)
    list(JOIN newer ", " newer)
    message(STATUS "libibverbs: newer than Weft knows; only for real devices: ${newer}")
  endif()
endfunction()
