// SPDX-License-Identifier: Apache-2.0
// CUDA's AdamW, run by the emulation: the bits of the CPU's scalar update, on random, tiny and padded state.
#include "kernels/adamw.h"

#include "kernels/cuda/cuda_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

enum class Values { usual, denormal, padding };

float value(Values kind, std::mt19937& generator, float spread) {
  if (kind == Values::padding) return 0.0f;
  std::normal_distribution<float> normal(0.0f, spread);
  return kind == Values::usual ? normal(generator) : normal(generator) * 0x1p-130f;
}

/// A span's state, on the CPU.
struct State {
  State(DType dtype, size_t elems, Values kind)
      : weights(dtype, elems), lo(kBf16, elems), m(kF32, elems), v(kF32, elems), gradient(dtype, elems) {
    std::mt19937 generator(7);
    for (size_t i = 0; i < elems; ++i) {
      const float w = value(kind, generator, 1.0f);
      weights.set(i, w);
      gradient.set(i, value(kind, generator, 3.0f));
      m.set(i, value(kind, generator, 0.1f));
      v.set(i, std::fabs(value(kind, generator, 0.01f)));
      if (dtype == kF32) continue;
      const SplitMaster master = split_master(w);
      hi()[i] = master.hi;
      lower()[i] = master.lo;
    }
  }
  bf16* hi() { return static_cast<bf16*>(weights.data()); }
  uint16_t* lower() { return static_cast<uint16_t*>(lo.data()); }
  void update(const adam::StepScalars& s) {
    const size_t elems = weights.size();
    const adam::Gradient from{gradient.data(), gradient.dtype()};
    if (weights.dtype() == kF32) {
      adam::adamw(adam::Isa::scalar, {weights.floats(), elems}, {m.floats(), elems}, {v.floats(), elems},
                  from, s);
    } else {
      adam::adamw(adam::Isa::scalar, {hi(), elems}, {lower(), elems}, {m.floats(), elems},
                  {v.floats(), elems}, from, s);
    }
  }

  Tensor weights, lo, m, v, gradient;
};

/// The same on the GPU.
struct DeviceState {
  DeviceState(const State& s, size_t shift)
      : weights(s.weights, shift),
        lo(s.lo, shift),
        m(s.m, shift),
        v(s.v, shift),
        gradient(s.gradient, shift) {}
  void update(cudaStream_t stream, const adam::StepScalars& s) { update(stream, s, 0, weights.size()); }
  void update(cudaStream_t stream, const adam::StepScalars& s, size_t first, size_t count) {
    const AdamwSpan one = span(s, first, count);
    cuda::adamw(stream, {&one, 1});
  }
  AdamwSpan span(const adam::StepScalars& s, size_t first, size_t count) {
    const bool split = weights.dtype() == kBf16;
    const size_t at = first * dtype_bytes(weights.dtype());
    return {.count = int64_t(count),
            .dtype = weights.dtype(),
            .weights = weights.data() + at,
            .lo = split ? reinterpret_cast<uint16_t*>(lo.data()) + first : nullptr,
            .m = m.floats() + first,
            .v = v.floats() + first,
            .gradient = gradient.data() + at,
            .scalars = s};
  }

  DeviceTensor weights, lo, m, v, gradient;
};

void expect_same_bits(Stream& stream, const DeviceState& got, const State& want) {
  EXPECT_EQ(got.weights.fetch(stream).bytes(), want.weights.bytes());
  EXPECT_EQ(got.lo.fetch(stream).bytes(), want.lo.bytes());
  EXPECT_EQ(got.m.fetch(stream).bytes(), want.m.bytes());
  EXPECT_EQ(got.v.fetch(stream).bytes(), want.v.bytes());
}

adam::StepScalars scalars(uint64_t step, double decay) {
  return adam::make_scalars({.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = decay},
                            step, 0.37);
}

TEST(CudaAdamw, HasTheBitsOfTheCpu) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    // 2048 elements are a block.
    for (const size_t elems : {1, 2, 3, 4, 5, 7, 64, 257, 2048, 2051, 5003}) {
      for (const size_t shift : kShifts) {
        for (const Values kind : {Values::usual, Values::denormal}) {
          SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << elems << " +" << shift);
          State want(dtype, elems, kind);
          DeviceState got(want, shift);
          for (const uint64_t step : {1, 2, 1000}) {
            got.update(stream, scalars(step, 0.1));
            want.update(scalars(step, 0.1));
          }
          expect_same_bits(stream, got, want);
        }
      }
    }
  }
}

TEST(CudaAdamw, ManySpansInOneCallAreManyCalls) {
  EmulatedStream stream;
  // More than a launch takes, of lengths that need no, one and several blocks; each with its own decay.
  const auto count_of = [](size_t i) { return i % 5 == 0 ? size_t(0) : i % 7 == 3 ? size_t(4100) : 13 * i; };
  for (const DType dtype : {kF32, kBf16}) {
    std::vector<State> want;
    std::vector<DeviceState> got;
    for (size_t i = 0; i < 40; ++i) {
      want.emplace_back(dtype, count_of(i), Values::usual);
      got.emplace_back(want[i], 0);
    }
    std::vector<AdamwSpan> spans;
    for (size_t i = 0; i < 40; ++i) {
      spans.push_back(got[i].span(scalars(5, 0.01 * double(i)), 0, count_of(i)));
      want[i].update(scalars(5, 0.01 * double(i)));
    }
    cuda::adamw(stream, spans);
    for (size_t i = 0; i < 40; ++i) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << i);
      expect_same_bits(stream, got[i], want[i]);
    }
  }
}

TEST(CudaAdamw, PaddingStaysZero) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    const State zeros(dtype, 37, Values::padding);
    DeviceState got(zeros, 0);
    got.update(stream, scalars(3, 0.1));
    expect_same_bits(stream, got, zeros);
  }
}

TEST(CudaAdamw, PartsOfASpanGiveTheBitsOfTheWhole) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    State want(dtype, 100, Values::usual);
    DeviceState got(want, 0);
    want.update(scalars(2, 0.0));
    got.update(stream, scalars(2, 0.0), 0, 13);
    got.update(stream, scalars(2, 0.0), 13, 51);
    got.update(stream, scalars(2, 0.0), 64, 36);
    expect_same_bits(stream, got, want);
  }
}

TEST(CudaAdamw, NothingIsDoneToNothing) {
  EmulatedStream stream;
  const State nothing(kBf16, 0, Values::usual);
  DeviceState(nothing, 0).update(stream, scalars(1, 0.0));
  stream.synchronize();
}

}  // namespace
}  // namespace headrace::kernels
