// SPDX-License-Identifier: Apache-2.0
// The products of a linear layer (kernels/gemm.h), the bias gradient, and gelu: an epilogue of the product
// where the library has one, else a pass of its own. Which of the two depends on the shape, the GPU and
// the alignment of addresses (kernels/gemm.h).
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gelu_product.h"
#include "kernels/linear_products.h"

namespace headrace::kernels::cuda {

void linear_forward(cudaStream_t stream, const Linear& l, const void* x, const void* weight, const void* bias,
                    void* y, Scratch scratch) {
  gemm(stream, forward_product(l, x, weight, bias, y), scratch);
}

void linear_backward_input(cudaStream_t stream, const Linear& l, const void* dy, const void* weight, void* dx,
                           Scratch scratch) {
  gemm(stream, backward_input_product(l, dy, weight, dx), scratch);
}

void linear_backward_weight(cudaStream_t stream, const Linear& l, const void* dy, const void* x,
                            float* dweight, float* dbias, Scratch scratch) {
  gemm(stream, backward_weight_product(l, dy, x, dweight), scratch);
  if (dbias) add_column_sums(stream, l.rows, l.out_features, l.dtype, dy, dbias, scratch);
}

void linear_gelu_forward(cudaStream_t stream, const Linear& l, const void* x, const void* weight,
                         const void* bias, void* z, void* y, Scratch scratch) {
  if (gelu_product(stream, forward_product(l, x, weight, bias, y), z, scratch)) return;
  linear_forward(stream, l, x, weight, bias, z, scratch);
  gelu_forward(stream, l.rows * l.out_features, l.dtype, z, y);
}

void linear_gelu_backward_input(cudaStream_t stream, const Linear& l, const void* dy, const void* weight,
                                const void* z, void* dz, Scratch scratch) {
  if (gelu_gradient_product(stream, backward_input_product(l, dy, weight, dz), z, scratch)) return;
  linear_backward_input(stream, l, dy, weight, dz, scratch);
  gelu_backward(stream, l.rows * l.in_features, l.dtype, z, dz, dz);
}

size_t linear_scratch_bytes(const Linear& l) {
  size_t most = column_sums_scratch_bytes(l.rows, l.out_features);
  for (const Gemm& product : {forward_product(l, nullptr, nullptr, nullptr, nullptr),
                              backward_input_product(l, nullptr, nullptr, nullptr),
                              backward_weight_product(l, nullptr, nullptr, nullptr)}) {
    const size_t bytes = gemm_scratch_bytes(product);
    if (bytes > most) most = bytes;
  }
  return most;
}

}  // namespace headrace::kernels::cuda
