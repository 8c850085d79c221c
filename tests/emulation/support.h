// SPDX-License-Identifier: Apache-2.0
// What tests of CUDA kernels share: a CUDA stream behind headrace::Stream for the public functions of
// kernels/*.h, and tensors in device memory. Nothing in it is only true of the emulated GPU: compiled against
// the toolkit the same tests run on a real one. tests/kernels/support.h has the Tensor that holds the values.
//
//   EmulatedStream stream;
//   DeviceTensor x(random_tensor(DType::bf16, rows * cols, 1)), y(DType::bf16, rows * cols);
//   rms_norm_forward(stream, norm, x.data(), ...);
//   expect_close(y.fetch(stream), want);
//
// Emulated device memory ends where the tensor ends, so that AddressSanitizer sees an overrun, and holds NaN
// patterns until it is written.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "headrace/stream.h"
#include "kernels/gemm.h"
#include "tests/kernels/support.h"
#ifdef HEADRACE_CUDA_EMULATED
#include "tests/emulation/control.h"
#endif

namespace headrace::kernels {

inline void expect_success(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::string message = cudaGetErrorName(error);
#ifdef HEADRACE_CUDA_EMULATED
  message += ": " + emulation::last_fault();
#endif
  throw DeviceError(message);
}

class EmulatedStream final : public Stream {
 public:
  EmulatedStream() { expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~EmulatedStream() override { cudaStreamDestroy(stream_); }
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
  [[nodiscard]] void* native_handle() const override { return stream_; }
  operator cudaStream_t() const { return stream_; }  // NOLINT: what kernels/cuda/cuda_kernels.h takes
  void enqueue(Task task) override {
    auto* const owned = new Task(std::move(task));
    expect_success(cudaLaunchHostFunc(
        stream_,
        [](void* data) {
          (*static_cast<Task*>(data))();
          delete static_cast<Task*>(data);
        },
        owned));
  }
  void copy(void* to, const void* from, size_t bytes) override {
    expect_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }
  void zero(void* to, size_t bytes) override { expect_success(cudaMemsetAsync(to, 0, bytes, stream_)); }
  void wait(const Event&) override {}
  void record(Event&) override {}
  /// Throws DeviceError with the fault's message when a kernel has broken a rule.
  void synchronize() override { expect_success(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    expect_success(cudaMalloc(&memory, bytes));
    memory_ = static_cast<std::byte*>(memory);
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(DeviceBytes&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBytes& operator=(DeviceBytes&&) = delete;
  [[nodiscard]] std::byte* data() const { return memory_; }
  [[nodiscard]] size_t size() const { return bytes_; }
  operator Scratch() const { return {memory_, bytes_}; }  // NOLINT: as the kernels take it

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_;
};

inline void copy_bytes(void* to, const void* from, size_t bytes) {
  expect_success(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

/// Elements in device memory. With `offset` elements before the first, the address is not that of an
/// allocation: 16-byte accesses may not be possible.
class DeviceTensor {
 public:
  DeviceTensor(DType dtype, size_t elems, size_t offset = 0)
      : dtype_(dtype), offset_(offset * dtype_bytes(dtype)), bytes_(offset_ + elems * dtype_bytes(dtype)) {}
  explicit DeviceTensor(const Tensor& values, size_t offset = 0)
      : DeviceTensor(values.dtype(), values.size(), offset) {
    copy_bytes(data(), values.bytes().data(), values.bytes().size());
  }
  [[nodiscard]] std::byte* data() const { return bytes_.data() + offset_; }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data()); }
  [[nodiscard]] size_t size() const { return (bytes_.size() - offset_) / dtype_bytes(dtype_); }
  [[nodiscard]] DType dtype() const { return dtype_; }

  /// Waits for the stream. Throws as EmulatedStream::synchronize().
  [[nodiscard]] Tensor fetch(Stream& stream) const {
    stream.synchronize();
    Tensor values(dtype_, size());
    copy_bytes(values.data(), data(), bytes_.size() - offset_);
    return values;
  }

 private:
  DType dtype_;
  size_t offset_;
  DeviceBytes bytes_;
};

/// Any plain values (tokens, labels, offsets) in device memory.
template <class T>
class DeviceValues {
 public:
  explicit DeviceValues(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    copy_bytes(bytes_.data(), values.data(), bytes_.size());
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
  [[nodiscard]] std::vector<T> fetch(Stream& stream) const {
    stream.synchronize();
    std::vector<T> values(bytes_.size() / sizeof(T));
    copy_bytes(values.data(), bytes_.data(), bytes_.size());
    return values;
  }

 private:
  DeviceBytes bytes_;
};

}  // namespace headrace::kernels
