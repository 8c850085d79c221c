// SPDX-License-Identifier: Apache-2.0
// Which device multiplies: the one place where gemm.h meets its implementations.
#include "kernels/gemm.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void gemm(Stream& stream, const Gemm& g, Scratch scratch) {
  on_device(
      stream, [g, scratch] { host::gemm(g, scratch); }, [&](auto on) { cuda::gemm(on, g, scratch); });
}

size_t gemm_scratch_bytes(DeviceKind kind, const Gemm& shape) {
  return bytes_on_device(
      kind, [&] { return host::gemm_scratch_bytes(shape); },
      [&](auto) { return cuda::gemm_scratch_bytes(shape); });
}

void linear_forward(Stream& stream, const Linear& l, const void* x, const void* weight, const void* bias,
                    void* y, Scratch scratch) {
  on_device(
      stream, [=] { host::linear_forward(l, x, weight, bias, y, scratch); },
      [&](auto on) { cuda::linear_forward(on, l, x, weight, bias, y, scratch); });
}

void linear_backward_input(Stream& stream, const Linear& l, const void* dy, const void* weight, void* dx,
                           Scratch scratch) {
  on_device(
      stream, [=] { host::linear_backward_input(l, dy, weight, dx, scratch); },
      [&](auto on) { cuda::linear_backward_input(on, l, dy, weight, dx, scratch); });
}

void linear_backward_weight(Stream& stream, const Linear& l, const void* dy, const void* x, float* dweight,
                            float* dbias, Scratch scratch) {
  on_device(
      stream, [=] { host::linear_backward_weight(l, dy, x, dweight, dbias, scratch); },
      [&](auto on) { cuda::linear_backward_weight(on, l, dy, x, dweight, dbias, scratch); });
}

void linear_gelu_forward(Stream& stream, const Linear& l, const void* x, const void* weight, const void* bias,
                         void* z, void* y, Scratch scratch) {
  on_device(
      stream, [=] { host::linear_gelu_forward(l, x, weight, bias, z, y, scratch); },
      [&](auto on) { cuda::linear_gelu_forward(on, l, x, weight, bias, z, y, scratch); });
}

void linear_gelu_backward_input(Stream& stream, const Linear& l, const void* dy, const void* weight,
                                const void* z, void* dz, Scratch scratch) {
  on_device(
      stream, [=] { host::linear_gelu_backward_input(l, dy, weight, z, dz, scratch); },
      [&](auto on) { cuda::linear_gelu_backward_input(on, l, dy, weight, z, dz, scratch); });
}

size_t linear_scratch_bytes(DeviceKind kind, const Linear& shape) {
  return bytes_on_device(
      kind, [&] { return host::linear_scratch_bytes(shape); },
      [&](auto) { return cuda::linear_scratch_bytes(shape); });
}

}  // namespace headrace::kernels
