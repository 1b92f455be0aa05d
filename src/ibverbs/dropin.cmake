# weft_drop_in(TARGET NAME MAP): names and places of a library that stands in for one of rdma-core.
function(weft_drop_in target name map)
  # Everything that the map lists is exported; the visibility of the definitions is not theirs to
  # set.
  set_target_properties(
    ${target}
    PROPERTIES OUTPUT_NAME ${name}
               SOVERSION 1
               C_VISIBILITY_PRESET default
               CXX_VISIBILITY_PRESET default
               LIBRARY_OUTPUT_DIRECTORY "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/weft"
               BUILD_RPATH_USE_ORIGIN ON
               INSTALL_RPATH "$ORIGIN:$ORIGIN/.."
               LINK_DEPENDS "${map}")
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}" "LINKER:-z,nodelete")
  if(NOT WEFT_SANITIZE)
    target_link_options(${target} PRIVATE "LINKER:-z,defs")
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft)
endfunction()
