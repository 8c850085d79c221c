// SPDX-License-Identifier: Apache-2.0
// CUDA's AdamW, run by the emulation: the bits of the CPU's scalar update, on random, tiny and padded state.
#include "kernels/adamw.h"

#include "kernels/cuda/cuda_kernels.h"
#include "tests/emulation/kernels/placed.h"

namespace headrace::kernels {
namespace {

enum class Values { usual, denormal, padding };

float value(Values kind, std::mt19937& generator, float spread) {
  if (kind == Values::padding) return 0.0f;
  std::normal_distribution<float> normal(0.0f, spread);
  return kind == Values::usual ? normal(generator) : normal(generator) * 0x1p-130f;
}

/// A span's state in memory of its own.
struct State {
  State(DType type, size_t elems, size_t shift, Values kind)
      : dtype(type),
        weights(type, elems, shift),
        lo(kBf16, elems, shift),
        m(kF32, elems, shift),
        v(kF32, elems, shift),
        gradient(type, elems, shift) {
    std::mt19937 generator(7);
    for (size_t i = 0; i < elems; ++i) {
      const float w = value(kind, generator, 1.0f);
      if (type == kF32) {
        weights.floats()[i] = w;
        gradient.floats()[i] = value(kind, generator, 3.0f);
      } else {
        const SplitMaster master = split_master(w);
        weights.as<bf16>()[i] = master.hi;
        lo.as<uint16_t>()[i] = master.lo;
        gradient.as<bf16>()[i] = to_bf16(value(kind, generator, 3.0f));
      }
      m.floats()[i] = value(kind, generator, 0.1f);
      v.floats()[i] = std::fabs(value(kind, generator, 0.01f));
    }
  }
  void update_on_cpu(size_t elems, const adam::StepScalars& s) {
    const adam::Gradient from{gradient.data(), dtype};
    if (dtype == kF32) {
      adam::adamw(adam::Isa::scalar, {weights.floats(), elems}, {m.floats(), elems}, {v.floats(), elems},
                  from, s);
    } else {
      adam::adamw(adam::Isa::scalar, {weights.as<bf16>(), elems}, {lo.as<uint16_t>(), elems},
                  {m.floats(), elems}, {v.floats(), elems}, from, s);
    }
  }
  void update_on_cuda(size_t elems, const adam::StepScalars& s) {
    const AdamwSpan span{.count = int64_t(elems),
                         .dtype = dtype,
                         .weights = weights.data(),
                         .lo = dtype == kF32 ? nullptr : lo.as<uint16_t>(),
                         .m = m.floats(),
                         .v = v.floats(),
                         .gradient = gradient.data(),
                         .scalars = s};
    run([&](auto on) { cuda::adamw(on, span); });
  }

  DType dtype;
  Placed weights, lo, m, v, gradient;
};

void expect_same_bits(State& got, State& want) {
  EXPECT_EQ(got.weights.get().bytes(), want.weights.get().bytes());
  EXPECT_EQ(got.lo.get().bytes(), want.lo.get().bytes());
  EXPECT_EQ(got.m.get().bytes(), want.m.get().bytes());
  EXPECT_EQ(got.v.get().bytes(), want.v.get().bytes());
}

adam::StepScalars scalars(uint64_t step, double decay) {
  return adam::make_scalars({.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = decay},
                            step, 0.37);
}

TEST(CudaAdamw, HasTheBitsOfTheCpu) {
  for (const DType dtype : {kF32, kBf16}) {
    // 2048 elements are a block.
    for (const size_t elems : {1, 2, 3, 4, 5, 7, 64, 257, 2048, 2051, 5003}) {
      for (const size_t shift : kShifts) {
        for (const Values kind : {Values::usual, Values::denormal}) {
          SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << elems << " +" << shift);
          State got(dtype, elems, shift, kind), want(dtype, elems, shift, kind);
          for (const uint64_t step : {1, 2, 1000}) {
            got.update_on_cuda(elems, scalars(step, 0.1));
            want.update_on_cpu(elems, scalars(step, 0.1));
          }
          expect_same_bits(got, want);
        }
      }
    }
  }
}

TEST(CudaAdamw, PaddingStaysZero) {
  for (const DType dtype : {kF32, kBf16}) {
    State got(dtype, 37, 0, Values::padding), before(dtype, 37, 0, Values::padding);
    got.update_on_cuda(37, scalars(3, 0.1));
    expect_same_bits(got, before);
  }
}

TEST(CudaAdamw, PartsOfASpanGiveTheBitsOfTheWhole) {
  State whole(kBf16, 100, 0, Values::usual), parts(kBf16, 100, 0, Values::usual);
  whole.update_on_cuda(100, scalars(2, 0.0));
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 13}, {13, 51}, {64, 36}}) {
    const AdamwSpan span{.count = int64_t(count),
                         .dtype = kBf16,
                         .weights = parts.weights.as<bf16>() + first,
                         .lo = parts.lo.as<uint16_t>() + first,
                         .m = parts.m.floats() + first,
                         .v = parts.v.floats() + first,
                         .gradient = parts.gradient.as<bf16>() + first,
                         .scalars = scalars(2, 0.0)};
    run([&](auto on) { cuda::adamw(on, span); });
  }
  expect_same_bits(parts, whole);
}

TEST(CudaAdamw, NothingIsDoneToNothing) {
  run([&](auto on) {
    cuda::adamw(on, {.count = 0,
                     .dtype = kBf16,
                     .weights = nullptr,
                     .lo = nullptr,
                     .m = nullptr,
                     .v = nullptr,
                     .gradient = nullptr,
                     .scalars = scalars(1, 0.0)});
  });
}

}  // namespace
}  // namespace headrace::kernels
