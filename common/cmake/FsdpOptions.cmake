# The one place where compiler options are decided.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  else()  # the build type is another project's to choose; without one the library is optimized
    string(APPEND CMAKE_CXX_FLAGS " -O3")
  endif()
endif()
# Debug is for the sanitizers: line numbers in reports, and -O1 because -O0 is five times slower.
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
# Grade is for the loop of a student and for grading: compiled in seconds. A debugger shows the lines of
# all code (-g1 costs the compiler a third less than -g), and the variables of a task's.
set(CMAKE_CXX_FLAGS_GRADE "-O1 -g1")

find_program(FSDP_CCACHE ccache)
if(FSDP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FSDP_CCACHE})
endif()

option(FSDP_WERROR "Warnings are errors (our own CI; never a student's build)" OFF)
option(FSDP_NATIVE "Use all instructions of this machine" ON)
option(FSDP_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FSDP_PROGRAMS "Build the programs, too, and not the library alone" ${PROJECT_IS_TOP_LEVEL})
set(FSDP_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

add_library(fsdp_options INTERFACE)
target_compile_options(fsdp_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # a*b+c must round the same way in a vector body and in its scalar tail (bits never depend
  # on alignment); kernels that want a fused multiply-add say std::fma.
  -ffp-contract=off
  # Messages name files as the reader knows them: tasks/task3_forward/forward.cpp.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees an overlap in `"text" + std::string` (GCC bug 105651), and, where it unrolls for
  # some processors, a write past the four bytes of fmt's fill character.
  target_compile_options(fsdp_options INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # g++ 13 and later take every reference that a function with a temporary argument returns for one
  # into that argument.
  target_compile_options(fsdp_options INTERFACE -Wno-dangling-reference)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_UNITY_BUILD)
  # To g++ every file that is included is a header, whose anonymous namespaces it warns about.
  target_compile_options(fsdp_options INTERFACE -Wno-subobject-linkage)
endif()
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
endif()
# The options of kernels, which are optimized under sanitizers too. Three checks are left out there:
# with them no sum stays in a register, and a training takes a hundred times as long. A null or an
# overflowing pointer is still found when it is used, by the address sanitizer; the use of a
# kernel's local variable after its scope is not.
add_library(fsdp_kernel_options INTERFACE)
if(FSDP_SANITIZE)
  target_compile_options(fsdp_kernel_options INTERFACE -O3)
endif()
if(FSDP_SANITIZE MATCHES undefined)
  target_compile_options(fsdp_kernel_options INTERFACE -fno-sanitize=null,pointer-overflow)
endif()
if(FSDP_SANITIZE MATCHES address)
  target_compile_options(fsdp_kernel_options INTERFACE -fno-sanitize-address-use-after-scope)
endif()
# Always defined, to 0 or 1, so that code can say `if` instead of #ifdef.
if(FSDP_SANITIZE)
  set(sanitized 1)
else()
  set(sanitized 0)
endif()
target_compile_definitions(fsdp_options INTERFACE FSDP_SANITIZED=${sanitized})
find_package(Threads REQUIRED)

# What a program over the library must be compiled with, too, wherever it is built. Headers have
# functions that round (base/fixed_formulas.h, base/philox_block.h), of which a program keeps one copy:
# where its own were fused, those of the library would be as well, and their bits would change. So
# -ffp-contract=off is handed on. Warnings and -march=native are not: no type in a header depends on
# the processor's instructions, and headers that do are not installed.
add_library(fsdp_use INTERFACE)
target_compile_features(fsdp_use INTERFACE cxx_std_20)
target_compile_options(fsdp_use INTERFACE -ffp-contract=off)
target_link_libraries(fsdp_use INTERFACE Threads::Threads)
if(FSDP_SANITIZE)
  target_link_options(fsdp_use INTERFACE -fsanitize=${FSDP_SANITIZE})
endif()

# fsdp_compile_with_options(NAME): the options are for a library and, in our own build, for all that
# uses it.
function(fsdp_compile_with_options name)
  if(PROJECT_IS_TOP_LEVEL)
    target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:fsdp_options>)
  else()
    target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:fsdp_options>)
  endif()
  target_link_libraries(${name} PUBLIC fsdp_use)
endfunction()
