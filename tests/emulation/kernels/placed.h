// SPDX-License-Identifier: Apache-2.0
// What the tests of the row and element kernels share: tensors that begin where the test wants, between
// guards, and a way to run a kernel to its end.
#pragma once

#include <cuda_runtime.h>

#include "tests/kernels/support.h"

namespace headrace::kernels {

constexpr DType kF32 = DType::f32, kBf16 = DType::bf16;

/// Elements behind a 16-byte boundary: with 0 kernels may take 16 bytes at a time, with 1 they may not.
constexpr size_t kShifts[] = {0, 1};

inline Tensor zeros(DType dtype, size_t elems) {
  return Tensor(dtype, Doubles(elems, 0.0));
}

/// A copy of a tensor that begins `shift` elements behind a 16-byte boundary. Nothing around it may be
/// written.
class Placed {
 public:
  Placed(Tensor values, size_t shift)
      : values_(std::move(values)),
        begin_(kGuardBytes + shift * dtype_bytes(values_.dtype())),
        memory_(begin_ + values_.bytes().size() + kGuardBytes, kGuard) {
    if (!values_.bytes().empty()) std::memcpy(data(), values_.data(), values_.bytes().size());
  }
  Placed(DType dtype, size_t elems, size_t shift) : Placed(Tensor(dtype, elems), shift) {}

  void* data() { return memory_.data() + begin_; }
  float* floats() { return reinterpret_cast<float*>(data()); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }
  /// What is there now.
  Tensor& get() {
    const size_t bytes = values_.bytes().size();
    if (bytes) std::memcpy(values_.data(), data(), bytes);
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (i < begin_ || i >= begin_ + bytes) EXPECT_EQ(memory_[i], kGuard) << "guard at " << i;
    }
    return values_;
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0xa5};
  Tensor values_;
  size_t begin_;
  std::vector<std::byte> memory_;
};

/// Runs what `enqueue` puts into the default stream.
template <class F>
void run(F&& enqueue) {
  enqueue(cudaStream_t(nullptr));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

inline double derivative(const std::function<double(double)>& f, double x) {
  const double h = 1e-5 * std::max(1.0, std::fabs(x));
  return (f(x + h) - f(x - h)) / (2 * h);
}

}  // namespace headrace::kernels
