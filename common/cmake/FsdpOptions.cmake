# The one place where compiler options are decided.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

option(FSDP_WERROR "Warnings are errors (our own CI; never a student's build)" OFF)
option(FSDP_NATIVE "Use all instructions of this machine" ON)
option(FSDP_TESTS "Build the tests" ON)
option(FSDP_CHECKED "Fill fresh memory with NaN" OFF)
set(FSDP_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

add_library(fsdp_options INTERFACE)
target_compile_options(fsdp_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # a*b+c must round the same way in a vector body and in its scalar tail (DESIGN: bits never
  # depend on alignment); kernels that want a fused multiply-add say std::fma.
  -ffp-contract=off)
if(FSDP_WERROR)
  target_compile_options(fsdp_options INTERFACE -Werror)
endif()
if(FSDP_NATIVE)
  target_compile_options(fsdp_options INTERFACE -march=native)
endif()
if(FSDP_SANITIZE)
  target_compile_options(fsdp_options INTERFACE -fsanitize=${FSDP_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(fsdp_options INTERFACE -fsanitize=${FSDP_SANITIZE})
  target_compile_definitions(fsdp_options INTERFACE FSDP_SANITIZED=1)
endif()
if(FSDP_CHECKED OR FSDP_SANITIZE)
  target_compile_definitions(fsdp_options INTERFACE FSDP_FILL_FRESH_MEMORY=1)
endif()
find_package(Threads REQUIRED)
target_link_libraries(fsdp_options INTERFACE Threads::Threads)
