// SPDX-License-Identifier: Apache-2.0
// The update for any CPU, one element at a time: the reference that the wide versions equal bit for bit.
// std::fma rounds once on every machine: a library call where the CPU has no such instruction.
#include <bit>
#include <cmath>

#include "cpu_adam/adam_kernel.h"

namespace headrace::adam {
namespace {

struct Scalar {
  using F = float;
  using I = uint32_t;
  using Squares = double;
  static constexpr size_t kLanes = 1;
  static constexpr size_t kStreamAlignment = 1;

  static F set(float x) { return x; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F sqrt(F a) { return std::sqrt(a); }
  static F fma(F a, F b, F c) { return std::fma(a, b, c); }
  static F fms(F a, F b, F c) { return std::fma(a, b, -c); }

  static F sign(F x) { return x < 0 || x > 0 ? std::copysign(1.0f, x) : x; }

  static I set_int(uint32_t x) { return x; }
  static I add_int(I a, I b) { return a + b; }
  static I mul_int(I a, I b) { return a * b; }
  static I exclusive_or(I a, I b) { return a ^ b; }
  template <int kBits>
  static I shift_right(I a) {
    return a >> kBits;
  }
  static I numbers(uint32_t first) { return first; }
  static I low_half(I a) { return a & 0xffffu; }
  static I high_half(I a) { return a >> 16; }

  static F load(const float* p, Whole) { return *p; }
  static void store(float* p, Whole, F x) { *p = x; }
  static F load_bf16(const bf16* p, Whole) { return to_float(*p); }
  static void store_bf16(bf16* p, Whole, F x) { *p = to_bf16(x); }
  static void store_bf16(bf16* p, Whole, F x, I random) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    *p = bf16(uint16_t((std::isnan(x) ? bits : bits + random) >> 16));
  }
  static void stream_bf16(bf16* p, Whole, F x) { store_bf16(p, Whole{}, x); }
  static void fence() {}
  static F merge(const bf16* hi, const uint16_t* lo, Whole) { return merge_master({*hi, *lo}); }
  static void split(bf16* hi, uint16_t* lo, Whole, F x) {
    const SplitMaster master = split_master(x);
    *hi = master.hi;
    *lo = master.lo;
  }

  static void add_squares(Squares& sum, F x) { sum += double(x) * double(x); }
  static void store_squares(double* lanes, Squares sum) { *lanes = sum; }
};

}  // namespace

constinit const IsaKernels kScalarKernels = kernels_for<Scalar, Scalar>();

}  // namespace headrace::adam
