# The library's targets: one include tree from three roots. All are headers only, with three
# exceptions: tutti_in_process and tutti_mpi contain what strategies share over a transport, for
# programs that would rather link it than compile it, and tutti_cuda contains the kernels as a
# static library where nvcc is found. Headers are searched and not listed, so that a new policy is
# one new file.
find_package(Threads REQUIRED)

set(tutti_roots include kernels strategies)
list(TRANSFORM tutti_roots PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE tutti_root_paths)
set(tutti_headers)
foreach(root IN LISTS tutti_root_paths)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${root}/*.hpp ${root}/*.cuh)
  list(APPEND tutti_headers ${found})
endforeach()

# Adds a target with the headers given. Further arguments are the sources of a static library.
function(tutti_library name headers)
  if(ARGN)
    add_library(tutti_${name} STATIC ${ARGN})
    set(scope PUBLIC)
  else()
    add_library(tutti_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(tutti::${name} ALIAS tutti_${name})
  target_sources(tutti_${name} ${scope}
    FILE_SET HEADERS BASE_DIRS ${tutti_root_paths} FILES ${headers})
  set_target_properties(tutti_${name} PROPERTIES EXPORT_NAME ${name})
endfunction()

# Headers that need a library which may be absent belong to a target of their own. The target names
# that library whether it is installed or not, because programs that use the target need it.
set(of_in_process "/tutti/compiled/in_process[.]hpp$")
set(of_mpi "/transport/mpi([^/]*|/.*)[.]hpp$|/compiled/mpi[.]hpp$")
set(of_benchmark "/tutti/benchmark[.]hpp$")
set(of_nccl "/transport/nccl[.]hpp$")
set(of_torch "/adapter/torch[^/]*[.]hpp$")
set(of_cuda "/cuda/|/transport/in_process_cuda[.]hpp$|[.]cuh$")
foreach(library in_process mpi benchmark nccl torch cuda)
  set(headers_${library} ${tutti_headers})
  list(FILTER headers_${library} INCLUDE REGEX ${of_${library}})
endforeach()
list(FILTER tutti_headers EXCLUDE REGEX
     "${of_in_process}|${of_mpi}|${of_benchmark}|${of_nccl}|${of_torch}|${of_cuda}")

find_package(MPI COMPONENTS CXX QUIET)
find_package(benchmark QUIET)
find_package(CUDAToolkit QUIET)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
if(CUDAToolkit_FOUND)
  find_package(NCCL QUIET)
endif()

tutti_library(tutti "${tutti_headers}")
target_compile_features(tutti_tutti INTERFACE cxx_std_20)
target_link_libraries(tutti_tutti INTERFACE Threads::Threads)
# Hosts and devices must give the same bits, so that a product and a sum are not contracted into one
# rounding. Square roots do not set errno, so that they are single instructions and loops over them
# are vectorised.
target_compile_options(tutti_tutti INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-math-errno>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off,-fno-math-errno;--fmad=false>")

set(compiled ${PROJECT_SOURCE_DIR}/include/tutti/compiled)
tutti_library(in_process "${headers_in_process}" ${compiled}/in_process.cpp)
target_link_libraries(tutti_in_process PUBLIC tutti_tutti)

set(mpi_sources)
set(mpi_scope INTERFACE)
if(MPI_CXX_FOUND)
  set(mpi_sources ${compiled}/mpi.cpp)
  set(mpi_scope PUBLIC)
endif()
tutti_library(mpi "${headers_mpi}" ${mpi_sources})
target_link_libraries(tutti_mpi ${mpi_scope} tutti_in_process MPI::MPI_CXX)
target_compile_definitions(tutti_mpi ${mpi_scope} OMPI_SKIP_MPICXX)

# In another project these are built only if that project links or installs them.
foreach(library in_process mpi)
  get_target_property(kind tutti_${library} TYPE)
  if(kind STREQUAL "STATIC_LIBRARY")
    set_target_properties(tutti_${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    if(NOT PROJECT_IS_TOP_LEVEL)
      set_target_properties(tutti_${library} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  endif()
endforeach()

tutti_library(benchmark "${headers_benchmark}")
target_link_libraries(tutti_benchmark INTERFACE tutti_tutti benchmark::benchmark)

# Programs that train with LibTorch bring LibTorch's flags. test/torch/ compiles this header.
tutti_library(torch "${headers_torch}")
target_link_libraries(tutti_torch INTERFACE tutti_tutti)

# Kernels for devices are compiled once, here, if nvcc is found. Without nvcc the target has only
# the headers, which state what they need.
set(cuda_sources)
set(cuda_scope INTERFACE)
if(TUTTI_CUDA AND CUDAToolkit_FOUND)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    set(cuda_sources ${PROJECT_SOURCE_DIR}/kernels/tutti/kernels/cuda/library.cu)
    set(cuda_scope PUBLIC)
  else()
    message(STATUS "nvcc not found: the CUDA kernels are left out")
  endif()
else()
  set(CMAKE_CUDA_COMPILER "")  # which an earlier configuration of this folder may have found
endif()
# library.cu compiles the headers for nvcc (.cuh). test/headers/ compiles each of the others on its
# own.
set(headers_nvcc ${headers_cuda})
list(FILTER headers_nvcc INCLUDE REGEX "[.]cuh$")
list(FILTER headers_cuda EXCLUDE REGEX "[.]cuh$")
tutti_library(cuda "${headers_cuda}" ${cuda_sources})
target_sources(tutti_cuda ${cuda_scope}
  FILE_SET nvcc TYPE HEADERS BASE_DIRS ${tutti_root_paths} FILES ${headers_nvcc})
target_link_libraries(tutti_cuda ${cuda_scope} tutti_tutti CUDA::cudart_static)
target_compile_options(tutti_cuda ${cuda_scope}
  "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr>")
if(cuda_sources)
  # -std is stated explicitly, because CMake 3.25 does not know this nvcc and assumes that 20 is its
  # default.
  target_compile_options(tutti_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
  set_target_properties(tutti_cuda PROPERTIES
    CUDA_RUNTIME_LIBRARY Static POSITION_INDEPENDENT_CODE ON)
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(tutti_cuda PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
  endif()
endif()

tutti_library(nccl "${headers_nccl}")
target_link_libraries(tutti_nccl INTERFACE tutti_cuda NCCL::nccl)
if(PROJECT_IS_TOP_LEVEL AND NOT NCCL_FOUND)
  message(STATUS "NCCL not found (libnccl-dev): what needs it is left out")
endif()
