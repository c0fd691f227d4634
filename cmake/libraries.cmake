# The library's targets: one include tree under three roots, headers only.
find_package(Threads REQUIRED)

set(tutti_roots include kernels strategies)

# Header sets are found and not listed, so that a new policy is one new file.
function(tutti_headers target)
  set(files)
  foreach(root IN LISTS tutti_roots)
    foreach(pattern IN LISTS ARGN)
      file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${root}/${pattern})
      list(APPEND files ${found})
    endforeach()
  endforeach()
  target_sources(${target} INTERFACE FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/kernels
              ${PROJECT_SOURCE_DIR}/strategies
    FILES ${files})
endfunction()

add_library(tutti INTERFACE)
add_library(tutti::tutti ALIAS tutti)
target_compile_features(tutti INTERFACE cxx_std_20)
target_link_libraries(tutti INTERFACE Threads::Threads)
# A product and a sum stay two roundings, so that hosts and devices give the same bits.
target_compile_options(tutti INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

file(GLOB_RECURSE tutti_all CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     include/*.hpp kernels/*.hpp strategies/*.hpp)
set(tutti_foreign_headers transport/mpi.hpp transport/nccl.hpp tutti/benchmark.hpp /cuda/)
set(tutti_own_files)
foreach(file IN LISTS tutti_all)
  set(foreign FALSE)
  foreach(part IN LISTS tutti_foreign_headers)
    string(FIND ${file} ${part} place)
    if(NOT place EQUAL -1)
      set(foreign TRUE)
    endif()
  endforeach()
  if(NOT foreign)
    list(APPEND tutti_own_files ${PROJECT_SOURCE_DIR}/${file})
  endif()
endforeach()
target_sources(tutti INTERFACE FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/kernels
            ${PROJECT_SOURCE_DIR}/strategies
  FILES ${tutti_own_files})

# Each foreign library enters by a target of its own, where it is installed.
find_package(MPI COMPONENTS CXX QUIET)
add_library(tutti_mpi INTERFACE)
add_library(tutti::mpi ALIAS tutti_mpi)
set_target_properties(tutti_mpi PROPERTIES EXPORT_NAME mpi)
target_link_libraries(tutti_mpi INTERFACE tutti)
tutti_headers(tutti_mpi tutti/transport/mpi.hpp)
if(MPI_CXX_FOUND)
  target_link_libraries(tutti_mpi INTERFACE MPI::MPI_CXX)
  target_compile_definitions(tutti_mpi INTERFACE OMPI_SKIP_MPICXX)
endif()

find_package(benchmark QUIET)
add_library(tutti_benchmark INTERFACE)
add_library(tutti::benchmark ALIAS tutti_benchmark)
set_target_properties(tutti_benchmark PROPERTIES EXPORT_NAME benchmark)
target_link_libraries(tutti_benchmark INTERFACE tutti)
tutti_headers(tutti_benchmark tutti/benchmark.hpp)
if(benchmark_FOUND)
  target_link_libraries(tutti_benchmark INTERFACE benchmark::benchmark)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set_target_properties(tutti PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  set_target_properties(tutti_mpi PROPERTIES VERIFY_INTERFACE_HEADER_SETS ${MPI_CXX_FOUND})
  set_target_properties(tutti_benchmark PROPERTIES
                        VERIFY_INTERFACE_HEADER_SETS ${benchmark_FOUND})
endif()
