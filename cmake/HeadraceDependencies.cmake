# SPDX-License-Identifier: Apache-2.0
# Found packages only; nothing is downloaded. scripts/dependencies.sh names the Debian packages.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(TBB REQUIRED)
find_package(dnnl REQUIRED)
if(dnnl_VERSION VERSION_GREATER_EQUAL 3)
  message(FATAL_ERROR "headrace is written for oneDNN 2 (Debian 12's libdnnl-dev); ${dnnl_DIR} has ${dnnl_VERSION}. "
                      "Point CMAKE_PREFIX_PATH at a oneDNN 2.")
endif()
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing>=2.3)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal>=2.30)

# The program only.
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

set(HEADRACE_HAVE_CUDA OFF)
if(HEADRACE_CUDA)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(HEADRACE_HAVE_CUDA ON)
  endif()
endif()
message(STATUS "headrace: CUDA toolkit ${HEADRACE_HAVE_CUDA} ${CUDAToolkit_VERSION}")

if(HEADRACE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(HEADRACE_BUILD_BENCH)
  find_package(benchmark QUIET)
endif()
