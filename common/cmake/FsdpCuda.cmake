# CUDA (docs/gpu.md). A program has it if it is linked with fsdp_cuda or with fsdp_cuda_on_host, which
# bring accelerator(), device_kernels() and make_device_plane() in place of the library's own, which
# stand for "none". All other programs consist of the same objects.
#
#   FSDP_CUDA=card   every program has CUDA, compiled by nvcc: preset cuda
#   FSDP_CUDA=host   every program has the stand-in for a card (docs/cuda_stand_in.md): cuda-host
#   otherwise        the tests of the stand-in have it
set(FSDP_CUDA "" CACHE STRING "What programs are linked with: card, host (the stand-in), or nothing")
if(NOT FSDP_CUDA MATCHES "^(|card|host)$")
  message(FATAL_ERROR "FSDP_CUDA=${FSDP_CUDA}: there are card and host (the stand-in), or nothing")
endif()

set(fsdp_stand_in ${PROJECT_SOURCE_DIR}/tests/support/cuda_on_host)
file(GLOB fsdp_cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/*/cuda/*.cu)
file(GLOB fsdp_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/*/cuda/*.cpp)
set(fsdp_cuda_entries ${PROJECT_SOURCE_DIR}/common/device/cuda/accelerator.cpp
  ${PROJECT_SOURCE_DIR}/common/comm/cuda/device_plane.cpp
  ${PROJECT_SOURCE_DIR}/common/tensor/cuda/kernels.cpp)
list(REMOVE_ITEM fsdp_cuda_sources ${fsdp_cuda_entries})

# fsdp_cuda_library(NAME RUNTIME KERNELS): what is compiled by the host's compiler, over a library that
# has CUDA's functions and headers, and over a library of kernels.
function(fsdp_cuda_library name runtime kernels)
  # Objects, which are linked whether or not something asks for them.
  add_library(${name}_entries OBJECT ${fsdp_cuda_entries})
  target_link_libraries(${name}_entries PRIVATE ${runtime} fsdp_comm)
  add_library(${name} STATIC ${fsdp_cuda_sources})
  target_sources(${name} INTERFACE $<TARGET_OBJECTS:${name}_entries>)
  target_link_libraries(${name} PUBLIC ${runtime} fsdp_comm ${kernels})
  target_link_libraries(${kernels} INTERFACE ${name})
  set_target_properties(${name} ${name}_entries PROPERTIES UNITY_BUILD OFF EXCLUDE_FROM_ALL ON)
endfunction()

# fsdp_kernels_on_host(NAME FILE…): kernels and their launchers, compiled as C++. -fsanitize=thread makes
# the compiler call a function before each load and store. The stand-in defines it and checks each
# access exactly, so the address sanitizer is left out here, and so are two checks of UBSan that would
# end the process first.
function(fsdp_kernels_on_host name)
  add_library(${name} STATIC ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-O1;-fno-sanitize=address,alignment,object-size;-fsanitize=thread")
  target_link_libraries(${name} PUBLIC cuda_on_host)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF EXCLUDE_FROM_ALL ON)
  # A compiler may copy or clear a struct by calling one of these. The thread sanitizer's runtime would
  # intercept that call. The stand-in has these functions under the names that newer versions of Clang use.
  add_custom_command(TARGET ${name} POST_BUILD VERBATIM COMMAND ${CMAKE_OBJCOPY}
    --redefine-sym memcpy=__tsan_memcpy --redefine-sym memmove=__tsan_memmove
    --redefine-sym memset=__tsan_memset $<TARGET_FILE:${name}>)
endfunction()

# The stand-in, and the library on it. It takes the place of the thread sanitizer's runtime: both cannot
# be in one program.
if(EXISTS ${fsdp_stand_in} AND NOT FSDP_SANITIZE MATCHES thread)
  file(GLOB sources CONFIGURE_DEPENDS ${fsdp_stand_in}/*.cpp)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sources ${fsdp_stand_in}/switch/x86_64.cpp)
  else()
    list(APPEND sources ${fsdp_stand_in}/switch/portable.cpp)
  endif()
  add_library(cuda_on_host STATIC ${sources})
  target_include_directories(cuda_on_host BEFORE PUBLIC ${fsdp_stand_in}/include
    ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(cuda_on_host PUBLIC fsdp_base)
  target_compile_options(cuda_on_host PRIVATE -O1)
  # Built for what is linked with it: in a student kit, only with DEVICE=cuda.
  set_target_properties(cuda_on_host PROPERTIES UNITY_BUILD OFF EXCLUDE_FROM_ALL ON)
  if(NOT FSDP_CUDA STREQUAL "card")  # there, the same files are for nvcc
    fsdp_kernels_on_host(fsdp_cuda_kernels_on_host ${fsdp_cuda_kernels})
    # Clang, when it optimizes, loads what a condition excludes, and drops it again.
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
      set_property(SOURCE ${fsdp_cuda_kernels} APPEND PROPERTY COMPILE_OPTIONS -O0)
    endif()
    target_include_directories(fsdp_cuda_kernels_on_host PUBLIC ${PROJECT_SOURCE_DIR}/common)
    fsdp_cuda_library(fsdp_cuda_on_host cuda_on_host fsdp_cuda_kernels_on_host)
  endif()
endif()

# -fmad=false: the compiler must not fuse a multiplication with an addition on its own, for the bits
# would differ from the CPU's. make cuda-kernels reads this line, and looks what came of it.
set(FSDP_NVCC_OPTIONS -fmad=false -Xcompiler -Wall,-Wextra)

# The library for a card.
if(FSDP_CUDA STREQUAL "card")
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "FSDP_CUDA=card needs nvcc: install the CUDA toolkit, or put nvcc into PATH. "
      "Without a card, the preset cuda-host runs the same code")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-real;86-real;89-real;90-real;100-real;120" CACHE STRING "Cards; the last is kept as PTX too")
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
    if(NOT known MATCHES "compute_100")  # before CUDA 12.8
      set_property(CACHE CMAKE_CUDA_ARCHITECTURES PROPERTY VALUE "80-real;86-real;89-real;90")
    endif()
  endif()
  if(FSDP_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${FSDP_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that newer compilers have it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  # nvcc defines no macro by which a source could see these options. They would change the bits.
  foreach(options "${CMAKE_CUDA_FLAGS}" "${CMAKE_CUDA_FLAGS_RELEASE}" "$ENV{NVCC_PREPEND_FLAGS}"
      "$ENV{NVCC_APPEND_FLAGS}")
    if(options MATCHES "use_fast_math|(ftz|fmad)[= ]+true|prec-(div|sqrt)[= ]+false")
      message(FATAL_ERROR "nvcc gets '${options}', from CMAKE_CUDA_FLAGS, CUDAFLAGS, "
        "NVCC_PREPEND_FLAGS or NVCC_APPEND_FLAGS. Leave '${CMAKE_MATCH_0}' out: the kernels must give the CPU's bits")
    endif()
  endforeach()
  find_package(CUDAToolkit REQUIRED)
  find_path(FSDP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(FSDP_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  add_library(fsdp_cuda_runtime INTERFACE)
  target_include_directories(fsdp_cuda_runtime SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS}
    ${FSDP_NCCL_INCLUDE})
  target_link_libraries(fsdp_cuda_runtime INTERFACE CUDA::cudart CUDA::cublasLt ${FSDP_NCCL_LIBRARY})
  add_library(fsdp_cuda_kernels STATIC ${fsdp_cuda_kernels})
  target_include_directories(fsdp_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR}/common)
  target_compile_options(fsdp_cuda_kernels PRIVATE ${FSDP_NVCC_OPTIONS}
    $<$<BOOL:${FSDP_WERROR}>:-Werror=all-warnings>)
  set_target_properties(fsdp_cuda_kernels PROPERTIES UNITY_BUILD OFF CUDA_STANDARD 20)
  fsdp_cuda_library(fsdp_cuda fsdp_cuda_runtime fsdp_cuda_kernels)
endif()

# Programs get it from the library that all of them are linked with.
if(FSDP_CUDA STREQUAL "card")
  set(library fsdp_cuda)
elseif(FSDP_CUDA STREQUAL "host" AND TARGET fsdp_cuda_on_host)
  set(library fsdp_cuda_on_host)
elseif(FSDP_CUDA)
  message(FATAL_ERROR "FSDP_CUDA=${FSDP_CUDA}: the stand-in is not in this tree, or the thread "
    "sanitizer is in its place")
endif()
if(FSDP_CUDA)
  target_link_libraries(fsdp_tensor INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${library}>)
endif()
