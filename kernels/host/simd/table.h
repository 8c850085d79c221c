// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set. Included by isa_*.cpp after HEADRACE_ISA and HEADRACE_LANES are defined.
#pragma once

#include "kernels/host/simd/attention.h"
#include "kernels/host/simd/cross_entropy.h"
#include "kernels/host/simd/norm.h"
#include "kernels/host/simd/pointwise.h"

namespace headrace::kernels::host::HEADRACE_ISA {

// In the order of DType: f32, bf16.
const IsaKernels kKernels = {
    .swiglu_forward = {swiglu_forward<float>, swiglu_forward<bf16>},
    .swiglu_backward = {swiglu_backward<float>, swiglu_backward<bf16>},
    .gelu_forward = {gelu_forward<float>, gelu_forward<bf16>},
    .gelu_backward = {gelu_backward<float>, gelu_backward<bf16>},
    .add = {add<float>, add<bf16>},
    .accumulate = {accumulate<float>, accumulate<bf16>},
    .cast = {{cast<float, float>, cast<float, bf16>}, {cast<bf16, float>, cast<bf16, bf16>}},
    .round_and_sum_squares = {round_and_sum_squares<float>, round_and_sum_squares<bf16>},
    .rotate = {rotate<float>, rotate<bf16>},
    .cross_entropy_row = {cross_entropy_row<float>, cross_entropy_row<bf16>},
    .rms_norm_forward = {rms_norm_forward<float>, rms_norm_forward<bf16>},
    .rms_norm_backward = {rms_norm_backward<float>, rms_norm_backward<bf16>},
    .layer_norm_forward = {layer_norm_forward<float>, layer_norm_forward<bf16>},
    .layer_norm_backward = {layer_norm_backward<float>, layer_norm_backward<bf16>},
    .attention_forward = {attention_forward<float>, attention_forward<bf16>},
    .attention_backward = {attention_backward<float>, attention_backward<bf16>},
};

}  // namespace headrace::kernels::host::HEADRACE_ISA
