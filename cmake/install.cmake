# Installs tutti for `find_package(tutti)`. The three roots become one include tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_DATADIR}/tutti/cmake)
install(TARGETS tutti_tutti tutti_in_process tutti_mpi tutti_benchmark tutti_torch tutti_nccl
                tutti_cuda EXPORT tutti-targets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILE_SET nvcc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package})
configure_package_config_file(cmake/tutti-config.cmake.in tutti-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake
              ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake
        DESTINATION ${package})
# The Python package finds tutti's headers in a folder above its own.
install(DIRECTORY apps/torch/tutti_torch DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/python
        FILES_MATCHING PATTERN "*.py" PATTERN "*.hpp")
# It compiles this file for strategies on a GPU.
install(FILES kernels/tutti/kernels/cuda/library.cu
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/kernels/cuda)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
