// SPDX-License-Identifier: Apache-2.0
// Which device attends: the one place where attention.h meets its implementations.
#include "kernels/attention.h"

#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void attention_forward(Stream& stream, const Attention& a, const void* qkv, void* out, float* lse,
                       Scratch scratch) {
  enqueue_host(stream, [=] { host::attention_forward(a, qkv, out, lse, scratch); });
}

void attention_backward(Stream& stream, const Attention& a, const void* qkv, const void* out,
                        const float* lse, const void* dout, void* dqkv, Scratch scratch) {
  enqueue_host(stream, [=] { host::attention_backward(a, qkv, out, lse, dout, dqkv, scratch); });
}

size_t attention_scratch_bytes(DeviceKind kind, const Attention& shape) {
  check_host(kind);
  return host::attention_scratch_bytes(shape);
}

void rotary(Stream& stream, const Rotary& r, void* qkv) {
  enqueue_host(stream, [=] { host::rotary(r, qkv); });
}

}  // namespace headrace::kernels
