# The library for programs elsewhere (docs/own_program.md): add_subdirectory, or cmake --install and
# find_package(unshard). Both give them unshard::unshard, which is all that a program of apps/examples
# is linked with, and its parts: unshard::tensor, unshard::task7 …
add_library(fsdp_unshard INTERFACE)
target_link_libraries(fsdp_unshard INTERFACE fsdp_task8 fsdp_program)

set(fsdp_installed fsdp_use fsdp_base fsdp_device fsdp_tensor fsdp_autograd fsdp_comm fsdp_nn fsdp_io
  fsdp_optim fsdp_parallel fsdp_program fsdp_unshard)
foreach(task ${FSDP_TASKS})
  string(SUBSTRING ${task} 0 1 number)
  list(APPEND fsdp_installed fsdp_task${number})
endforeach()
foreach(target ${fsdp_installed})
  string(REPLACE fsdp_ "" name ${target})
  add_library(unshard::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
endforeach()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
if(FSDP_CUDA)
  install(CODE "message(FATAL_ERROR \"A build with FSDP_CUDA cannot be installed. Use \
add_subdirectory, which docs/own_program.md shows\")")
  return()
endif()

# All headers in one folder, as #include names them. Not those of kernels, which depend on the
# instructions that the compiler may use.
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/unshard)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/unshard)
install(DIRECTORY common/ tasks/ DESTINATION ${headers} FILES_MATCHING PATTERN *.h
  PATTERN cuda EXCLUDE PATTERN cmake EXCLUDE PATTERN scripts EXCLUDE PATTERN warm_up EXCLUDE
  REGEX "/tensor/(simd|register_tile|column_sums|tile_.*|product.*|attention_tiles)[.]h$" EXCLUDE)
install(FILES common/device/cuda/stream.h DESTINATION ${headers}/device/cuda)  # it needs no CUDA
install(DIRECTORY apps/program DESTINATION ${headers} FILES_MATCHING PATTERN *.h
  PATTERN command_line EXCLUDE)
install(TARGETS ${fsdp_installed} EXPORT unshard ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${headers})
install(EXPORT unshard NAMESPACE unshard:: DESTINATION ${package} FILE unshard-targets.cmake)
configure_package_config_file(common/cmake/unshard-config.cmake.in unshard-config.cmake
  INSTALL_DESTINATION ${package})
# Before 1.0, any minor version may change an interface.
write_basic_package_version_file(unshard-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/unshard-config.cmake
  ${PROJECT_BINARY_DIR}/unshard-config-version.cmake DESTINATION ${package})
