// SPDX-License-Identifier: Apache-2.0
// CUDA's element by element kernels, run by the emulation: against double precision and differences of it.
#include <limits>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

double silu(double z) {
  return z / (1 + std::exp(-z));
}
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// Edges of an access (4 and 8 elements) and of a block (4096 and 8192).
constexpr size_t kElems[] = {1, 3, 4, 7, 8, 37, 1003, 4096, 8192 + 1021};

/// The last ones: blocks that end inside a row, rows that are longer than a block.
constexpr Sizes kMatrices[] = {{3, 1}, {3, 5}, {1, 8}, {5, 24}, {3, 37}, {47, 136}, {2, 5008}};

TEST(CudaSwiglu, ForwardMatchesDouble) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    for (const auto [rows, cols] : kMatrices) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rows << "x" << cols << " +" << shift);
        const Tensor gate_up = random_tensor(dtype, 2 * rows * cols, 1, 3.0);
        const DeviceTensor x(gate_up, shift), y(dtype, rows * cols, shift);
        cuda::swiglu_forward(stream, int64_t(rows), int64_t(cols), dtype, x.data(), y.data());
        const Doubles in = gate_up.doubles();
        Doubles want(rows * cols);
        for (size_t i = 0; i < want.size(); ++i) {
          const size_t gate = i / cols * 2 * cols + i % cols;
          want[i] = silu(in[gate]) * in[gate + cols];
        }
        expect_close(y.fetch(stream), want, 1e-6);
      }
    }
  }
}

TEST(CudaSwiglu, BackwardMatchesDifferences) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    for (const auto [rows, cols] : kMatrices) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << rows << "x" << cols << " +" << shift);
        const Tensor gate_up = random_tensor(dtype, 2 * rows * cols, 1, 3.0);
        const Tensor dy = random_tensor(dtype, rows * cols, 2);
        const DeviceTensor x(gate_up, shift), d(dy, shift), dx(dtype, 2 * rows * cols, shift);
        cuda::swiglu_backward(stream, int64_t(rows), int64_t(cols), dtype, x.data(), d.data(), dx.data());
        const Doubles in = gate_up.doubles(), dyd = dy.doubles();
        Doubles want(in.size());
        for (size_t i = 0; i < dyd.size(); ++i) {
          const size_t gate = i / cols * 2 * cols + i % cols;
          want[gate] = dyd[i] * in[gate + cols] * derivative(silu, in[gate]);
          want[gate + cols] = dyd[i] * silu(in[gate]);
        }
        expect_close(dx.fetch(stream), want);
      }
    }
  }
}

TEST(CudaGelu, MatchesDoubleAndDifferences) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    for (const size_t elems : kElems) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << elems << " +" << shift);
        const Tensor in = random_tensor(dtype, elems, 1, 2.0), din = random_tensor(dtype, elems, 2);
        const DeviceTensor x(in, shift), dy(din, shift), y(dtype, elems, shift), dx(dtype, elems, shift);
        cuda::gelu_forward(stream, int64_t(elems), dtype, x.data(), y.data());
        cuda::gelu_backward(stream, int64_t(elems), dtype, x.data(), dy.data(), dx.data());
        Doubles want_y(elems), want_dx(elems);
        for (size_t i = 0; i < elems; ++i) {
          want_y[i] = gelu(in[i]);
          want_dx[i] = din[i] * derivative(gelu, in[i]);
        }
        expect_close(y.fetch(stream), want_y, 1e-6);
        expect_close(dx.fetch(stream), want_dx);
      }
    }
  }
}

TEST(CudaGelu, SaturatesFarFromZero) {
  EmulatedStream stream;
  const DeviceTensor x(Tensor(kF32, {-1e30, -50, 50, 1e30})), dy(Tensor(kF32, Doubles(4, 1.0)));
  const DeviceTensor y(kF32, 4), dx(kF32, 4);
  cuda::gelu_forward(stream, 4, kF32, x.data(), y.data());
  cuda::gelu_backward(stream, 4, kF32, x.data(), dy.data(), dx.data());
  EXPECT_EQ(y.fetch(stream).doubles(), (Doubles{0.0, 0.0, 50.0, double(1e30f)}));
  EXPECT_EQ(dx.fetch(stream).doubles(), (Doubles{0.0, 0.0, 1.0, 1.0}));
}

TEST(CudaSwiglu, SaturatesFarFromZero) {
  EmulatedStream stream;
  const DeviceTensor gate_up(Tensor(kF32, {-1e30, -100, 100, 1e30, 2, 2, 2, 2}));
  const DeviceTensor dy(Tensor(kF32, Doubles(4, 1.0))), y(kF32, 4), dgate_up(kF32, 8);
  cuda::swiglu_forward(stream, 1, 4, kF32, gate_up.data(), y.data());
  cuda::swiglu_backward(stream, 1, 4, kF32, gate_up.data(), dy.data(), dgate_up.data());
  EXPECT_EQ(y.fetch(stream).doubles(), (Doubles{0.0, 0.0, 200.0, 2.0 * double(1e30f)}));
  EXPECT_EQ(dgate_up.fetch(stream).doubles(), (Doubles{0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 100.0, double(1e30f)}));
}

TEST(CudaAdd, HasTheHostsBitsAndMayWriteOverAnInput) {
  EmulatedStream stream;
  for (const DType dtype : {kF32, kBf16}) {
    for (const size_t elems : kElems) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << elems << " +" << shift);
        Tensor x = random_tensor(dtype, elems, 1), y = random_tensor(dtype, elems, 2), want(dtype, elems);
        host::add(int64_t(elems), dtype, x.data(), y.data(), want.data());
        const DeviceTensor a(x, shift), b(y, shift);
        cuda::add(stream, int64_t(elems), dtype, a.data(), b.data(), b.data());
        EXPECT_EQ(b.fetch(stream).bytes(), want.bytes());
      }
    }
  }
}

TEST(CudaCast, RoundsToNearestEven) {
  EmulatedStream stream;
  for (const DType from : {kF32, kBf16}) {
    for (const DType to : {kF32, kBf16}) {
      for (const size_t elems : kElems) {
        for (const size_t shift : kShifts) {
          SCOPED_TRACE(testing::Message() << dtype_name(from) << " " << dtype_name(to) << " " << elems);
          Tensor values = random_tensor(from, elems, 1);
          values.set(0, 1.0f + 0x1p-8f);  // a tie, to even
          values.set(elems - 1, 1.0f + 0x3p-8f);
          const DeviceTensor x(values, shift), y(to, elems, shift);
          cuda::cast(stream, int64_t(elems), from, x.data(), to, y.data());
          Doubles want = values.doubles();
          if (to == kBf16) {
            for (double& w : want) w = to_float(to_bf16(float(w)));
          }
          EXPECT_EQ(y.fetch(stream).doubles(), want);
        }
      }
    }
  }
}

TEST(CudaPointwise, NothingIsDoneToNothing) {
  EmulatedStream stream;
  cuda::swiglu_forward(stream, 0, 8, kBf16, nullptr, nullptr);
  cuda::swiglu_backward(stream, 0, 8, kBf16, nullptr, nullptr, nullptr);
  cuda::gelu_forward(stream, 0, kBf16, nullptr, nullptr);
  cuda::gelu_backward(stream, 0, kBf16, nullptr, nullptr, nullptr);
  cuda::add(stream, 0, kBf16, nullptr, nullptr, nullptr);
  cuda::cast(stream, 0, kBf16, nullptr, kF32, nullptr);
  stream.synchronize();
}

}  // namespace
}  // namespace headrace::kernels
