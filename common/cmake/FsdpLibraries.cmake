# What the distribution provides. Nothing is vendored, nothing is downloaded.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # CRC-32 of checkpoints
if(FSDP_PROGRAMS)
  find_package(CLI11 REQUIRED)
  find_package(tomlplusplus REQUIRED)
  find_path(FSDP_MD_INCLUDE sha2.h REQUIRED)
  find_library(FSDP_MD_LIBRARY NAMES md REQUIRED)  # SHA-256 of the parameters
  add_library(fsdp_md INTERFACE)
  target_include_directories(fsdp_md SYSTEM INTERFACE ${FSDP_MD_INCLUDE})
  target_link_libraries(fsdp_md INTERFACE ${FSDP_MD_LIBRARY})
endif()

# Ranks as processes. Where a system has two MPI libraries, their compilers and launchers have endings.
set(FSDP_MPI "" CACHE STRING "MPI library: openmpi, mpich, ON (the system's own), or none")
if(FSDP_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_program(FSDP_MPI_COMPILER mpicxx.${FSDP_MPI})
  if(FSDP_MPI_COMPILER)
    set(MPI_CXX_COMPILER ${FSDP_MPI_COMPILER})
  endif()
  find_package(MPI REQUIRED COMPONENTS CXX)
  find_program(FSDP_MPIRUN NAMES mpirun.${FSDP_MPI} mpirun mpiexec REQUIRED)
endif()
