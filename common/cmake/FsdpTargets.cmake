# fsdp_library(NAME DEPENDS lib… [OPTIONS option…]): one target a folder, all its .cpp files, headers
# found from the root, compiled with these options in addition.
function(fsdp_library name)
  cmake_parse_arguments(ARG "" "ROOT" "DEPENDS;OPTIONS" ${ARGN})
  if(NOT ARG_ROOT)
    set(ARG_ROOT ${PROJECT_SOURCE_DIR}/common)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  if(sources)
    add_library(${name} STATIC ${sources} ${headers})
    target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${ARG_ROOT}>)
    fsdp_compile_with_options(${name})
    target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
    target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
    fsdp_precompile_headers(${name} "${ARG_OPTIONS}")
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${ARG_ROOT})
    target_link_libraries(${name} INTERFACE fsdp_options ${ARG_DEPENDS})
  endif()
endfunction()

# fsdp_precompile_headers(NAME OPTIONS): the standard headers, which otherwise take half of the time of
# most files of the library. All targets without options of their own share one precompiled header. In
# the preset grade, and under sanitizers, where no file is compiled twice: in release a file must include
# what it uses, and ccache does better, as it does in grade.
set(fsdp_precompiled <algorithm> <array> <cstdint> <filesystem> <functional> <map> <memory> <mutex>
  <optional> <string> <string_view> <thread> <utility> <vector> <fmt/format.h>)
function(fsdp_precompile_headers name options)
  if(NOT CMAKE_BUILD_TYPE STREQUAL Debug
      AND (NOT CMAKE_BUILD_TYPE STREQUAL Grade OR CMAKE_CXX_COMPILER_LAUNCHER))
    return()
  endif()
  if(fsdp_not_optimized AND NOT options)
    target_precompile_headers(${name} REUSE_FROM ${fsdp_not_optimized})
  elseif(TARGET fsdp_base AND NOT name STREQUAL fsdp_base AND NOT options)
    target_precompile_headers(${name} REUSE_FROM fsdp_base)
  else()
    target_precompile_headers(${name} PRIVATE ${fsdp_precompiled})
  endif()
endfunction()

# fsdp_do_not_optimize(NAME [HEADER…]): for what is added after it in this folder and below, under
# sanitizers. Optimizing takes half of the time there, and what runs for moments gains nothing by it.
# NAME becomes a target with another precompiled header, of these headers as well.
macro(fsdp_do_not_optimize name)
  if(CMAKE_BUILD_TYPE STREQUAL Debug)
    add_compile_options(-O0)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE fsdp_options fmt::fmt)
    target_precompile_headers(${name} PRIVATE ${fsdp_precompiled} ${ARGN})
    set(fsdp_not_optimized ${name})
  endif()
endmacro()

# fsdp_compile_together(NAME): several files of a target are one for the compiler, which takes a third
# of the time. In the presets release and grade; the others do so everywhere. Never the library in
# grade: the audit of submissions goes by the names of its objects.
function(fsdp_compile_together name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # To g++ every file that is included is a header, whose anonymous namespaces it warns about.
    target_compile_options(${name} PRIVATE -Wno-subobject-linkage)
  endif()
  if(fsdp_not_optimized)
    target_precompile_headers(${name} REUSE_FROM ${fsdp_not_optimized})
  endif()
endfunction()

# fsdp_compile_alone(FILE…): for the files that students save, whose every build they wait for, whose
# every name must be their own, and whose variables a debugger shows. Also with MPI, whose tests judge
# other code in their place.
function(fsdp_compile_alone)
  if(CMAKE_BUILD_TYPE STREQUAL Grade OR FSDP_MPI)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -g)
  endif()
endfunction()

# fsdp_test(NAME LABELS … DEPENDS lib… SOURCES file… [ONLY spec]): a Catch2 program, one ctest entry a
# test case, of those that fit the spec. The target tests_<label> builds the programs of a label.
function(fsdp_test name)
  cmake_parse_arguments(ARG "" "ONLY" "DEPENDS;SOURCES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} fsdp_test_main)
  # Assertions expand to much code that runs once: optimizing it costs half the build time.
  target_compile_options(${name} PRIVATE -O1)
  fsdp_compile_together(${name})
  if(ARG_ONLY)
    set(spec TEST_SPEC ${ARG_ONLY})
  endif()
  fsdp_discover_tests(${name} "${ARG_LABELS}")
endfunction()

# fsdp_discover_tests(NAME LABELS [PROPERTY VALUE]…): one ctest entry for each test case of a Catch2
# program.
function(fsdp_discover_tests name labels)
  # Catch2 2 calls a name that matches nothing a success unless told otherwise; 3 never does.
  if(Catch2_VERSION VERSION_LESS 3)
    set(strict EXTRA_ARGS --warn NoTests)
  endif()
  # The timeout is for endless loops only: no test comes near it, sanitizers included.
  catch_discover_tests(${name} ${spec} TEST_PREFIX "${name}: " ${strict}
    PROPERTIES LABELS "${labels}" TIMEOUT 300 ${ARGN})
  foreach(label ${labels})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()
