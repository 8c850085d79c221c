// SPDX-License-Identifier: Apache-2.0
// AdamW on state that lies in the memory of an accelerator: the twin of headrace::adam::adamw, which says the
// formula and the order of its roundings, and whose bits it gives.
#pragma once

#include <span>

#include "headrace/adam.h"
#include "kernels/gemm.h"

namespace headrace::kernels {

/// `count` elements with the scalars of one kind of decay.
struct AdamwSpan {
  int64_t count;
  DType dtype;    ///< of weights and gradient
  void* weights;  ///< bf16 (hi) or fp32
  uint16_t* lo;   ///< lower half of the master; nullptr in fp32
  float *m, *v;
  const void* gradient;
  adam::StepScalars scalars;
};

/// On a stream of an accelerator; on the host device the optimizer's workers do this (HEADRACE_CHECK).
/// Disjoint spans of one dtype; few launches for many of them.
void adamw(Stream&, std::span<const AdamwSpan> spans);

}  // namespace headrace::kernels
