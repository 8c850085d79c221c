# SPDX-License-Identifier: Apache-2.0
# The CUDA toolkit, when it is wanted and whole: libraries, and a compiler that works. Sets HEADRACE_HAVE_CUDA and
# HEADRACE_HAVE_NCCL. What is missing is said, and the build goes on for the CPU.
set(HEADRACE_HAVE_CUDA OFF)
set(HEADRACE_HAVE_NCCL OFF)
if(NOT HEADRACE_CUDA)
  message(STATUS "headrace: CUDA is switched off (HEADRACE_CUDA)")
  return()
endif()
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND)
  message(STATUS "headrace: no CUDA toolkit; building for the CPU")
  return()
endif()
if(NOT TARGET CUDA::cublasLt OR NOT TARGET CUDA::cudart_static)
  message(WARNING "headrace: the CUDA toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_TARGET_DIR} has no cuBLASLt or no "
                  "static runtime; building for the CPU")
  return()
endif()

# Named, not "native", so that a build does not depend on the machine's GPU. One is enough to work with; the preset
# "cuda" has them all.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures that kernels are compiled for" FORCE)
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
if(NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(WARNING "headrace: the CUDA compiler ${CUDAToolkit_NVCC_EXECUTABLE} does not work (why: "
                  "CMakeFiles/CMakeError.log in the build folder); building for the CPU")
  return()
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20) # CMake 3.25 does not know that nvcc 12 has it
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(HEADRACE_HAVE_CUDA ON)

include(HeadraceNccl)
if(TARGET headrace_nccl)
  set(HEADRACE_HAVE_NCCL ON)
endif()
message(STATUS "headrace: CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, NCCL ${HEADRACE_HAVE_NCCL}")
