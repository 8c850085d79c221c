// SPDX-License-Identifier: Apache-2.0
// What adam.cpp asks of each instruction set: one table of functions per set, in a file of its own that is
// compiled with that set's flags. Spans are plain pointers here, because an inline function of a shared
// header that is emitted in such a file could be the copy the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/adam.h"

namespace headrace::adam {

/// The streams of one update. Either `w` or `hi` and `lo` are set.
struct Streams {
  float* w;
  bf16* hi;
  uint16_t* lo;
  float* m;
  float* v;
  Gradient grad;
  size_t count;
};

/// Lanes of the sum of squares: element i of a tile goes to lane i % kSquareLanes, on every instruction set.
constexpr size_t kSquareLanes = 16;

struct IsaKernels {
  void (*fp32)(const Streams& streams, const StepScalars& s);
  void (*split)(const Streams& streams, const StepScalars& s);
  void (*square_lanes)(Gradient grad, size_t count, double* lanes);  ///< overwrites kSquareLanes sums
};

extern const IsaKernels kScalarKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;

/// The set called `wanted`, the best one when it is null or empty. Throws ConfigError (key HEADRACE_ISA).
Isa choose_isa(const char* wanted);

}  // namespace headrace::adam
