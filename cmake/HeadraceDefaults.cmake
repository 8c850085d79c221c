# SPDX-License-Identifier: Apache-2.0
# Build type, language level and warnings: flags live on one INTERFACE target.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# A CUDA toolkit is rarely where the loader looks by itself.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
# The program stands at the top of the build folder: build/headrace.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

include(GNUInstallDirs)

add_library(headrace_flags INTERFACE)
# The arithmetic must be what the source says on every instruction set: no silent contraction to fused operations.
target_compile_options(headrace_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wconversion;-Wno-missing-field-initializers;-ffp-contract=off>")
# nvcc generates host code of its own, for which stricter warnings mean nothing. -lineinfo costs nothing at run time and
# gives profilers and compute-sanitizer the lines of kernels.
target_compile_options(headrace_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo;-Werror=cross-execution-space-call;-Xcompiler=-Wall,-ffp-contract=off>")
# cuBLASLt and NCCL are large: a program that calls neither does not load them.
target_link_options(headrace_flags INTERFACE -Wl,--as-needed)
if(HEADRACE_SANITIZE)
  target_compile_options(headrace_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${HEADRACE_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>")
  target_link_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE})
endif()
