# SPDX-License-Identifier: Apache-2.0
# Install and export: find_package(headrace) gives headrace::headrace, pkg-config gives headrace, and the program goes
# to bin. What is above the engine (model, data, training) is the program's own and is not installed.
if(NOT TARGET headrace_engine)
  return()
endif()
include(CMakePackageConfigHelpers)

# In link order, users first.
set(installed_modules engine optim zero swap comm device kernels cpu_adam nvme base)
set(installed_targets)
set(pc_libs)
foreach(module ${installed_modules})
  list(APPEND installed_targets headrace_${module})
  string(APPEND pc_libs " -lheadrace_${module}")
endforeach()

add_library(headrace_library INTERFACE)
add_library(headrace::headrace ALIAS headrace_library)
set_target_properties(headrace_library PROPERTIES EXPORT_NAME headrace)
target_link_libraries(headrace_library INTERFACE headrace_engine headrace_cpu_adam headrace_nvme headrace_base)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
install(TARGETS headrace_library ${installed_targets} EXPORT headraceTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/headrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT headraceTargets NAMESPACE headrace:: DESTINATION ${package_dir})
configure_package_config_file(cmake/headraceConfig.cmake.in ${PROJECT_BINARY_DIR}/headraceConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/headraceConfig.cmake ${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
  cmake/HeadraceNccl.cmake
  DESTINATION ${package_dir})

# Only archives are installed, so what they need stands in Requires and Libs: plain `pkg-config --libs` is enough.
# Relative to the file itself, so that an install can be moved.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_cuda)
if(HEADRACE_HAVE_CUDA)
  set(pc_cuda "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -ldl")
endif()
if(HEADRACE_HAVE_NCCL)
  string(PREPEND pc_cuda "-Wl,--as-needed ${HEADRACE_NCCL_LIBRARY} ")
endif()
configure_file(cmake/headrace.pc.in ${PROJECT_BINARY_DIR}/headrace.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/headrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET headrace)
  install(TARGETS headrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
