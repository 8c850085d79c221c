// SPDX-License-Identifier: Apache-2.0
// Which device does element by element work: the one place where pointwise.h meets its implementations.
#include "kernels/pointwise.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void swiglu_forward(Stream& stream, int64_t rows, int64_t cols, DType dtype, const void* gate_up, void* y) {
  on_device(
      stream, [=] { host::swiglu_forward(rows, cols, dtype, gate_up, y); },
      [&](auto on) { cuda::swiglu_forward(on, rows, cols, dtype, gate_up, y); });
}

void swiglu_backward(Stream& stream, int64_t rows, int64_t cols, DType dtype, const void* gate_up,
                     const void* dy, void* dgate_up) {
  on_device(
      stream, [=] { host::swiglu_backward(rows, cols, dtype, gate_up, dy, dgate_up); },
      [&](auto on) { cuda::swiglu_backward(on, rows, cols, dtype, gate_up, dy, dgate_up); });
}

void gelu_forward(Stream& stream, int64_t elems, DType dtype, const void* x, void* y) {
  on_device(
      stream, [=] { host::gelu_forward(elems, dtype, x, y); },
      [&](auto on) { cuda::gelu_forward(on, elems, dtype, x, y); });
}

void gelu_backward(Stream& stream, int64_t elems, DType dtype, const void* x, const void* dy, void* dx) {
  on_device(
      stream, [=] { host::gelu_backward(elems, dtype, x, dy, dx); },
      [&](auto on) { cuda::gelu_backward(on, elems, dtype, x, dy, dx); });
}

void add(Stream& stream, int64_t elems, DType dtype, const void* a, const void* b, void* y) {
  on_device(
      stream, [=] { host::add(elems, dtype, a, b, y); },
      [&](auto on) { cuda::add(on, elems, dtype, a, b, y); });
}

void embedding_forward(Stream& stream, const Embedding& e, const int32_t* tokens, const void* table,
                       const void* positions, void* y) {
  on_device(
      stream, [=] { host::embedding_forward(e, tokens, table, positions, y); },
      [&](auto on) { cuda::embedding_forward(on, e, tokens, table, positions, y); });
}

void embedding_backward(Stream& stream, const Embedding& e, const int32_t* tokens, const void* dy,
                        float* dtable, float* dpositions) {
  on_device(
      stream, [=] { host::embedding_backward(e, tokens, dy, dtable, dpositions); },
      [&](auto on) { cuda::embedding_backward(on, e, tokens, dy, dtable, dpositions); });
}

void cross_entropy(Stream& stream, const CrossEntropy& c, const float* logits, const int32_t* labels,
                   double* loss_sum, void* dlogits, Scratch scratch) {
  on_device(
      stream, [=] { host::cross_entropy(c, logits, labels, loss_sum, dlogits); },
      [&](auto on) { cuda::cross_entropy(on, c, logits, labels, loss_sum, dlogits, scratch); });
}

size_t cross_entropy_scratch_bytes(DeviceKind kind, int64_t rows) {
  return bytes_on_device(
      kind, [] { return size_t(0); }, [&](auto) { return cuda::cross_entropy_scratch_bytes(rows); });
}

void cast(Stream& stream, int64_t elems, DType from, const void* x, DType to, void* y) {
  on_device(
      stream, [=] { host::cast(elems, from, x, to, y); },
      [&](auto on) { cuda::cast(on, elems, from, x, to, y); });
}

void round_and_sum_squares(Stream& stream, int64_t elems, const float* x, DType to, void* y,
                           double* tile_sums) {
  on_device(
      stream, [=] { host::round_and_sum_squares(elems, x, to, y, tile_sums); },
      [&](auto on) { cuda::round_and_sum_squares(on, elems, x, to, y, tile_sums); });
}

}  // namespace headrace::kernels
