// SPDX-License-Identifier: Apache-2.0
// The update for any CPU, one element at a time: the reference that the wide versions equal bit for bit.
// std::fma rounds once on every machine: a library call where the CPU has no such instruction.
#include <bit>
#include <cmath>

#include "cpu_adam/adam_blocks.h"

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

  static I and_int(I a, I b) { return a & b; }
  static I min_int(I a, I b) { return a < b ? a : b; }
  static I max_int(I a, I b) { return a < b ? b : a; }
  static I one_where_less(F a, F b) { return a < b ? 1 : 0; }
  static F from_int(I a) { return float(int32_t(a)); }
  static I truncated(F x) { return uint32_t(int32_t(x)); }
  static F abs(F x) { return std::fabs(x); }
  static F min(F a, F b) { return a < b ? a : b; }
  static I magnitude_bits(F x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }
  static float largest(I bits) { return std::bit_cast<float>(bits); }
  static I with_sign_of(I a, F x) { return std::bit_cast<uint32_t>(x) >> 31 ? 0u - a : a; }
  static I load8(const uint8_t* p, Whole) { return *p; }
  static I sign_extend8(I a) { return uint32_t(int32_t(int8_t(uint8_t(a)))); }
  static void store8(uint8_t* p, Whole, I a) { *p = uint8_t(a); }

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

  static F merge24(const bf16* hi, const uint8_t* lo, Whole) {
    return merge_master({*hi, uint16_t(*lo << 8)});
  }
  static void split24(bf16* hi, uint8_t* lo, Whole, F x, I random8) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const SplitMaster master = split_master(std::bit_cast<float>(std::isnan(x) ? bits : bits + random8));
    *hi = master.hi;
    *lo = uint8_t(master.lo >> 8);
  }

  static void add_squares(Squares& sum, F x) { sum += double(x) * double(x); }
  static void store_squares(double* lanes, Squares sum) { *lanes = sum; }
};

}  // namespace

constinit const IsaKernels kScalarKernels = kernels_with_blocks<Vectors<Scalar, Scalar, Scalar>>();

}  // namespace headrace::adam
