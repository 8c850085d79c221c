// SPDX-License-Identifier: Apache-2.0
// Which device normalises: the one place where norm.h meets its implementations.
#include "kernels/norm.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void rms_norm_forward(Stream& stream, const RmsNorm& n, const void* x, const void* weight, void* y,
                      float* rstd) {
  on_device(
      stream, [=] { host::rms_norm_forward(n, x, weight, y, rstd); },
      [&](auto on) { cuda::rms_norm_forward(on, n, x, weight, y, rstd); });
}

void rms_norm_backward(Stream& stream, const RmsNorm& n, const void* x, const void* weight, const float* rstd,
                       const void* dy, const void* residual_dx, void* dx, float* dweight, Scratch scratch) {
  on_device(
      stream, [=] { host::rms_norm_backward(n, x, weight, rstd, dy, residual_dx, dx, dweight, scratch); },
      [&](auto on) {
        cuda::rms_norm_backward(on, n, x, weight, rstd, dy, residual_dx, dx, dweight, scratch);
      });
}

void layer_norm_forward(Stream& stream, const LayerNorm& n, const void* x, const void* weight,
                        const void* bias, void* y, float* mean, float* rstd) {
  on_device(
      stream, [=] { host::layer_norm_forward(n, x, weight, bias, y, mean, rstd); },
      [&](auto on) { cuda::layer_norm_forward(on, n, x, weight, bias, y, mean, rstd); });
}

void layer_norm_backward(Stream& stream, const LayerNorm& n, const void* x, const void* weight,
                         const float* mean, const float* rstd, const void* dy, const void* residual_dx,
                         void* dx, float* dweight, float* dbias, Scratch scratch) {
  on_device(
      stream,
      [=] {
        host::layer_norm_backward(n, x, weight, mean, rstd, dy, residual_dx, dx, dweight, dbias, scratch);
      },
      [&](auto on) {
        cuda::layer_norm_backward(on, n, x, weight, mean, rstd, dy, residual_dx, dx, dweight, dbias, scratch);
      });
}

size_t norm_scratch_bytes(DeviceKind kind, int64_t rows, int64_t cols) {
  return bytes_on_device(
      kind, [&] { return host::norm_scratch_bytes(rows, cols); },
      [&](auto) { return cuda::norm_scratch_bytes(rows, cols); });
}

}  // namespace headrace::kernels
