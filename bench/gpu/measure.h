// SPDX-License-Identifier: Apache-2.0
// What the sections of gpu_bench share: device memory full of noise, scratch, and the median time of a call,
// taken with events on the stream that it runs on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "device/device.h"
#include "headrace/dtype.h"
#include "kernels/gemm.h"

namespace headrace::bench {

using Json = nlohmann::ordered_json;

/// Device memory that holds numbers between -1 and 1: products of zeros would run at a higher clock.
class Operand {
 public:
  Operand(DType dtype, int64_t elems);
  explicit Operand(const std::vector<int32_t>& values);
  ~Operand() { cudaFree(data_); }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  [[nodiscard]] void* data() const { return data_; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

class ScratchMemory {
 public:
  explicit ScratchMemory(size_t bytes) : memory_(DType::bf16, int64_t(bytes / 2 + 1)), bytes_(bytes) {}
  operator kernels::Scratch() const {
    return {memory_.as<std::byte>(), bytes_};
  }  // NOLINT: as kernels take it

 private:
  Operand memory_;
  size_t bytes_;
};

class Timer {
 public:
  explicit Timer(cudaStream_t stream);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  /// Median over samples of the seconds of one call. A sample is as many calls in a row as make some
  /// milliseconds, so that launches and events weigh nothing; calls before the first sample warm up.
  double seconds(const std::function<void()>& call);
  cudaStream_t stream() const { return stream_; }

 private:
  double sample(const std::function<void()>& call, int calls);
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// What every section works on.
struct Bench {
  Device& device;
  Timer timer;
  explicit Bench(Device& on) : device(on), timer(static_cast<cudaStream_t>(on.compute().native_handle())) {}
  [[nodiscard]] Stream& stream() const { return device.compute(); }
};

/// Each returns an array of objects, one for each thing measured.
Json bench_gemm(Bench& bench);
Json bench_attention(Bench& bench);
Json bench_memory(Bench& bench);
Json bench_copies(Bench& bench);

}  // namespace headrace::bench
