// SPDX-License-Identifier: Apache-2.0
// Speed of the host kernels on the shapes of GPT-2 124M (rows 512, head in chunks of 128 rows) and of the
// demo model. Each line tells the best run: products and attention in GFLOP/s and as a share of the fp32
// peak, which is a large square product in this process; everything else in GB/s of bytes that must move.
// --peaks prints such products in fp32 and bf16 as JSON and nothing else.
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "headrace/stream.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/host/host_kernels.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"

namespace headrace::kernels {
namespace {

class InlineStream final : public Stream {
 public:
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::host; }
  [[nodiscard]] void* native_handle() const override { return nullptr; }
  void enqueue(Task task) override { task(); }
  void copy(void*, const void*, size_t) override {}
  void zero(void*, size_t) override {}
  void wait(const Event&) override {}
  void record(Event&) override {}
  void synchronize() override {}
};

/// Numbers of order 1 in either format, with a cache line to spare.
class Operand {
 public:
  Operand(DType dtype, int64_t elems) : words_(size_t(elems) * dtype_bytes(dtype) / 2 + 64) {
    std::minstd_rand generator(1);
    std::vector<bf16> values(4096);
    for (bf16& v : values) v = to_bf16(float(generator() % 2001) / 1000.0f - 1.0f);
    const size_t step = dtype_bytes(dtype) / 2;  // an fp32 with an empty lower half is a bf16
    for (size_t i = 0; i < size_t(elems); ++i) words_[i * step + step - 1] = uint16_t(values[i % 4096]);
  }
  void* data() { return words_.data(); }
  float* floats() { return reinterpret_cast<float*>(words_.data()); }

 private:
  std::vector<uint16_t> words_;
};

class ScratchMemory {
 public:
  explicit ScratchMemory(size_t bytes) : memory_(bytes) {}
  operator Scratch() { return {memory_.data(), memory_.size()}; }  // NOLINT: as the kernels take it

 private:
  std::vector<std::byte> memory_;
};

/// Wall time; with OMP_NUM_THREADS=1 the time this process had a core, so that
/// a busy machine can be measured too.
double now_seconds() {
  static const char* threads = std::getenv("OMP_NUM_THREADS");
  static const clockid_t clock =
      threads && std::string(threads) == "1" ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  timespec now{};
  clock_gettime(clock, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

template <class F>
double best_seconds(benchmark::State& state, F run) {
  double best = 1e30;
  run();  // makes primitives, touches pages
  for (auto _ : state) {
    const double start = now_seconds();
    run();
    best = std::min(best, now_seconds() - start);
  }
  return best;
}

/// The best of some runs of one square product.
double square_gflops(DType in, host::Bf16Products how) {
  constexpr int64_t n = 2048;
  Operand a(in, n * n), b(in, n * n), c(in, n * n);
  const Gemm g{.m = n,
               .n = n,
               .k = n,
               .a = a.data(),
               .lda = n,
               .b = b.data(),
               .ldb = n,
               .in = in,
               .c = c.data(),
               .ldc = n,
               .out = in};
  ScratchMemory scratch(host::gemm_scratch_bytes(g, how));
  double best = 1e30;
  for (int i = 0; i < 8; ++i) {
    const double start = now_seconds();
    host::gemm(g, scratch, how);
    best = std::min(best, now_seconds() - start);
  }
  return 2e-9 * double(n) * double(n) * double(n) / best;
}

double peak_gflops() {
  static const double peak = square_gflops(DType::f32, host::Bf16Products::automatic);
  return peak;
}

/// What a square product reaches in each format, as one JSON object, for programs that compare with it.
void print_peaks() {
  std::printf("{\"fp32_gflops\": %.1f, \"bf16_native_gflops\": %.1f, \"bf16_converted_gflops\": %.1f}\n",
              peak_gflops(), square_gflops(DType::bf16, host::Bf16Products::native),
              square_gflops(DType::bf16, host::Bf16Products::converted));
}

void report_flops(benchmark::State& state, double flops, double seconds) {
  state.counters["GFLOP/s"] = 1e-9 * flops / seconds;
  state.counters["of_peak"] = 1e-9 * flops / seconds / peak_gflops();
}

void report_bytes(benchmark::State& state, double bytes, double seconds) {
  state.counters["GB/s"] = 1e-9 * bytes / seconds;
}

enum class Product { forward, backward_input, backward_weight };

void linear(benchmark::State& state, Product product, DType dtype) {
  InlineStream stream;
  const Linear l{
      .rows = state.range(0), .in_features = state.range(1), .out_features = state.range(2), .dtype = dtype};
  Operand x(dtype, l.rows * l.in_features), w(dtype, l.in_features * l.out_features);
  Operand y(dtype, l.rows * l.out_features), dw(DType::f32, l.in_features * l.out_features);
  ScratchMemory scratch(linear_scratch_bytes(DeviceKind::host, l));
  const double best = best_seconds(state, [&] {
    if (product == Product::forward) {
      linear_forward(stream, l, x.data(), w.data(), nullptr, y.data(), scratch);
    } else if (product == Product::backward_input) {
      linear_backward_input(stream, l, y.data(), w.data(), x.data(), scratch);
    } else {
      linear_backward_weight(stream, l, y.data(), x.data(), dw.floats(), nullptr, scratch);
    }
  });
  report_flops(state, 2.0 * double(l.rows) * double(l.in_features) * double(l.out_features), best);
}

void attention(benchmark::State& state, bool backward, DType dtype) {
  InlineStream stream;
  const Attention a{state.range(0), state.range(1), state.range(2), state.range(2),
                    state.range(3), 0.125f,         dtype};
  const int64_t rows = a.batch * a.seq, width = a.heads * a.head_dim;
  Operand qkv(dtype, rows * 3 * width), dqkv(dtype, rows * 3 * width), out(dtype, rows * width);
  Operand dout(dtype, rows * width), lse(DType::f32, a.batch * a.heads * a.seq);
  ScratchMemory scratch(attention_scratch_bytes(DeviceKind::host, a));
  attention_forward(stream, a, qkv.data(), out.data(), lse.floats(), scratch);
  const double best = best_seconds(state, [&] {
    if (backward) {
      attention_backward(stream, a, qkv.data(), out.data(), lse.floats(), dout.data(), dqkv.data(), scratch);
    } else {
      attention_forward(stream, a, qkv.data(), out.data(), lse.floats(), scratch);
    }
  });
  // Causal: half of the scores. Two products forward, five backward.
  report_flops(state, (backward ? 5.0 : 2.0) * double(rows) * double(a.seq) * double(width), best);
}

constexpr int64_t kRows = 512, kCols = 3072, kElems = kRows * kCols;

void swiglu(benchmark::State& state, bool backward, DType dtype) {
  InlineStream stream;
  Operand gate_up(dtype, 2 * kElems), y(dtype, kElems), d(dtype, 2 * kElems);
  const double best = best_seconds(state, [&] {
    if (backward)
      swiglu_backward(stream, kRows, kCols, dtype, gate_up.data(), y.data(), d.data());
    else
      swiglu_forward(stream, kRows, kCols, dtype, gate_up.data(), y.data());
  });
  report_bytes(state, double(kElems) * double(dtype_bytes(dtype)) * (backward ? 5 : 3), best);
}

void gelu(benchmark::State& state, bool backward, DType dtype) {
  InlineStream stream;
  Operand x(dtype, kElems), y(dtype, kElems), dx(dtype, kElems);
  const double best = best_seconds(state, [&] {
    if (backward)
      gelu_backward(stream, kElems, dtype, x.data(), y.data(), dx.data());
    else
      gelu_forward(stream, kElems, dtype, x.data(), y.data());
  });
  report_bytes(state, double(kElems) * double(dtype_bytes(dtype)) * (backward ? 3 : 2), best);
}

void add_residual(benchmark::State& state, DType dtype) {
  InlineStream stream;
  Operand a(dtype, kElems), b(dtype, kElems);
  const double best = best_seconds(state, [&] { add(stream, kElems, dtype, a.data(), b.data(), a.data()); });
  report_bytes(state, 3.0 * double(kElems) * double(dtype_bytes(dtype)), best);
}

void gradient_hand_over(benchmark::State& state, DType to) {
  InlineStream stream;
  Operand x(DType::f32, kElems), y(to, kElems);
  std::vector<double> sums(size_t(kElems / kNormTileElems) + 1);
  const double best = best_seconds(
      state, [&] { round_and_sum_squares(stream, kElems, x.floats(), to, y.data(), sums.data()); });
  report_bytes(state, double(kElems) * double(4 + dtype_bytes(to)), best);
}

constexpr int64_t kHidden = 768;

void rms_norm(benchmark::State& state, bool backward, DType dtype) {
  InlineStream stream;
  const RmsNorm n{kRows, kHidden, 1e-5f, dtype};
  Operand x(dtype, kRows * kHidden), y(dtype, kRows * kHidden), w(dtype, kHidden), dw(DType::f32, kHidden);
  Operand dx(dtype, kRows * kHidden), rstd(DType::f32, kRows);
  ScratchMemory scratch(norm_scratch_bytes(DeviceKind::host, kRows, kHidden));
  const double best = best_seconds(state, [&] {
    if (!backward) return rms_norm_forward(stream, n, x.data(), w.data(), y.data(), rstd.floats());
    rms_norm_backward(stream, n, x.data(), w.data(), rstd.floats(), y.data(), dx.data(), dx.data(),
                      dw.floats(), scratch);
  });
  report_bytes(state, double(kRows * kHidden) * double(dtype_bytes(dtype)) * (backward ? 4 : 2), best);
}

void layer_norm(benchmark::State& state, bool backward, DType dtype) {
  InlineStream stream;
  const LayerNorm n{kRows, kHidden, 1e-5f, dtype};
  Operand x(dtype, kRows * kHidden), y(dtype, kRows * kHidden), w(dtype, kHidden), dw(DType::f32, kHidden);
  Operand dx(dtype, kRows * kHidden), rstd(DType::f32, kRows), mean(DType::f32, kRows),
      db(DType::f32, kHidden);
  ScratchMemory scratch(norm_scratch_bytes(DeviceKind::host, kRows, kHidden));
  const double best = best_seconds(state, [&] {
    if (!backward) {
      return layer_norm_forward(stream, n, x.data(), w.data(), w.data(), y.data(), mean.floats(),
                                rstd.floats());
    }
    layer_norm_backward(stream, n, x.data(), w.data(), mean.floats(), rstd.floats(), y.data(), dx.data(),
                        dx.data(), dw.floats(), db.floats(), scratch);
  });
  report_bytes(state, double(kRows * kHidden) * double(dtype_bytes(dtype)) * (backward ? 4 : 2), best);
}

void rotary_positions(benchmark::State& state, DType dtype) {
  InlineStream stream;
  const Rotary r{.rows = 2048,
                 .seq = 256,
                 .rotated_heads = 16,
                 .row_stride = 768,
                 .head_dim = 32,
                 .theta = 1e4f,
                 .dtype = dtype};
  Operand qkv(dtype, 2048 * 768);
  const double best = best_seconds(state, [&] { rotary(stream, r, qkv.data()); });
  report_bytes(state, 2048.0 * 512 * 2 * double(dtype_bytes(dtype)), best);
}

void loss(benchmark::State& state, DType dtype) {
  InlineStream stream;
  const CrossEntropy c{.rows = 128, .vocab = state.range(0), .grad_scale = 1.0f, .dtype = dtype};
  Operand logits(DType::f32, c.rows * c.vocab), grad(dtype, c.rows * c.vocab);
  const std::vector<int32_t> labels(size_t(c.rows), 3);
  double sum = 0.0;
  const double best = best_seconds(
      state, [&] { cross_entropy(stream, c, logits.floats(), labels.data(), &sum, grad.data(), {}); });
  report_bytes(state, double(c.rows * c.vocab) * double(4 + dtype_bytes(dtype)), best);
}

void embedding(benchmark::State& state, bool backward, DType dtype) {
  InlineStream stream;
  const Embedding e{.rows = kRows, .seq = kRows, .cols = kHidden, .vocab = 50257, .dtype = dtype};
  Operand table(dtype, e.vocab * e.cols), positions(dtype, e.seq * e.cols), y(dtype, e.rows * e.cols);
  Operand dtable(DType::f32, e.vocab * e.cols), dpositions(DType::f32, e.seq * e.cols);
  std::vector<int32_t> tokens(static_cast<size_t>(kRows));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i * 9973 % 50257);
  const double best = best_seconds(state, [&] {
    if (backward)
      embedding_backward(stream, e, tokens.data(), y.data(), dtable.floats(), dpositions.floats());
    else
      embedding_forward(stream, e, tokens.data(), table.data(), positions.data(), y.data());
  });
  const double wide = double(kRows * kHidden);
  report_bytes(state, wide * (double(dtype_bytes(dtype)) * (backward ? 1 : 3) + (backward ? 16 : 0)), best);
}

void gpt2_and_demo_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "in", "out"});
  for (const auto& [in, out] : {std::pair{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}})
    b->Args({512, in, out});
  b->Args({128, 768, 50257});
  for (const auto& [in, out] : {std::pair{256, 768}, {256, 256}, {256, 1408}, {704, 256}})
    b->Args({512, in, out});
}

void attention_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"batch", "seq", "heads", "head_dim"})->Args({1, 512, 12, 64})->Args({8, 256, 8, 32});
  b->Args({1, 1024, 12, 64})->Args({1, 1024, 8, 128});
}

#define HEADRACE_BENCH(name, ...) \
  BENCHMARK_CAPTURE(name, __VA_ARGS__)->UseRealTime()->Unit(benchmark::kMicrosecond)

HEADRACE_BENCH(linear, forward_fp32, Product::forward, DType::f32)->Apply(gpt2_and_demo_shapes);
HEADRACE_BENCH(linear, backward_input_fp32, Product::backward_input, DType::f32)->Apply(gpt2_and_demo_shapes);
HEADRACE_BENCH(linear, backward_weight_fp32, Product::backward_weight, DType::f32)
    ->Apply(gpt2_and_demo_shapes);
HEADRACE_BENCH(linear, forward_bf16, Product::forward, DType::bf16)->Apply(gpt2_and_demo_shapes);
HEADRACE_BENCH(linear, backward_input_bf16, Product::backward_input, DType::bf16)
    ->Apply(gpt2_and_demo_shapes);
HEADRACE_BENCH(linear, backward_weight_bf16, Product::backward_weight, DType::bf16)
    ->Apply(gpt2_and_demo_shapes);
HEADRACE_BENCH(attention, forward_fp32, false, DType::f32)->Apply(attention_shapes);
HEADRACE_BENCH(attention, forward_bf16, false, DType::bf16)->Apply(attention_shapes);
HEADRACE_BENCH(attention, backward_fp32, true, DType::f32)->Apply(attention_shapes);
HEADRACE_BENCH(attention, backward_bf16, true, DType::bf16)->Apply(attention_shapes);
HEADRACE_BENCH(swiglu, forward_fp32, false, DType::f32);
HEADRACE_BENCH(swiglu, forward_bf16, false, DType::bf16);
HEADRACE_BENCH(swiglu, backward_fp32, true, DType::f32);
HEADRACE_BENCH(swiglu, backward_bf16, true, DType::bf16);
HEADRACE_BENCH(gelu, forward_fp32, false, DType::f32);
HEADRACE_BENCH(gelu, forward_bf16, false, DType::bf16);
HEADRACE_BENCH(gelu, backward_fp32, true, DType::f32);
HEADRACE_BENCH(gelu, backward_bf16, true, DType::bf16);
HEADRACE_BENCH(add_residual, fp32, DType::f32);
HEADRACE_BENCH(add_residual, bf16, DType::bf16);
HEADRACE_BENCH(gradient_hand_over, fp32, DType::f32);
HEADRACE_BENCH(gradient_hand_over, bf16, DType::bf16);
HEADRACE_BENCH(rms_norm, forward_fp32, false, DType::f32);
HEADRACE_BENCH(rms_norm, forward_bf16, false, DType::bf16);
HEADRACE_BENCH(rms_norm, backward_fp32, true, DType::f32);
HEADRACE_BENCH(rms_norm, backward_bf16, true, DType::bf16);
HEADRACE_BENCH(layer_norm, forward_fp32, false, DType::f32);
HEADRACE_BENCH(layer_norm, forward_bf16, false, DType::bf16);
HEADRACE_BENCH(layer_norm, backward_fp32, true, DType::f32);
HEADRACE_BENCH(layer_norm, backward_bf16, true, DType::bf16);
HEADRACE_BENCH(rotary_positions, fp32, DType::f32);
HEADRACE_BENCH(rotary_positions, bf16, DType::bf16);
HEADRACE_BENCH(loss, fp32, DType::f32)->ArgName("vocab")->Arg(50257)->Arg(256);
HEADRACE_BENCH(loss, bf16, DType::bf16)->ArgName("vocab")->Arg(50257)->Arg(256);
HEADRACE_BENCH(embedding, forward_fp32, false, DType::f32);
HEADRACE_BENCH(embedding, forward_bf16, false, DType::bf16);
HEADRACE_BENCH(embedding, backward_fp32, true, DType::f32);
HEADRACE_BENCH(embedding, backward_bf16, true, DType::bf16);

}  // namespace
}  // namespace headrace::kernels

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--peaks") {
    headrace::kernels::print_peaks();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
