// SPDX-License-Identifier: Apache-2.0
// What adam.cpp asks of each instruction set: one table of functions per set, in a file of its own that is
// compiled with that set's flags. Spans are plain pointers here, because an inline function of a shared
// header that is emitted in such a file could be the copy the linker keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/adam.h"

namespace headrace::adam {

/// Lanes of the sum of squares: element i of a tile goes to lane i % kSquareLanes, on every instruction set.
constexpr size_t kSquareLanes = 16;

constexpr size_t kRules = 4, kWeightFormats = 4, kMomentFormats = 4, kGradientFormats = 2;

/// The elements of one span whose numbers have the same upper 32 bits.
using Update = void (*)(const Span& span, const StepScalars& s);

struct IsaKernels {
  /// nullptr where the format is not offered.
  Update update[kRules][kWeightFormats][kMomentFormats][kGradientFormats];
  void (*fence)();  ///< after updates, before others may read what they streamed
  void (*square_lanes)(Gradient grad, size_t count, double* lanes);  ///< overwrites kSquareLanes sums
};

extern const IsaKernels kScalarKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;

/// adam::update() in two: what was streamed may be read by other threads after the fence only.
void update_unfenced(Isa isa, const Format& format, const Span& span, const StepScalars& s);
void fence(Isa isa);

/// The set called `wanted`, the best one when it is null or empty. Throws ConfigError (key HEADRACE_ISA).
Isa choose_isa(const char* wanted);

}  // namespace headrace::adam
