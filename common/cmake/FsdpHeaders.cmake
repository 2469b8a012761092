# The target check_headers compiles headers by themselves, twice in one file: each must include what
# it needs, and guard itself. Those of the product that have a .cpp of their name are left out, because
# it includes them first (tests/structure holds that) and every build compiles it. check_headers_1 to _3
# compile a third each. (CMake's VERIFY_INTERFACE_HEADER_SETS does a part, and needs a newer CMake than
# some of our systems have.)
function(fsdp_check_headers)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/common/*.h ${PROJECT_SOURCE_DIR}/tasks/*.h ${PROJECT_SOURCE_DIR}/apps/*.h
    ${PROJECT_SOURCE_DIR}/tests/*.h)
  set(third 1)
  foreach(header ${headers})
    string(REGEX REPLACE "[.]h$" ".cpp" twin ${header})
    string(REGEX REPLACE "^tasks/" "solutions/" twin ${twin})
    if(EXISTS ${PROJECT_SOURCE_DIR}/${twin} AND NOT header MATCHES "^tests/")
      continue()
    endif()
    string(REGEX REPLACE "[/.]" "_" name ${header})
    set(source ${PROJECT_BINARY_DIR}/headers/${name}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources_${third} ${source})
    math(EXPR third "${third} % 3 + 1")
  endforeach()
  add_custom_target(check_headers)
  foreach(third 1 2 3)
    set(name check_headers_${third})
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources_${third}})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}
      ${PROJECT_SOURCE_DIR}/common ${PROJECT_SOURCE_DIR}/tasks ${PROJECT_SOURCE_DIR}/apps
      ${PROJECT_SOURCE_DIR}/tests/support/cuda_on_host/include)
    target_compile_options(${name} PRIVATE -O0)  # nothing of it ever runs
    target_compile_definitions(${name} PRIVATE FSDP_HAS_TASK8=1)  # some tests ask
    target_link_libraries(${name} PRIVATE fsdp_parallel tomlplusplus::tomlplusplus fsdp_test_main)
    add_dependencies(check_headers ${name})
  endforeach()
endfunction()
