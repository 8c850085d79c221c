// SPDX-License-Identifier: Apache-2.0
// What the tests of the row and element kernels share besides tests/emulation/support.h: formats, addresses,
// differences of one variable.
#pragma once

#include "tests/emulation/support.h"

namespace headrace::kernels {

constexpr DType kF32 = DType::f32, kBf16 = DType::bf16;

/// Elements behind an allocation's address: with 0 kernels may take 16 bytes at a time, with 1 they may not.
constexpr size_t kShifts[] = {0, 1};

struct Sizes {
  size_t rows, cols;
};

inline double derivative(const std::function<double(double)>& f, double x) {
  const double h = 1e-5 * std::max(1.0, std::fabs(x));
  return (f(x + h) - f(x - h)) / (2 * h);
}

}  // namespace headrace::kernels
