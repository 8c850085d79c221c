// SPDX-License-Identifier: Apache-2.0
// The three products of the linear layers of llama-like models through kernels::gemm, beside cuBLASLt called
// directly: its heuristic's first choice, and the fastest of eight.
#include <algorithm>
#include <array>

#include "cublas_direct.h"
#include "kernels/linear_products.h"
#include "measure.h"

namespace headrace::bench {
namespace {

struct LayerCase {
  const char* name;
  int64_t rows, in, out;
};

constexpr LayerCase kLayers[] = {
    {"square 8192", 8192, 8192, 8192},      {"1b qkv", 16384, 2048, 2560},
    {"1b gate and up", 16384, 2048, 11264}, {"1b down", 16384, 5632, 2048},
    {"8b qkv", 8192, 4096, 6144},           {"8b gate and up", 8192, 4096, 28672},
    {"8b down", 8192, 14336, 4096},         {"8b head", 2048, 4096, 128256},
    {"gpt2 head", 4096, 768, 50257}};

double median(std::array<double, 3> x) {
  std::ranges::sort(x);
  return x[1];
}

Json measure(Bench& bench, const LayerCase& layer, const char* product, const kernels::Gemm& g) {
  const ScratchMemory scratch(kernels::gemm_scratch_bytes(DeviceKind::cuda, g));
  const CublasDirect direct(g);
  std::array<double, 3> ours{}, theirs{};
  // In turn, so that a change of clocks meets both.
  for (size_t round = 0; round < ours.size(); ++round) {
    ours[round] = bench.timer.seconds([&] { kernels::gemm(bench.stream(), g, scratch); });
    theirs[round] = bench.timer.seconds([&] { direct.run(bench.timer.stream()); });
  }
  double best = median(theirs);
  for (size_t i = 1; i < direct.algorithms(); ++i)
    best = std::min(best, bench.timer.seconds([&] { direct.run(bench.timer.stream(), i); }));
  const double tera = 2e-12 * double(g.m) * double(g.n) * double(g.k);
  return {{"layer", layer.name},
          {"product", product},
          {"m", g.m},
          {"n", g.n},
          {"k", g.k},
          {"tflops", tera / median(ours)},
          {"cublas_tflops", tera / median(theirs)},
          {"cublas_best_tflops", tera / best},
          {"of_cublas", median(theirs) / median(ours)}};
}

}  // namespace

Json bench_gemm(Bench& bench) {
  Json results = Json::array();
  for (const LayerCase& layer : kLayers) {
    const kernels::Linear l{layer.rows, layer.in, layer.out, DType::bf16};
    const Operand x(DType::bf16, l.rows * l.in_features), w(DType::bf16, l.in_features * l.out_features);
    const Operand y(DType::bf16, l.rows * l.out_features), dx(DType::bf16, l.rows * l.in_features);
    const Operand dw(DType::f32, l.in_features * l.out_features);
    results.push_back(
        measure(bench, layer, "forward", kernels::forward_product(l, x.data(), w.data(), nullptr, y.data())));
    results.push_back(measure(bench, layer, "backward input",
                              kernels::backward_input_product(l, y.data(), w.data(), dx.data())));
    results.push_back(measure(bench, layer, "backward weight",
                              kernels::backward_weight_product(l, y.data(), x.data(), dw.as<float>())));
  }
  return results;
}

}  // namespace headrace::bench
