// SPDX-License-Identifier: Apache-2.0
// The update of a state in 8-bit blocks with 24-bit weights, over a vector type V (headrace/adam.h says what
// the codes mean). A block is decoded, updated and encoded while it is in registers and the nearest cache:
// its new scales are known only after its last element.
//
// Of an element's 32 random bits the weight takes the lowest 8, m the next 12, v the last 12.
#pragma once

#include "cpu_adam/adam_kernel.h"

namespace headrace::adam {
namespace {

template <class V>
struct BlockCodes {
  using F = typename V::F;
  using I = typename V::I;

  template <class Extent>
  static F load_m(const uint8_t* codes, Extent extent, F scale) {
    const F root = V::mul(V::from_int(V::sign_extend8(V::load8(codes, extent))), V::set(1.0f / 127.0f));
    return V::mul(scale, V::mul(root, V::abs(root)));
  }
  template <class Extent>
  static F load_v(const uint8_t* codes, Extent extent, F scale) {
    const F root = V::mul(V::from_int(V::load8(codes, extent)), V::set(1.0f / 255.0f));
    return V::mul(scale, fourth_power(root));
  }

  /// y = 127^2 |m| / scale lies between k^2 and (k + 1)^2.
  template <class Extent>
  static void store_m(uint8_t* codes, Extent extent, F m, F inverse, I random12) {
    const F y = V::mul(V::mul(V::abs(m), inverse), V::set(16129.0f));
    const I k = V::truncated(V::min(V::sqrt(y), V::set(127.0f)));
    const F below = V::from_int(k), width = V::fma(V::set(2.0f), below, V::set(1.0f));
    const I up = V::one_where_less(V::mul(odds(random12), width), V::sub(y, V::mul(below, below)));
    V::store8(codes, extent, V::with_sign_of(V::min_int(V::add_int(k, up), V::set_int(127)), m));
  }
  /// y = 255^4 v / scale lies between k^4 and (k + 1)^4.
  template <class Extent>
  static void store_v(uint8_t* codes, Extent extent, F v, F inverse, I random12) {
    const F y = V::mul(V::mul(v, inverse), V::set(4228250625.0f));
    const I k = V::truncated(V::min(V::sqrt(V::sqrt(y)), V::set(255.0f)));
    const F below = V::from_int(k), low = fourth_power(below);
    const F width = V::sub(fourth_power(V::add(below, V::set(1.0f))), low);
    const I up = V::one_where_less(V::mul(odds(random12), width), V::sub(y, low));
    const I code = V::min_int(V::add_int(k, up), V::set_int(255));
    V::store8(codes, extent, V::max_int(code, V::one_where_less(V::set(0.0f), v)));
  }

 private:
  static F fourth_power(F x) {
    const F square = V::mul(x, x);
    return V::mul(square, square);
  }
  /// From 2^-13 to 1 - 2^-13, in steps of 2^-12.
  static F odds(I random12) { return V::fma(V::from_int(random12), V::set(0x1p-12f), V::set(0x1p-13f)); }
};

template <class V, class Rule, class Grad>
struct BlockKernel {
  using F = typename V::F;
  using I = typename V::I;
  using Codes = BlockCodes<V>;

  /// New moments of one block, and the largest bits of their magnitudes.
  struct Block {
    alignas(64) float m[kBlockElems];
    alignas(64) float v[kBlockElems];
    I most_m, most_v;
  };
  struct State {
    uint8_t *m, *v;
    F m_scale, v_scale;  ///< while it is encoded, their inverses
  };

  template <class Extent>
  static void step(const Span& s, const Rule& rule, const RandomBits<V>& random, const State& state,
                   size_t first, size_t i, Extent extent, Block& block) {
    const size_t at = first + i;
    F w = V::merge24(s.hi + at, s.lo8 + at, extent);
    F m = Codes::load_m(state.m + at, extent, state.m_scale);
    F v = Codes::load_v(state.v + at, extent, state.v_scale);
    rule(Grad::load(s.grad.data, at, extent), w, m, v);
    V::split24(s.hi + at, s.lo8 + at, extent, w, V::and_int(random.at(at), V::set_int(0xff)));
    V::store(block.m + i, Whole{}, m);
    V::store(block.v + i, Whole{}, v);
    block.most_m = V::max_int(block.most_m, V::magnitude_bits(m));
    block.most_v = V::max_int(block.most_v, V::magnitude_bits(v));
  }

  template <class Extent>
  static void encode(const State& state, const RandomBits<V>& random, size_t first, size_t i, Extent extent,
                     const Block& block) {
    const I bits = random.at(first + i);
    const I low = V::and_int(V::template shift_right<8>(bits), V::set_int(0xfff));
    Codes::store_m(state.m + first + i, extent, V::load(block.m + i, Whole{}), state.m_scale, low);
    Codes::store_v(state.v + first + i, extent, V::load(block.v + i, Whole{}), state.v_scale,
                   V::template shift_right<20>(bits));
  }

  /// Of a scale; all codes are 0 where it would be infinite.
  static F inverse(float scale) { return V::set(scale < 0x1p-126f ? 0.0f : 1.0f / scale); }

  template <class Call>
  static void for_each_vector(size_t count, const Call& call) {
    size_t i = 0;
    for (; i + V::kLanes <= count; i += V::kLanes) call(i, Whole{});
    if constexpr (V::kLanes > 1) {
      if (i < count) call(i, Part{count - i});
    }
  }

  static void run(const Span s, const StepScalars& scalars) {
    const Rule rule(scalars);
    const RandomBits<V> random(scalars.random_key, s.first);
    State state{static_cast<uint8_t*>(s.m), static_cast<uint8_t*>(s.v), {}, {}};
    Block block;
    for (size_t first = 0; first < s.count; first += kBlockElems) {
      const size_t count = s.count - first < kBlockElems ? s.count - first : kBlockElems;
      float& m_scale = s.m_scale[first / kBlockElems];
      float& v_scale = s.v_scale[first / kBlockElems];
      state.m_scale = V::set(m_scale);
      state.v_scale = V::set(v_scale);
      block.most_m = block.most_v = V::set_int(0);
      for_each_vector(count,
                      [&](size_t i, auto extent) { step(s, rule, random, state, first, i, extent, block); });
      m_scale = V::largest(block.most_m);
      v_scale = V::largest(block.most_v);
      state.m_scale = inverse(m_scale);
      state.v_scale = inverse(v_scale);
      for_each_vector(count, [&](size_t i, auto extent) { encode(state, random, first, i, extent, block); });
    }
  }
  static void call(const Span& span, const StepScalars& scalars) { run(span, scalars); }
};

template <class V, template <class> class Rule>
constexpr void fill_blocks(Update (&table)[kWeightFormats][kMomentFormats][kGradientFormats]) {
  Update(&row)[kGradientFormats] = table[size_t(WeightFormat::split24)][size_t(MomentFormat::q8)];
  row[size_t(DType::f32)] = BlockKernel<V, Rule<V>, Fp32Grad<V>>::call;
  row[size_t(DType::bf16)] = BlockKernel<V, Rule<V>, Bf16Grad<V>>::call;
}

template <class Set>
constexpr IsaKernels kernels_with_blocks() {
  using V = typename Set::V;
  IsaKernels kernels = kernels_for<Set>();
  fill_blocks<V, Adamw>(kernels.update[size_t(Rule::adamw)]);
  fill_blocks<V, Adam>(kernels.update[size_t(Rule::adam)]);
  return kernels;
}

}  // namespace
}  // namespace headrace::adam
