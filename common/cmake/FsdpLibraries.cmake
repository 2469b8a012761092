# What the distribution provides. Nothing is vendored, nothing is downloaded.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # CRC-32 of checkpoints
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_path(FSDP_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial openblas x86_64-linux-gnu REQUIRED)
find_library(FSDP_BLAS_LIBRARY NAMES openblas REQUIRED)
add_library(fsdp_blas INTERFACE)
target_include_directories(fsdp_blas SYSTEM INTERFACE ${FSDP_CBLAS_INCLUDE})
target_link_libraries(fsdp_blas INTERFACE ${FSDP_BLAS_LIBRARY})
