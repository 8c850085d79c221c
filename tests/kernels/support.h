// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: a stream that runs tasks at once, tensors in either format that remember their
// exact values as doubles, and central finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "headrace/dtype.h"
#include "headrace/stream.h"
#include "kernels/gemm.h"

namespace headrace::kernels {

class InlineStream final : public Stream {
 public:
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::host; }
  [[nodiscard]] void* native_handle() const override { return nullptr; }
  void enqueue(Task task) override { task(); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(void* to, size_t bytes) override { std::memset(to, 0, bytes); }
  void wait(const Event&) override {}
  void record(Event&) override {}
  void synchronize() override {}
};

using Doubles = std::vector<double>;

/// Elements in a format; values are rounded on the way in and exact on the way out.
class Tensor {
 public:
  Tensor(DType dtype, size_t elems) : dtype_(dtype), bytes_(elems * dtype_bytes(dtype)) {}
  Tensor(DType dtype, const Doubles& values) : Tensor(dtype, values.size()) {
    for (size_t i = 0; i < values.size(); ++i) set(i, float(values[i]));
  }
  void* data() { return bytes_.data(); }
  float* floats() { return reinterpret_cast<float*>(bytes_.data()); }
  [[nodiscard]] size_t size() const { return bytes_.size() / dtype_bytes(dtype_); }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  void set(size_t i, float value) {
    const bf16 half = to_bf16(value);
    std::memcpy(&bytes_[i * dtype_bytes(dtype_)],
                dtype_ == DType::f32 ? static_cast<void*>(&value) : (void*)&half, dtype_bytes(dtype_));
  }
  [[nodiscard]] double operator[](size_t i) const {
    if (dtype_ == DType::f32) {
      float value;
      std::memcpy(&value, &bytes_[i * 4], 4);
      return value;
    }
    bf16 half;
    std::memcpy(&half, &bytes_[i * 2], 2);
    return to_float(half);
  }
  [[nodiscard]] Doubles doubles() const {
    Doubles values(size());
    for (size_t i = 0; i < size(); ++i) values[i] = (*this)[i];
    return values;
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

inline Tensor random_tensor(DType dtype, size_t elems, unsigned seed, double spread = 1.0) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, spread);
  Doubles values(elems);
  for (double& v : values) v = normal(generator);
  return Tensor(dtype, values);
}

class ScratchMemory {
 public:
  explicit ScratchMemory(size_t bytes) : memory_(bytes) {}
  operator Scratch() { return {memory_.data(), memory_.size()}; }  // NOLINT: as the kernels take it

 private:
  std::vector<std::byte> memory_;
};

/// `scale`: the size of the terms, where sums may cancel.
/// fp32: sums in fp32 against sums in double. bf16: the same, then one
/// rounding (half a step is 2^-8 relative).
inline void expect_close(const Tensor& got, const Doubles& want, double fp32_tolerance = 1e-5,
                         double scale = 1e-3) {
  ASSERT_EQ(got.size(), want.size());
  for (double w : want) scale = std::max(scale, std::fabs(w));
  const double relative = got.dtype() == DType::f32 ? fp32_tolerance : fp32_tolerance + 0x1.01p-8;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + fp32_tolerance * scale) << "at " << i;
  }
}

/// d(loss)/d(x) by central differences; `loss` is a double-precision reference.
inline Doubles numeric_gradient(const std::function<double(const Doubles&)>& loss, Doubles x) {
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], h = 1e-5 * std::max(1.0, std::fabs(at));
    x[i] = at + h;
    const double above = loss(x);
    x[i] = at - h;
    gradient[i] = (above - loss(x)) / (2 * h);
    x[i] = at;
  }
  return gradient;
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace headrace::kernels
