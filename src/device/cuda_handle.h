// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA's streams, events and pools: one line each. Used by the cuda device only.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>

#include "kernels/cuda/check.h"

namespace headrace {

template <class Handle, cudaError_t (*destroy)(Handle)>
struct CudaDestroy {
  using pointer = Handle;
  void operator()(Handle handle) const { (void)destroy(handle); }  // a destructor has nobody to tell
};
template <class Handle, cudaError_t (*destroy)(Handle)>
using CudaOwner = std::unique_ptr<std::remove_pointer_t<Handle>, CudaDestroy<Handle, destroy>>;

using CudaStreamHandle = CudaOwner<cudaStream_t, cudaStreamDestroy>;
using CudaEventHandle = CudaOwner<cudaEvent_t, cudaEventDestroy>;
using CudaPoolHandle = CudaOwner<cudaMemPool_t, cudaMemPoolDestroy>;

/// Not ordered with the legacy default stream.
inline CudaStreamHandle make_cuda_stream() {
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creation of a stream");
  return CudaStreamHandle(stream);
}

/// `flags`: cudaEventDisableTiming, or cudaEventDefault for one that remembers when it was reached.
inline CudaEventHandle make_cuda_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  cuda::check(cudaEventCreateWithFlags(&event, flags), "creation of an event");
  return CudaEventHandle(event);
}

}  // namespace headrace
