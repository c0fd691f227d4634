# `find_package(tutti)`: three roots become one include tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(tutti PROPERTIES EXPORT_NAME tutti)
install(TARGETS tutti tutti_mpi tutti_benchmark EXPORT tutti-targets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/cmake)
configure_package_config_file(cmake/tutti-config.cmake.in tutti-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/cmake)
write_basic_package_version_file(tutti-config-version.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake
              ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/cmake)
