// SPDX-License-Identifier: Apache-2.0
// The loops of stream_mix.h, written once over a vector type V that each instruction set's file defines: Vec,
// kBytes, load, store, stream (a store around the caches), fence, exclusive_or, either, changing() (per
// 16-bit lane a 1 and the second bit of the gradient) and ones8() (a 1 in each byte).
//
// Everything is in an unnamed namespace, so that no instantiation can be shared between files built with
// different flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "bench/stream_mix.h"

namespace headrace::bench {
namespace {

using adam::kBlockElems, adam::MomentFormat, adam::WeightFormat;

/// Bytes of one element in each array; 0 where the format has no such array.
template <WeightFormat kWeights, MomentFormat kMoments, size_t kGradBytes>
struct Shape {
  static constexpr size_t width(adam::Array array) {
    size_t bytes = 0;
    for (const adam::ArrayInfo& info : adam::ArrayList({.weights = kWeights, .moments = kMoments}))
      if (info.array == array) bytes = info.bytes;
    return bytes;
  }
  static constexpr bool kSplit = width(adam::Array::hi) > 0;
  static constexpr size_t kGrad = kGradBytes;
  static constexpr size_t kWeight = width(kSplit ? adam::Array::hi : adam::Array::w);
  static constexpr size_t kLow = width(adam::Array::lo) + width(adam::Array::lo8);  // one of them
  static constexpr size_t kCopy = width(adam::Array::copy);
  static constexpr size_t kM = width(adam::Array::m), kV = width(adam::Array::v);
  static constexpr size_t kScale = width(adam::Array::m_scale);  // of a block, twice
  static constexpr double kBytes =
      double(kGrad + kCopy + 2 * (kWeight + kLow + kM + kV)) + 2.0 * double(2 * kScale) / double(kBlockElems);
};

struct Arrays {
  const std::byte* grad;
  std::byte *weight, *low, *copy, *m, *v, *m_scale, *v_scale;
};

template <class S>
Arrays arrays_of(const adam::Span& s) {
  const auto bytes = [](auto* array) { return reinterpret_cast<std::byte*>(array); };
  return {.grad = static_cast<const std::byte*>(s.grad.data),
          .weight = S::kSplit ? bytes(s.hi) : bytes(s.w),
          .low = S::kLow == 1 ? bytes(s.lo8) : bytes(s.lo),
          .copy = bytes(s.copy),
          .m = static_cast<std::byte*>(s.m),
          .v = static_cast<std::byte*>(s.v),
          .m_scale = bytes(s.m_scale),
          .v_scale = bytes(s.v_scale)};
}

inline void change_scale(std::byte* at) {
  uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  bits ^= 1;
  std::memcpy(at, &bits, sizeof bits);
}

/// Follows each array for kVisit elements before it turns to the next.
template <class V, class S, bool kAround, size_t kVisit>
struct Mix {
  using Vec = typename V::Vec;
  static constexpr size_t kStep = kVisit > kBlockElems ? kVisit : kBlockElems;  // elements of one iteration

  /// Vectors of an array that have begun before, or ended by, element `elem` of the step.
  static constexpr size_t begun(size_t elem, size_t width) {
    return (elem * width + V::kBytes - 1) / V::kBytes;
  }
  static constexpr size_t ended(size_t elem, size_t width) { return elem * width / V::kBytes; }

  struct Registers {
    Vec g[begun(kStep, S::kGrad)];
    Vec w[begun(kStep, S::kWeight)];
  };

  /// Changes one array's vectors that begin in the visit.
  template <size_t kWidth, size_t kFirst, bool kKeep = false>
  static void change(std::byte* array, Registers& r) {
    if constexpr (kWidth > 0) {
      constexpr size_t kFrom = begun(kFirst, kWidth), kTo = begun(kFirst + kVisit, kWidth);
#pragma GCC unroll 64
      for (size_t k = kFrom; k < kTo; ++k) {
        const Vec old = V::load(array + k * V::kBytes);
        const Vec now = V::exclusive_or(old, kWidth == 1 ? V::ones8() : r.g[k * S::kGrad / kWidth]);
        V::store(array + k * V::kBytes, now);
        if constexpr (kKeep) r.w[k] = now;
      }
    }
  }

  template <size_t kFirst>
  static void visit(const Arrays& a, Registers& r) {
    constexpr size_t kGradTo = begun(kFirst + kVisit, S::kGrad);
#pragma GCC unroll 64
    for (size_t k = begun(kFirst, S::kGrad); k < kGradTo; ++k) {
      r.g[k] = V::changing(V::load(a.grad + k * V::kBytes));
    }
    change<S::kWeight, kFirst, (S::kCopy > 0)>(a.weight, r);
    change<S::kLow, kFirst>(a.low, r);
    change<S::kM, kFirst>(a.m, r);
    change<S::kV, kFirst>(a.v, r);
    if constexpr (S::kCopy > 0) {
      constexpr size_t kCopyTo = ended(kFirst + kVisit, S::kCopy);
#pragma GCC unroll 64
      for (size_t k = ended(kFirst, S::kCopy); k < kCopyTo; ++k) {
        const Vec both = V::either(r.w[2 * k], r.w[2 * k + 1]);
        if constexpr (kAround) {
          V::stream(a.copy + k * V::kBytes, both);
        } else {
          V::store(a.copy + k * V::kBytes, both);
        }
      }
    }
  }

  template <size_t... kVisits>
  static void step(const Arrays& a, std::index_sequence<kVisits...>) {
    Registers r;
    (visit<kVisits * kVisit>(a, r), ...);
    if constexpr (S::kScale > 0) {
      for (size_t block = 0; block < kStep / kBlockElems; ++block) {
        change_scale(a.m_scale + block * S::kScale);
        change_scale(a.v_scale + block * S::kScale);
      }
    }
  }

  static void run(const adam::Span& span) {
    Arrays a = arrays_of<S>(span);
    for (size_t i = 0; i < span.count; i += kStep) {
      step(a, std::make_index_sequence<kStep / kVisit>{});
      a.grad += kStep * S::kGrad;
      a.weight += kStep * S::kWeight;
      if constexpr (S::kLow > 0) a.low += kStep * S::kLow;
      if constexpr (S::kCopy > 0) a.copy += kStep * S::kCopy;
      a.m += kStep * S::kM;
      a.v += kStep * S::kV;
      if constexpr (S::kScale > 0) {
        a.m_scale += kStep / kBlockElems * S::kScale;
        a.v_scale += kStep / kBlockElems * S::kScale;
      }
    }
    if constexpr (S::kCopy > 0 && kAround) V::fence();
  }
};

template <class V, bool kAround, size_t kVisit, WeightFormat kWeights, MomentFormat kMoments>
constexpr void add(MixTable& table) {
  // Without a copy the loop that stores it another way would be the same loop again.
  if constexpr (kAround || kWeights == WeightFormat::fp32_copy) {
    using Fp32Grad = Shape<kWeights, kMoments, 4>;
    using Bf16Grad = Shape<kWeights, kMoments, 2>;
    ShapedMix* const mixes = table.of[size_t(kWeights)][size_t(kMoments)];
    mixes[size_t(DType::f32)] = {Mix<V, Fp32Grad, kAround, kVisit>::run, Fp32Grad::kBytes};
    mixes[size_t(DType::bf16)] = {Mix<V, Bf16Grad, kAround, kVisit>::run, Bf16Grad::kBytes};
  }
}

template <class V, bool kAround, size_t kVisit, WeightFormat kWeights>
constexpr void add_moments(MixTable& table) {
  add<V, kAround, kVisit, kWeights, MomentFormat::fp32>(table);
  add<V, kAround, kVisit, kWeights, MomentFormat::bf16_m>(table);
  add<V, kAround, kVisit, kWeights, MomentFormat::bf16>(table);
}

template <class V, bool kAround, size_t kVisit>
constexpr MixTable table() {
  MixTable table{};
  add_moments<V, kAround, kVisit, WeightFormat::fp32>(table);
  add_moments<V, kAround, kVisit, WeightFormat::fp32_copy>(table);
  add_moments<V, kAround, kVisit, WeightFormat::split>(table);
  add<V, kAround, kVisit, WeightFormat::split24, MomentFormat::q8>(table);
  return table;
}

/// All loops of an instruction set.
template <class V>
constexpr IsaMixes isa_mixes() {
  constexpr size_t kVector = V::kBytes / sizeof(float);
  return {.lines = table<V, true, kVector>(),
          .lines_cached = table<V, false, kVector>(),
          .blocks = table<V, true, 4 * kVector>(),
          .runs = table<V, true, 16 * kVector>()};
}

}  // namespace
}  // namespace headrace::bench
