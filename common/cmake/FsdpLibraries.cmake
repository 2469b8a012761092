# What the distribution provides. Nothing is vendored, nothing is downloaded.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # CRC-32 of checkpoints
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)

find_path(FSDP_MD_INCLUDE sha2.h REQUIRED)
find_library(FSDP_MD_LIBRARY NAMES md REQUIRED)  # SHA-256 of the parameters
add_library(fsdp_md INTERFACE)
target_include_directories(fsdp_md SYSTEM INTERFACE ${FSDP_MD_INCLUDE})
target_link_libraries(fsdp_md INTERFACE ${FSDP_MD_LIBRARY})

# OpenBLAS, told at run time to use one thread a call: threads are shared out by our own pool. The
# builds with threads first, because only they may be called from several of ours at once (measured:
# Debian's serial build then gives a wrong product now and then; common/tensor/blas.cpp takes it one
# call at a time). The multi-arch folder holds the flavors side by side, and a link to one of them.
set(fsdp_arch ${CMAKE_CXX_LIBRARY_ARCHITECTURE})
find_library(FSDP_OPENBLAS_LIBRARY NAMES openblas REQUIRED
  PATH_SUFFIXES openblas-pthread ${fsdp_arch}/openblas-pthread
                openblas-openmp ${fsdp_arch}/openblas-openmp
                openblas-serial ${fsdp_arch}/openblas-serial)
get_filename_component(fsdp_blas_flavor ${FSDP_OPENBLAS_LIBRARY} DIRECTORY)
get_filename_component(fsdp_blas_flavor ${fsdp_blas_flavor} NAME)
find_path(FSDP_OPENBLAS_INCLUDE cblas.h REQUIRED
  PATH_SUFFIXES ${fsdp_arch}/${fsdp_blas_flavor} ${fsdp_blas_flavor} openblas ${fsdp_arch})
add_library(fsdp_blas INTERFACE)
target_include_directories(fsdp_blas SYSTEM INTERFACE ${FSDP_OPENBLAS_INCLUDE})
target_link_libraries(fsdp_blas INTERFACE ${FSDP_OPENBLAS_LIBRARY})
