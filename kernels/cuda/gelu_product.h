// SPDX-License-Identifier: Apache-2.0
// Products with gelu as their epilogue, as cuBLASLt offers them. Both answer false, with nothing done, where
// it does not: for other formats than bf16, for addresses or rows that are no multiples of 16 bytes, and for
// shapes that it has no such algorithm for. Used by linear.cpp only.
#pragma once

#include "kernels/cuda/cuda_kernels.h"

namespace headrace::kernels::cuda {

/// z = A B (+ bias), C = gelu(z); z [m, n] with the row stride of C.
[[nodiscard]] bool gelu_product(cudaStream_t, const Gemm&, void* z, Scratch);
/// C = (A B) gelu'(z)
[[nodiscard]] bool gelu_gradient_product(cudaStream_t, const Gemm&, const void* z, Scratch);

}  // namespace headrace::kernels::cuda
