// SPDX-License-Identifier: Apache-2.0
// The algorithm of the update, written once over a vector type V. Each instruction set's file defines V
// (loads, stores, correctly rounded arithmetic) and includes this. The order of roundings is the one of
// headrace/adam.h; changing it changes it on every instruction set.
//
// Everything is in an unnamed namespace, so that no instantiation can be shared between files built with
// different flags.
#pragma once

#include "cpu_adam/adam_rules.h"
#include "cpu_adam/random_bits.h"

namespace headrace::adam {
namespace {

/// How much of a vector an access touches: all lanes, or the first `count` of them (the rest read as zero).
struct Whole {};
struct Part {
  size_t count;
};

template <class V>
struct Fp32Weights {
  static constexpr bool kIs16Bit = false;
  template <class Extent>
  static typename V::F load(const Span& s, size_t i, Extent extent) {
    return V::load(s.w + i, extent);
  }
  template <class Extent>
  static void store(const Span& s, size_t i, Extent extent, typename V::F w) {
    V::store(s.w + i, extent, w);
  }
  static size_t before_aligned(const Span&) { return 0; }
};

/// The copy is not read here and soon not at all by this core: it goes around the caches.
template <class V>
struct CopiedWeights : Fp32Weights<V> {
  template <class Extent>
  static void store(const Span& s, size_t i, Extent extent, typename V::F w) {
    Fp32Weights<V>::store(s, i, extent, w);
    V::stream_bf16(s.copy + i, extent, w);
  }
  /// Elements before the first that can be streamed.
  static size_t before_aligned(const Span& s) {
    const size_t beyond = reinterpret_cast<uintptr_t>(s.copy) % V::kStreamAlignment;
    const size_t elems = beyond == 0 ? 0 : (V::kStreamAlignment - beyond) / sizeof(bf16);
    return elems < s.count ? elems : s.count;
  }
};

template <class V>
struct SplitWeights {
  static constexpr bool kIs16Bit = true;
  template <class Extent>
  static typename V::F load(const Span& s, size_t i, Extent extent) {
    return V::merge(s.hi + i, s.lo + i, extent);
  }
  template <class Extent>
  static void store(const Span& s, size_t i, Extent extent, typename V::F w) {
    V::split(s.hi + i, s.lo + i, extent, w);
  }
  static size_t before_aligned(const Span&) { return 0; }
};

template <class V>
struct Fp32Moment {
  static constexpr bool kRandom = false, kIs16Bit = false;
  template <class Extent>
  static typename V::F load(const void* at, size_t i, Extent extent) {
    return V::load(static_cast<const float*>(at) + i, extent);
  }
  template <class Extent>
  static void store(void* at, size_t i, Extent extent, typename V::F x, typename V::I) {
    V::store(static_cast<float*>(at) + i, extent, x);
  }
};

template <class V>
struct NearestMoment {
  static constexpr bool kRandom = false, kIs16Bit = true;
  template <class Extent>
  static typename V::F load(const void* at, size_t i, Extent extent) {
    return V::load_bf16(static_cast<const bf16*>(at) + i, extent);
  }
  template <class Extent>
  static void store(void* at, size_t i, Extent extent, typename V::F x, typename V::I) {
    V::store_bf16(static_cast<bf16*>(at) + i, extent, x);
  }
};

/// Adds 16 random bits below the ones that are kept, and cuts: up or down with the odds of the remainder.
template <class V>
struct RandomMoment : NearestMoment<V> {
  static constexpr bool kRandom = true;
  template <class Extent>
  static void store(void* at, size_t i, Extent extent, typename V::F x, typename V::I bits16) {
    V::store_bf16(static_cast<bf16*>(at) + i, extent, x, bits16);
  }
};

template <class V>
struct Fp32Grad {
  static constexpr bool kIs16Bit = false;
  template <class Extent>
  static typename V::F load(const void* grad, size_t i, Extent extent) {
    return V::load(static_cast<const float*>(grad) + i, extent);
  }
};

template <class V>
struct Bf16Grad {
  static constexpr bool kIs16Bit = true;
  template <class Extent>
  static typename V::F load(const void* grad, size_t i, Extent extent) {
    return V::load_bf16(static_cast<const bf16*>(grad) + i, extent);
  }
};

template <class V, class Rule, class Weights, class M, class Second, class Grad>
struct Kernel {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr bool kRandom = (Rule::kHasM && M::kRandom) || (Rule::kHasV && Second::kRandom);

  template <class Extent>
  static void step(const Span& s, const Rule& rule, const RandomBits<V>& random, size_t i, Extent extent) {
    const F g = Grad::load(s.grad.data, i, extent);
    F w = Weights::load(s, i, extent), m{}, v{};
    if constexpr (Rule::kHasM) m = M::load(s.m, i, extent);
    if constexpr (Rule::kHasV) v = Second::load(s.v, i, extent);
    rule(g, w, m, v);
    I bits{};
    if constexpr (kRandom) bits = random.at(i);
    if constexpr (Rule::kHasM) M::store(s.m, i, extent, m, V::low_half(bits));
    if constexpr (Rule::kHasV) Second::store(s.v, i, extent, v, V::high_half(bits));
    Weights::store(s, i, extent, w);
  }

  // `s` by value: vector stores may alias anything, and pointers behind a reference would be reloaded each
  // time.
  static void run(const Span s, const StepScalars& scalars) {
    const Rule rule(scalars);
    const RandomBits<V> random(scalars.random_key, s.first);
    size_t i = 0;
    if constexpr (V::kLanes > 1) {
      for (const size_t head = Weights::before_aligned(s); i < head;) {
        const size_t count = head - i < V::kLanes ? head - i : V::kLanes;
        step(s, rule, random, i, Part{count});
        i += count;
      }
    }
    for (; i + V::kLanes <= s.count; i += V::kLanes) step(s, rule, random, i, Whole{});
    if constexpr (V::kLanes > 1) {
      if (i < s.count) step(s, rule, random, i, Part{s.count - i});
    }
  }
  static void call(const Span& span, const StepScalars& scalars) { run(span, scalars); }
};

/// The vectors of an instruction set: One, those of the update, and those of an update where every array has
/// elements of 16 bits. They may all be the same.
template <class One, class OfUpdate, class Of16Bit>
struct Vectors {
  using V = One;
  using VUpdate = OfUpdate;
  using V16 = Of16Bit;
};

template <class Set, template <class> class Rule, template <class> class Weights, template <class> class M,
          template <class> class Second, template <class> class Grad>
constexpr Update kernel() {
  using V = typename Set::VUpdate;
  using V16 = typename Set::V16;
  if constexpr (Weights<V>::kIs16Bit && M<V>::kIs16Bit && Second<V>::kIs16Bit && Grad<V>::kIs16Bit) {
    return Kernel<V16, Rule<V16>, Weights<V16>, M<V16>, Second<V16>, Grad<V16>>::call;
  } else {
    return Kernel<V, Rule<V>, Weights<V>, M<V>, Second<V>, Grad<V>>::call;
  }
}

template <class Set, template <class> class Rule, template <class> class Weights>
constexpr void fill(Update (&table)[kMomentFormats][kGradientFormats]) {
  using V = typename Set::V;
  const auto put = [&](MomentFormat moments, Update with_fp32, Update with_bf16) {
    table[size_t(moments)][size_t(DType::f32)] = with_fp32;
    table[size_t(moments)][size_t(DType::bf16)] = with_bf16;
  };
  put(MomentFormat::fp32, kernel<Set, Rule, Weights, Fp32Moment, Fp32Moment, Fp32Grad>(),
      kernel<Set, Rule, Weights, Fp32Moment, Fp32Moment, Bf16Grad>());
  if constexpr (Rule<V>::kHasM) {
    put(MomentFormat::bf16_m, kernel<Set, Rule, Weights, NearestMoment, Fp32Moment, Fp32Grad>(),
        kernel<Set, Rule, Weights, NearestMoment, Fp32Moment, Bf16Grad>());
  }
  if constexpr (Rule<V>::kHasM && Rule<V>::kHasV) {
    put(MomentFormat::bf16, kernel<Set, Rule, Weights, RandomMoment, RandomMoment, Fp32Grad>(),
        kernel<Set, Rule, Weights, RandomMoment, RandomMoment, Bf16Grad>());
  }
}

template <class Set, template <class> class Rule>
constexpr void fill(Update (&table)[kWeightFormats][kMomentFormats][kGradientFormats]) {
  fill<Set, Rule, Fp32Weights>(table[size_t(WeightFormat::fp32)]);
  fill<Set, Rule, CopiedWeights>(table[size_t(WeightFormat::fp32_copy)]);
  fill<Set, Rule, SplitWeights>(table[size_t(WeightFormat::split)]);
}

// The square of an fp32 number is exact in double, so only the order of the additions matters.
template <class V, class Grad>
void square_lanes_of(const void* grad, size_t count, double* lanes) {
  constexpr size_t kVectors = kSquareLanes / V::kLanes;
  typename V::Squares sums[kVectors] = {};
  size_t i = 0;
  for (; i + kSquareLanes <= count; i += kSquareLanes) {
    for (size_t k = 0; k < kVectors; ++k)
      V::add_squares(sums[k], Grad::load(grad, i + k * V::kLanes, Whole{}));
  }
  for (size_t k = 0; i < count; ++k, i += V::kLanes) {
    if (i + V::kLanes <= count) {
      V::add_squares(sums[k], Grad::load(grad, i, Whole{}));
    } else if constexpr (V::kLanes > 1) {
      V::add_squares(sums[k], Grad::load(grad, i, Part{count - i}));
    }
  }
  for (size_t k = 0; k < kVectors; ++k) V::store_squares(lanes + k * V::kLanes, sums[k]);
}

template <class V>
void square_lanes_any(Gradient grad, size_t count, double* lanes) {
  if (grad.dtype == DType::f32) {
    square_lanes_of<V, Fp32Grad<V>>(grad.data, count, lanes);
  } else {
    square_lanes_of<V, Bf16Grad<V>>(grad.data, count, lanes);
  }
}

template <class Set>
constexpr IsaKernels kernels_for() {
  IsaKernels kernels{};
  fill<Set, Adamw>(kernels.update[size_t(Rule::adamw)]);
  fill<Set, Adam>(kernels.update[size_t(Rule::adam)]);
  fill<Set, Lion>(kernels.update[size_t(Rule::lion)]);
  fill<Set, Adagrad>(kernels.update[size_t(Rule::adagrad)]);
  kernels.square_lanes = square_lanes_any<typename Set::V>;
  kernels.fence = Set::V::fence;
  return kernels;
}

}  // namespace
}  // namespace headrace::adam
