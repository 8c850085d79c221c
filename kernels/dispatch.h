// SPDX-License-Identifier: Apache-2.0
// How a kernel reaches its device: work on a host stream is a task that calls the synchronous function of
// kernels/host/host_kernels.h. Used by the dispatch files kernels/*.cpp only.
#pragma once

#include <utility>

#include "headrace/error.h"
#include "headrace/stream.h"

namespace headrace::kernels {

inline void check_host(DeviceKind kind) {
  HEADRACE_CHECK(kind == DeviceKind::host, "this build has kernels for the host device only");
}

template <class F>
void enqueue_host(Stream& stream, F&& work) {
  check_host(stream.kind());
  stream.enqueue(Task(std::forward<F>(work)));
}

}  // namespace headrace::kernels
