# SPDX-License-Identifier: Apache-2.0
# The imported target headrace_nccl, when NCCL is found beside the CUDA toolkit or where the system has it. Also
# installed: the archives name this target.
if(NOT TARGET headrace_nccl)
  find_path(HEADRACE_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(HEADRACE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(HEADRACE_NCCL_INCLUDE_DIR HEADRACE_NCCL_LIBRARY)
  if(HEADRACE_NCCL_INCLUDE_DIR AND HEADRACE_NCCL_LIBRARY)
    add_library(headrace_nccl UNKNOWN IMPORTED GLOBAL)
    set_target_properties(headrace_nccl PROPERTIES IMPORTED_LOCATION ${HEADRACE_NCCL_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${HEADRACE_NCCL_INCLUDE_DIR})
  endif()
endif()
