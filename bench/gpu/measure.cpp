// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/check.h"

namespace headrace::bench {

using cuda::check;

Operand::Operand(DType dtype, int64_t elems) {
  const size_t bytes = std::max<size_t>(size_t(elems) * dtype_bytes(dtype), 2);
  check(cudaMalloc(&data_, bytes), "memory of a benchmark");
  // A short stretch of noise, doubled until the end.
  constexpr size_t kNoise = 1 << 20;
  std::minstd_rand generator(1);
  std::vector<bf16> noise(kNoise);
  for (bf16& x : noise) x = to_bf16(float(generator() % 20001) / 10000.0f - 1.0f);
  if (dtype == DType::f32) {
    for (size_t i = 0; i < kNoise; i += 2) noise[i] = bf16{};  // the lower halves
  }
  size_t filled = std::min(bytes, kNoise * sizeof(bf16));
  check(cudaMemcpy(data_, noise.data(), filled, cudaMemcpyHostToDevice), "noise");
  for (; filled < bytes; filled += std::min(filled, bytes - filled)) {
    check(cudaMemcpy(as<std::byte>() + filled, data_, std::min(filled, bytes - filled),
                     cudaMemcpyDeviceToDevice),
          "noise");
  }
}

Operand::Operand(const std::vector<int32_t>& values) {
  check(cudaMalloc(&data_, values.size() * 4), "memory of a benchmark");
  check(cudaMemcpy(data_, values.data(), values.size() * 4, cudaMemcpyHostToDevice), "indices");
}

Timer::Timer(cudaStream_t stream) : stream_(stream) {
  check(cudaEventCreate(&begin_), "an event");
  check(cudaEventCreate(&end_), "an event");
}

Timer::~Timer() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

double Timer::sample(const std::function<void()>& call, int calls) {
  check(cudaEventRecord(begin_, stream_), "an event");
  for (int i = 0; i < calls; ++i) call();
  check(cudaEventRecord(end_, stream_), "an event");
  check(cudaEventSynchronize(end_), "the end of a benchmark");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin_, end_), "time between events");
  return 1e-3 * double(ms) / calls;
}

double Timer::seconds(const std::function<void()>& call) {
  constexpr double kSampleSeconds = 5e-3;
  constexpr int kSamples = 7, kMostCalls = 200;
  sample(call, 2);
  const double estimate = std::max(sample(call, 2), 1e-7);
  const int calls = std::clamp(int(std::ceil(kSampleSeconds / estimate)), 1, kMostCalls);
  std::array<double, kSamples> samples{};
  for (double& s : samples) s = sample(call, calls);
  std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
  return samples[kSamples / 2];
}

}  // namespace headrace::bench
