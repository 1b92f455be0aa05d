# cmake --install: the library, its headers, the programs (each by weft_add_program), and the files
# by which pkg-config and CMake find them.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET weft)
  install(
    TARGETS weft weft_static
    EXPORT WeftTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(
    DIRECTORY "${PROJECT_SOURCE_DIR}/include/weft"
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING
    PATTERN "*.h")

  set(WEFT_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Weft")
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/WeftConfig.cmake.in" "${PROJECT_BINARY_DIR}/WeftConfig.cmake"
    INSTALL_DESTINATION "${WEFT_CMAKE_DIR}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/WeftConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/WeftConfig.cmake"
                "${PROJECT_BINARY_DIR}/WeftConfigVersion.cmake" DESTINATION "${WEFT_CMAKE_DIR}")
  install(EXPORT WeftTargets NAMESPACE Weft:: DESTINATION "${WEFT_CMAKE_DIR}")

  configure_file("${PROJECT_SOURCE_DIR}/cmake/weft.pc.in" "${PROJECT_BINARY_DIR}/weft.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/weft.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  install(TARGETS weft_core ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  set(WEFT_CORE_LIBS "")
  if(WEFT_HAVE_ISAL)
    set(WEFT_CORE_LIBS " -lisal")
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/weft-core.pc.in"
                 "${PROJECT_BINARY_DIR}/weft-core.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/weft-core.pc"
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  if(TARGET weft_rdmacm)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/weft-verbs.pc.in"
                   "${PROJECT_BINARY_DIR}/weft-verbs.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/weft-verbs.pc"
            DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  endif()
endif()
