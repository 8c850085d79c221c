// SPDX-License-Identifier: Apache-2.0
// How close the update comes to the memory: 16 Mi parameters, each layout beside a "mix" kernel that moves
// the same streams with one operation each. bytes_per_second counts every byte read and written once; the mix
// is the ceiling to compare with. Run with --benchmark_enable_random_interleaving=true
// --benchmark_repetitions=9 where the machine's bandwidth drifts; read ratios, not absolute figures.
#include <benchmark/benchmark.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <span>

#include "headrace/adam.h"

namespace headrace::adam {
namespace {

constexpr size_t kParams = 16 * 1024 * 1024;

/// Zeroed memory in huge pages where the system has them.
template <class T>
class Stream {
 public:
  Stream() {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("cpu_adam_bench: mmap");
      std::exit(1);
    }
    madvise(memory, kBytes, MADV_HUGEPAGE);
    data_ = static_cast<T*>(memory);
  }
  ~Stream() { munmap(data_, kBytes); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  T* data() const { return data_; }
  std::span<T> span() const { return {data_, kParams}; }

 private:
  static constexpr size_t kBytes = kParams * sizeof(T);
  T* data_;
};

struct Fp32Streams {
  static constexpr size_t kBytesMoved = 28;  // read w, m, v, grad; write w, m, v
  Stream<float> w, m, v, grad;

  Fp32Streams() {
    for (size_t i = 0; i < kParams; ++i) {
      w.data()[i] = 0.02f;
      m.data()[i] = v.data()[i] = 1e-6f;
      grad.data()[i] = float(i % 1000) * 1e-6f;
    }
  }
  void update(Workers& workers, const StepScalars& s) {
    workers.adamw(w.span(), m.span(), v.span(), {grad.data(), DType::f32}, s);
  }
  void mix(size_t begin, size_t end) {
    float* __restrict a = w.data();
    float* __restrict b = m.data();
    float* __restrict c = v.data();
    const float* __restrict g = grad.data();
    for (size_t i = begin; i < end; ++i) {
      a[i] += g[i];
      b[i] *= 0.5f;
      c[i] *= 0.5f;
    }
  }
};

struct SplitStreams {
  static constexpr size_t kBytesMoved = 26;  // read hi, lo, m, v, bf16 grad; write hi, lo, m, v
  Stream<bf16> hi, grad;
  Stream<uint16_t> lo;
  Stream<float> m, v;

  SplitStreams() {
    for (size_t i = 0; i < kParams; ++i) {
      const SplitMaster master = split_master(0.02f);
      hi.data()[i] = master.hi;
      lo.data()[i] = master.lo;
      m.data()[i] = v.data()[i] = 1e-6f;
      grad.data()[i] = to_bf16(float(i % 1000) * 1e-6f);
    }
  }
  void update(Workers& workers, const StepScalars& s) {
    workers.adamw(hi.span(), lo.span(), m.span(), v.span(), {grad.data(), DType::bf16}, s);
  }
  void mix(size_t begin, size_t end) {
    bf16* __restrict a = hi.data();
    uint16_t* __restrict b = lo.data();
    float* __restrict c = m.data();
    float* __restrict d = v.data();
    const bf16* __restrict g = grad.data();
    for (size_t i = begin; i < end; ++i) {
      a[i] = bf16(uint16_t(uint16_t(a[i]) ^ uint16_t(g[i])));
      b[i] ^= uint16_t{0x5555};
      c[i] *= 0.5f;
      d[i] *= 0.5f;
    }
  }
};

void count(benchmark::State& state, size_t bytes_moved) {
  state.SetItemsProcessed(state.iterations() * int64_t(kParams));
  state.SetBytesProcessed(state.iterations() * int64_t(kParams * bytes_moved));
}

template <class Streams>
void adamw_step(benchmark::State& state) {
  Streams streams;
  Workers workers(int(state.range(0)));
  state.SetLabel(isa_name(active_isa()));
  uint64_t t = 0;
  for (auto _ : state) {
    streams.update(workers, make_scalars({.lr = 1e-4, .weight_decay = 0.01}, ++t, 1.0));
    benchmark::ClobberMemory();
  }
  count(state, Streams::kBytesMoved);
}

template <class Streams>
void stream_mix(benchmark::State& state) {
  Streams streams;
  const auto threads = size_t(state.range(0));
  tbb::task_arena arena(int(state.range(0)));
  for (auto _ : state) {
    arena.execute([&] {
      tbb::parallel_for(
          size_t{0}, threads,
          [&](size_t k) { streams.mix(kParams * k / threads, kParams * (k + 1) / threads); },
          tbb::static_partitioner{});
    });
    benchmark::ClobberMemory();
  }
  count(state, Streams::kBytesMoved);
}

void norm(benchmark::State& state) {
  const SplitStreams streams;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sum_squares({streams.grad.data(), DType::bf16}, kParams));
  }
  count(state, sizeof(bf16));
}

BENCHMARK(stream_mix<Fp32Streams>)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(adamw_step<Fp32Streams>)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(stream_mix<SplitStreams>)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(adamw_step<SplitStreams>)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(norm)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headrace::adam

BENCHMARK_MAIN();
