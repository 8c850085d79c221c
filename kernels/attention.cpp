// SPDX-License-Identifier: Apache-2.0
// Which device attends: the one place where attention.h meets its implementations.
#include "kernels/attention.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void attention_forward(Stream& stream, const Attention& a, const void* qkv, void* out, float* lse,
                       Scratch scratch) {
  on_device(
      stream, [=] { host::attention_forward(a, qkv, out, lse, scratch); },
      [&](auto on) { cuda::attention_forward(on, a, qkv, out, lse, scratch); });
}

void attention_backward(Stream& stream, const Attention& a, const void* qkv, const void* out,
                        const float* lse, const void* dout, void* dqkv, Scratch scratch) {
  on_device(
      stream, [=] { host::attention_backward(a, qkv, out, lse, dout, dqkv, scratch); },
      [&](auto on) { cuda::attention_backward(on, a, qkv, out, lse, dout, dqkv, scratch); });
}

size_t attention_scratch_bytes(DeviceKind kind, const Attention& shape) {
  return bytes_on_device(
      kind, [&] { return host::attention_scratch_bytes(shape); },
      [&](auto) { return cuda::attention_scratch_bytes(shape); });
}

void rotary(Stream& stream, const Rotary& r, void* qkv) {
  on_device(
      stream, [=] { host::rotary(r, qkv); }, [&](auto on) { cuda::rotary(on, r, qkv); });
}

}  // namespace headrace::kernels
