// SPDX-License-Identifier: Apache-2.0
// Number formats and the exact conversions between them.
//
// bf16 is the upper half of an fp32. Split master (bf16 training): the compute weight `hi` is the fp32 master
// rounded to nearest, ties up, and `lo` is the master's lower half, so that the pair holds the master
// exactly:
//   split:  hi = (bits + 0x8000) >> 16      lo = bits & 0xffff
//   merge:  bits = ((hi - (lo >> 15)) << 16) | lo
// Exact for every finite value whose rounding stays finite. A master that rounds to infinity saturates `hi`
// at infinity and still merges back to the same bits; NaN and infinity are kept out by the optimizer.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace headrace {

enum class DType : uint8_t { f32, bf16 };

constexpr size_t dtype_bytes(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}
constexpr const char* dtype_name(DType dtype) {
  return dtype == DType::f32 ? "fp32" : "bf16";
}

/// Storage for one bf16 number; arithmetic is done in fp32.
enum class bf16 : uint16_t {};

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(uint32_t(x) << 16);
}

/// Round to nearest, ties to even; NaN stays NaN (quiet).
constexpr bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16((bits >> 16) | 0x40u);
  return bf16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct SplitMaster {
  bf16 hi;
  uint16_t lo;
};

constexpr SplitMaster split_master(float master) {
  const uint32_t bits = std::bit_cast<uint32_t>(master);
  return {bf16(uint16_t((bits + 0x8000u) >> 16)), uint16_t(bits & 0xffffu)};
}

constexpr float merge_master(SplitMaster s) {
  const uint32_t upper = uint16_t(uint32_t(s.hi) - (uint32_t(s.lo) >> 15));
  return std::bit_cast<float>((upper << 16) | s.lo);
}

}  // namespace headrace
