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

include(HeadraceCuda)

if(HEADRACE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(Boost 1.74 REQUIRED COMPONENTS context)
  include(GoogleTest)
endif()
if(HEADRACE_BUILD_BENCH)
  find_package(benchmark QUIET)
endif()
