# The library's targets: one include tree under three roots, headers only. Headers are found and not
# listed, so that a new policy is one new file.
find_package(Threads REQUIRED)

set(tutti_roots include kernels strategies)
list(TRANSFORM tutti_roots PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE tutti_root_paths)
set(tutti_headers)
foreach(root IN LISTS tutti_root_paths)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${root}/*.hpp ${root}/*.cuh)
  list(APPEND tutti_headers ${found})
endforeach()

# A target and the headers whose paths match. Each is compiled alone where `verified` holds.
function(tutti_library name headers verified)
  add_library(tutti_${name} INTERFACE)
  add_library(tutti::${name} ALIAS tutti_${name})
  target_sources(tutti_${name} INTERFACE
    FILE_SET HEADERS BASE_DIRS ${tutti_root_paths} FILES ${headers})
  if(PROJECT_IS_TOP_LEVEL AND verified)
    set(verify ON)
  else()
    set(verify OFF)
  endif()
  set_target_properties(tutti_${name} PROPERTIES
    EXPORT_NAME ${name} VERIFY_INTERFACE_HEADER_SETS ${verify})
endfunction()

# What needs a library that may be absent belongs to a target of its own. It links that library by
# name whether it is here or not: who uses the target, needs it.
set(of_mpi "/transport/mpi[^/]*[.]hpp$")
set(of_benchmark "/tutti/benchmark[.]hpp$")
set(of_cuda "/cuda/|/transport/nccl[.]hpp$|[.]cuh$")
foreach(library mpi benchmark cuda)
  set(headers_${library} ${tutti_headers})
  list(FILTER headers_${library} INCLUDE REGEX ${of_${library}})
endforeach()
list(FILTER tutti_headers EXCLUDE REGEX "${of_mpi}|${of_benchmark}|${of_cuda}")

find_package(MPI COMPONENTS CXX QUIET)
find_package(benchmark QUIET)
find_package(CUDAToolkit QUIET)

tutti_library(tutti "${tutti_headers}" TRUE)
target_compile_features(tutti_tutti INTERFACE cxx_std_20)
target_link_libraries(tutti_tutti INTERFACE Threads::Threads)
# A product and a sum stay two roundings, so that hosts and devices give the same bits.
target_compile_options(tutti_tutti INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off;--fmad=false>")

tutti_library(mpi "${headers_mpi}" "${MPI_CXX_FOUND}")
target_link_libraries(tutti_mpi INTERFACE tutti_tutti MPI::MPI_CXX)
target_compile_definitions(tutti_mpi INTERFACE OMPI_SKIP_MPICXX)

tutti_library(benchmark "${headers_benchmark}" "${benchmark_FOUND}")
target_link_libraries(tutti_benchmark INTERFACE tutti_tutti benchmark::benchmark)

# Verified by test/cuda: these headers are nvcc's.
tutti_library(cuda "${headers_cuda}" FALSE)
target_link_libraries(tutti_cuda INTERFACE tutti_tutti CUDA::cudart_static)
target_compile_options(tutti_cuda INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr>")
