// SPDX-License-Identifier: Apache-2.0
// How a kernel reaches its device: on a host stream it is a task that calls the synchronous function of
// kernels/host/host_kernels.h, on a CUDA stream a launch by kernels/cuda/cuda_kernels.h. A build without the
// CUDA toolkit never names the second. Used by the dispatch files kernels/*.cpp only.
#pragma once

#include <utility>

#include "headrace/error.h"
#include "headrace/stream.h"
#include "kernels/cuda/cuda_kernels.h"

namespace headrace::kernels {

#ifdef HEADRACE_HAVE_CUDA
constexpr bool kHaveCuda = true;
#else
constexpr bool kHaveCuda = false;
#endif

/// `host` is a task; `cuda` is a generic lambda that takes the CUDA stream.
template <class Host, class Cuda>
void on_device(Stream& stream, Host&& host, [[maybe_unused]] Cuda&& cuda) {
  if (stream.kind() == DeviceKind::host) return stream.enqueue(Task(std::forward<Host>(host)));
  HEADRACE_CHECK(kHaveCuda, "this build has kernels for the host device only");
  if constexpr (kHaveCuda) cuda(static_cast<cudaStream_t>(stream.native_handle()));
}

/// The answer of one of the *_scratch_bytes functions: `cuda` is a generic lambda of one unused argument.
template <class Host, class Cuda>
size_t bytes_on_device(DeviceKind kind, Host&& host, [[maybe_unused]] Cuda&& cuda) {
  if (kind == DeviceKind::host) return host();
  HEADRACE_CHECK(kHaveCuda, "this build has kernels for the host device only");
  if constexpr (kHaveCuda) {
    return cuda(0);
  } else {
    return 0;
  }
}

}  // namespace headrace::kernels
