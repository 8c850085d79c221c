// SPDX-License-Identifier: Apache-2.0
// Causal attention in bf16: TFLOP/s counting only the scores that exist, seq (seq + 1) / 2 of each head.
// Forward is two products of 2 head_dim operations a score; backward is five.
#include "kernels/attention.h"

#include "measure.h"

namespace headrace::bench {
namespace {

constexpr int64_t kTokens = 16384;

Json measure(Bench& bench, int64_t head_dim, int64_t seq, int64_t heads, int64_t kv_heads) {
  const kernels::Attention a{kTokens / seq, seq, heads, kv_heads, head_dim, 1.0f / std::sqrt(float(head_dim)),
                             DType::bf16};
  const int64_t cols = (heads + 2 * kv_heads) * head_dim;
  const Operand qkv(DType::bf16, kTokens * cols), dqkv(DType::bf16, kTokens * cols);
  const Operand out(DType::bf16, kTokens * heads * head_dim), dout(DType::bf16, kTokens * heads * head_dim);
  const Operand lse(DType::f32, kTokens * heads);
  const ScratchMemory scratch(kernels::attention_scratch_bytes(DeviceKind::cuda, a));
  const double forward = bench.timer.seconds([&] {
    kernels::attention_forward(bench.stream(), a, qkv.data(), out.data(), lse.as<float>(), scratch);
  });
  const double backward = bench.timer.seconds([&] {
    kernels::attention_backward(bench.stream(), a, qkv.data(), out.data(), lse.as<float>(), dout.data(),
                                dqkv.data(), scratch);
  });
  const double tera =
      2e-12 * double(a.batch * heads * head_dim) * 0.5 * double(seq) * double(seq + 1);  // one product
  return {{"head_dim", head_dim},
          {"seq", seq},
          {"batch", a.batch},
          {"heads", heads},
          {"kv_heads", kv_heads},
          {"forward_tflops", 2 * tera / forward},
          {"backward_tflops", 5 * tera / backward}};
}

}  // namespace

Json bench_attention(Bench& bench) {
  Json results = Json::array();
  for (const int64_t head_dim : {64, 96, 128})
    for (const int64_t seq : {1024, 4096, 16384}) results.push_back(measure(bench, head_dim, seq, 32, 32));
  results.push_back(measure(bench, 128, 4096, 32, 8));
  return results;
}

}  // namespace headrace::bench
