// SPDX-License-Identifier: Apache-2.0
// The library that multiplies, as gemm_blocks.cpp sees it. Implemented by gemm.cpp, the only file that names
// oneDNN.
#pragma once

#include "kernels/gemm.h"

namespace headrace::kernels::host {

/// Whether this CPU multiplies bf16 faster than fp32 (avx512_bf16 or AMX).
bool native_bf16();
/// The product as it is; m, n and k are positive. A result in bf16 needs operands in bf16.
void matmul(const Gemm& g, Scratch scratch);
/// Depends on everything but the addresses; `bias` counts as given or not.
size_t matmul_scratch_bytes(const Gemm& shape);

}  // namespace headrace::kernels::host
