# What the distribution provides. Nothing is vendored, nothing is downloaded.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # CRC-32 of checkpoints
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)

# OpenBLAS. The serial build first: threads are shared out by our own pool, and Debian builds it with
# locking, so several threads may call it at once. Any other build serves too: it is told at run time
# to use one thread a call. The multi-arch folder holds the flavours side by side, and a link to one.
set(fsdp_arch ${CMAKE_CXX_LIBRARY_ARCHITECTURE})
find_library(FSDP_BLAS_LIBRARY NAMES openblas REQUIRED
  PATH_SUFFIXES openblas-serial ${fsdp_arch}/openblas-serial
                openblas-pthread ${fsdp_arch}/openblas-pthread
                openblas-openmp ${fsdp_arch}/openblas-openmp)
get_filename_component(fsdp_blas_flavour ${FSDP_BLAS_LIBRARY} DIRECTORY)
get_filename_component(fsdp_blas_flavour ${fsdp_blas_flavour} NAME)
find_path(FSDP_CBLAS_INCLUDE cblas.h REQUIRED
  PATH_SUFFIXES ${fsdp_arch}/${fsdp_blas_flavour} ${fsdp_blas_flavour} openblas ${fsdp_arch})
add_library(fsdp_blas INTERFACE)
target_include_directories(fsdp_blas SYSTEM INTERFACE ${FSDP_CBLAS_INCLUDE})
target_link_libraries(fsdp_blas INTERFACE ${FSDP_BLAS_LIBRARY})
include(CheckCXXSymbolExists)
set(CMAKE_REQUIRED_INCLUDES ${FSDP_CBLAS_INCLUDE})
set(CMAKE_REQUIRED_LIBRARIES ${FSDP_BLAS_LIBRARY})
check_cxx_symbol_exists(openblas_set_num_threads cblas.h FSDP_OPENBLAS_HAS_THREADS)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(FSDP_OPENBLAS_HAS_THREADS)
  target_compile_definitions(fsdp_blas INTERFACE FSDP_OPENBLAS_HAS_THREADS=1)
endif()
