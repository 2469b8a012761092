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
