// SPDX-License-Identifier: Apache-2.0
// Which device does element by element work: the one place where pointwise.h meets its implementations.
#include "kernels/pointwise.h"

#include "kernels/dispatch.h"
#include "kernels/host/host_kernels.h"

namespace headrace::kernels {

void swiglu_forward(Stream& stream, int64_t rows, int64_t cols, DType dtype, const void* gate_up, void* y) {
  enqueue_host(stream, [=] { host::swiglu_forward(rows, cols, dtype, gate_up, y); });
}

void swiglu_backward(Stream& stream, int64_t rows, int64_t cols, DType dtype, const void* gate_up,
                     const void* dy, void* dgate_up) {
  enqueue_host(stream, [=] { host::swiglu_backward(rows, cols, dtype, gate_up, dy, dgate_up); });
}

void gelu_forward(Stream& stream, int64_t elems, DType dtype, const void* x, void* y) {
  enqueue_host(stream, [=] { host::gelu_forward(elems, dtype, x, y); });
}

void gelu_backward(Stream& stream, int64_t elems, DType dtype, const void* x, const void* dy, void* dx) {
  enqueue_host(stream, [=] { host::gelu_backward(elems, dtype, x, dy, dx); });
}

void add(Stream& stream, int64_t elems, DType dtype, const void* a, const void* b, void* y) {
  enqueue_host(stream, [=] { host::add(elems, dtype, a, b, y); });
}

void embedding_forward(Stream& stream, const Embedding& e, const int32_t* tokens, const void* table,
                       const void* positions, void* y) {
  enqueue_host(stream, [=] { host::embedding_forward(e, tokens, table, positions, y); });
}

void embedding_backward(Stream& stream, const Embedding& e, const int32_t* tokens, const void* dy,
                        float* dtable, float* dpositions) {
  enqueue_host(stream, [=] { host::embedding_backward(e, tokens, dy, dtable, dpositions); });
}

void cross_entropy(Stream& stream, const CrossEntropy& c, const float* logits, const int32_t* labels,
                   double* loss_sum, void* dlogits) {
  enqueue_host(stream, [=] { host::cross_entropy(c, logits, labels, loss_sum, dlogits); });
}

void cast(Stream& stream, int64_t elems, DType from, const void* x, DType to, void* y) {
  enqueue_host(stream, [=] { host::cast(elems, from, x, to, y); });
}

void round_and_sum_squares(Stream& stream, int64_t elems, const float* x, DType to, void* y,
                           double* tile_sums) {
  enqueue_host(stream, [=] { host::round_and_sum_squares(elems, x, to, y, tile_sums); });
}

}  // namespace headrace::kernels
