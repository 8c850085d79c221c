// SPDX-License-Identifier: Apache-2.0
// Which device multiplies: the one place where gemm.h meets its implementations.
#include "kernels/gemm.h"

#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void gemm(Stream& stream, const Gemm& g, Scratch scratch) {
  enqueue_host(stream, [g, scratch] { host::gemm(g, scratch); });
}

size_t gemm_scratch_bytes(DeviceKind kind, const Gemm& shape) {
  check_host(kind);
  return host::gemm_scratch_bytes(shape);
}

void linear_forward(Stream& stream, const Linear& l, const void* x, const void* weight, const void* bias,
                    void* y, Scratch scratch) {
  enqueue_host(stream, [=] { host::linear_forward(l, x, weight, bias, y, scratch); });
}

void linear_backward_input(Stream& stream, const Linear& l, const void* dy, const void* weight, void* dx,
                           Scratch scratch) {
  enqueue_host(stream, [=] { host::linear_backward_input(l, dy, weight, dx, scratch); });
}

void linear_backward_weight(Stream& stream, const Linear& l, const void* dy, const void* x, float* dweight,
                            float* dbias, Scratch scratch) {
  enqueue_host(stream, [=] { host::linear_backward_weight(l, dy, x, dweight, dbias, scratch); });
}

size_t linear_scratch_bytes(DeviceKind kind, const Linear& shape) {
  check_host(kind);
  return host::linear_scratch_bytes(shape);
}

}  // namespace headrace::kernels
