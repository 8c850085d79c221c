// SPDX-License-Identifier: Apache-2.0
// Kernels that memory bounds: bytes that must move over the time taken, as a share of what a device-to-device
// copy moves. Tensors are half a gigabyte, far beyond any second-level cache.
#include <algorithm>
#include <random>
#include <set>

#include "headrace/adam.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "measure.h"

namespace headrace::bench {
namespace {

constexpr int64_t kRows = 65536, kCols = 4096, kElems = kRows * kCols;
constexpr DType kType = DType::bf16;

/// Collects the results; bytes are per element of a [kRows, kCols] tensor unless said otherwise.
class MemoryTable {
 public:
  explicit MemoryTable(Bench& bench) : bench_(bench) {
    const Operand from(kType, 2 * kElems), to(kType, 2 * kElems);
    const double bytes = 4.0 * double(kElems);
    const double seconds = bench_.timer.seconds([&] {
      cuda::check(cudaMemcpyAsync(to.data(), from.data(), size_t(bytes), cudaMemcpyDeviceToDevice,
                                  bench_.timer.stream()),
                  "a copy");
    });
    copy_ = 2e-9 * bytes / seconds;
    results_.push_back({{"kernel", "device copy"}, {"gb_per_s", copy_}, {"of_copy", 1.0}});
  }
  void add(const char* kernel, double bytes, const std::function<void()>& call) {
    const double rate = 1e-9 * bytes / bench_.timer.seconds(call);
    results_.push_back({{"kernel", kernel}, {"gb_per_s", rate}, {"of_copy", rate / copy_}});
  }
  Json& results() { return results_; }

 private:
  Bench& bench_;
  double copy_ = 0;
  Json results_ = Json::array();
};

void bench_norms(Bench& bench, MemoryTable& table) {
  const Operand x(kType, kElems), y(kType, kElems), dx(kType, kElems), w(kType, kCols), b(kType, kCols);
  const Operand mean(DType::f32, kRows), rstd(DType::f32, kRows), dw(DType::f32, kCols),
      db(DType::f32, kCols);
  const ScratchMemory scratch(kernels::norm_scratch_bytes(DeviceKind::cuda, kRows, kCols));
  const kernels::RmsNorm rms{kRows, kCols, 1e-5f, kType};
  const kernels::LayerNorm layer{kRows, kCols, 1e-5f, kType};
  Stream& s = bench.stream();
  table.add("rms_norm_forward", 4.0 * kElems,
            [&] { kernels::rms_norm_forward(s, rms, x.data(), w.data(), y.data(), rstd.as<float>()); });
  table.add("rms_norm_backward", 8.0 * kElems, [&] {
    kernels::rms_norm_backward(s, rms, x.data(), w.data(), rstd.as<float>(), y.data(), dx.data(), dx.data(),
                               dw.as<float>(), scratch);
  });
  table.add("layer_norm_forward", 4.0 * kElems, [&] {
    kernels::layer_norm_forward(s, layer, x.data(), w.data(), b.data(), y.data(), mean.as<float>(),
                                rstd.as<float>());
  });
  table.add("layer_norm_backward", 8.0 * kElems, [&] {
    kernels::layer_norm_backward(s, layer, x.data(), w.data(), mean.as<float>(), rstd.as<float>(), y.data(),
                                 dx.data(), dx.data(), dw.as<float>(), db.as<float>(), scratch);
  });
}

void bench_pointwise(Bench& bench, MemoryTable& table) {
  const Operand two(kType, 2 * kElems), two_more(kType, 2 * kElems), x(kType, kElems), y(kType, kElems);
  Stream& s = bench.stream();
  table.add("add", 6.0 * kElems, [&] { kernels::add(s, kElems, kType, two.data(), x.data(), y.data()); });
  table.add("swiglu_forward", 6.0 * kElems,
            [&] { kernels::swiglu_forward(s, kRows, kCols, kType, two.data(), y.data()); });
  table.add("swiglu_backward", 10.0 * kElems,
            [&] { kernels::swiglu_backward(s, kRows, kCols, kType, two.data(), x.data(), two_more.data()); });
  table.add("gelu_forward", 4.0 * kElems,
            [&] { kernels::gelu_forward(s, kElems, kType, x.data(), y.data()); });
  table.add("gelu_backward", 6.0 * kElems,
            [&] { kernels::gelu_backward(s, kElems, kType, x.data(), two.data(), y.data()); });
  table.add("cast fp32 to bf16", 6.0 * kElems,
            [&] { kernels::cast(s, kElems, DType::f32, two.data(), kType, y.data()); });
  const Operand sums(DType::f32, 2 * (kElems / kernels::kNormTileElems + 1));
  table.add("round_and_sum_squares", 6.0 * kElems, [&] {
    kernels::round_and_sum_squares(s, kElems, two.as<float>(), kType, y.data(), sums.as<double>());
  });
  // A row holds 20 heads that turn and 12 that stay.
  const kernels::Rotary rotary{.rows = kRows,
                               .seq = 4096,
                               .rotated_heads = 20,
                               .row_stride = kCols,
                               .head_dim = 128,
                               .theta = 1e4f,
                               .dtype = kType};
  table.add("rotary", 4.0 * kRows * 20 * 128, [&] { kernels::rotary(s, rotary, x.data()); });
}

void bench_tokens(Bench& bench, MemoryTable& table) {
  constexpr int64_t kVocab = 32000, kLogitRows = 8192;
  std::minstd_rand generator(1);
  std::vector<int32_t> tokens(static_cast<size_t>(kRows));
  for (int32_t& t : tokens) t = int32_t(generator() % unsigned(kVocab));
  const auto distinct = double(std::set<int32_t>(tokens.begin(), tokens.end()).size());
  const Operand ids(tokens), rows(kType, kElems), embeddings(kType, kVocab * kCols);
  const Operand gradient(DType::f32, kVocab * kCols);
  const kernels::Embedding e{kRows, 4096, kCols, kVocab, kType};
  Stream& s = bench.stream();
  table.add("embedding_forward", 4.0 * kElems, [&] {
    kernels::embedding_forward(s, e, ids.as<int32_t>(), embeddings.data(), nullptr, rows.data());
  });
  table.add("embedding_backward", 2.0 * kElems + 8.0 * distinct * kCols, [&] {
    kernels::embedding_backward(s, e, ids.as<int32_t>(), rows.data(), gradient.as<float>(), nullptr);
  });
  for (const auto& [name, vocab] :
       {std::pair{"cross_entropy 32000", int64_t(32000)}, {"cross_entropy 50257", int64_t(50257)}}) {
    const kernels::CrossEntropy c{kLogitRows, vocab, 1e-4f, kType};
    const Operand logits(DType::f32, kLogitRows * vocab), dlogits(kType, kLogitRows * vocab);
    const Operand sum(DType::f32, 2);
    const ScratchMemory scratch(kernels::cross_entropy_scratch_bytes(DeviceKind::cuda, kLogitRows));
    table.add(name, 6.0 * kLogitRows * double(vocab), [&] {
      kernels::cross_entropy(s, c, logits.as<float>(), ids.as<int32_t>(), sum.as<double>(), dlogits.data(),
                             scratch);
    });
  }
}

void bench_adamw(Bench& bench, MemoryTable& table) {
  const Operand hi(kType, kElems), lo(kType, kElems), gradient(kType, kElems);
  const Operand m(DType::f32, kElems), v(DType::f32, kElems);
  const adam::StepScalars scalars = adam::make_scalars({.lr = 1e-4, .weight_decay = 0.1}, 3, 1.0);
  // Read: hi, lo, m, v and gradient, 14 bytes. Written: all but the gradient, 12.
  const kernels::AdamwSpan span{kElems,        kType,         hi.data(),       lo.as<uint16_t>(),
                                m.as<float>(), v.as<float>(), gradient.data(), scalars};
  table.add("adamw", 26.0 * kElems, [&] { kernels::adamw(bench.stream(), {&span, 1}); });
}

}  // namespace

Json bench_memory(Bench& bench) {
  MemoryTable table(bench);
  bench_norms(bench, table);
  bench_pointwise(bench, table);
  bench_tokens(bench, table);
  bench_adamw(bench, table);
  return table.results();
}

}  // namespace headrace::bench
