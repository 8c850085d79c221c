// SPDX-License-Identifier: Apache-2.0
// Matrix products and linear layers at the sizes of real models, against the host's.
#include "twins.h"

namespace headrace::test {
namespace {

using kernels::Gemm;
using kernels::Linear;

/// fp32 sums of thousands of terms in another order; TF32 operands would be ten times as far away.
constexpr double kSumTolerance = 5e-5;

struct LinearCase {
  const char* name;
  int64_t rows, in, out;
  bool bias;
};
class LinearOnGpu : public CaseInDType<LinearCase> {};

TEST_P(LinearOnGpu, AllThreeProductsAgreeWithTheHost) {
  const auto& [c, dtype] = GetParam();
  const Linear l{c.rows, c.in, c.out, dtype};
  const size_t elems = size_t(c.rows * c.in + c.rows * c.out + c.in * c.out);
  Twins twins(elems * 14 + 400 * kMiB);
  const Buffer x = twins.noise(dtype, c.rows * c.in), w = twins.noise(dtype, c.in * c.out, 0.02);
  const Buffer bias = twins.noise(dtype, c.out), dy = twins.noise(dtype, c.rows * c.out);
  const Buffer y = twins.zeros(dtype, c.rows * c.out), dx = twins.zeros(dtype, c.rows * c.in);
  const Buffer dw = twins.noise(DType::f32, c.in * c.out), db = twins.noise(DType::f32, c.out);
  twins.run([&](Side& on) {
    const kernels::Scratch scratch = on.scratch(kernels::linear_scratch_bytes(on.kind(), l));
    kernels::linear_forward(on.stream(), l, on.at(x), on.at(w), c.bias ? on.at(bias) : nullptr, on.at(y),
                            scratch);
    kernels::linear_backward_input(on.stream(), l, on.at(dy), on.at(w), on.at(dx), scratch);
    kernels::linear_backward_weight(on.stream(), l, on.at(dy), on.at(x), on.at<float>(dw),
                                    c.bias ? on.at<float>(db) : nullptr, scratch);
  });
  twins.expect_near(y, "y", {kSumTolerance, c.out});
  twins.expect_near(dx, "dx", {kSumTolerance, c.in});
  twins.expect_near(dw, "dW", {kSumTolerance, c.in});
  twins.expect_near(db, "dbias", {kSumTolerance, c.out});
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, LinearOnGpu,
    testing::Combine(testing::Values(LinearCase{"small", 33, 129, 65, true}, LinearCase{"one", 1, 1, 1, true},
                                     LinearCase{"layer", 2048, 4096, 4096, false},
                                     LinearCase{"layer_with_bias", 1024, 768, 3072, true},
                                     LinearCase{"odd", 1023, 1001, 777, true},
                                     LinearCase{"head", 512, 768, 50257, false}),
                     both_dtypes()),
    case_name<LinearCase>);

class LinearGeluOnGpu : public CaseInDType<LinearCase> {};

TEST_P(LinearGeluOnGpu, GeluAndItsGradientAgreeWithTheHost) {
  const auto& [c, dtype] = GetParam();
  const Linear l{c.rows, c.in, c.out, dtype};
  Twins twins(size_t(c.rows * (3 * c.in + 3 * c.out) + c.in * c.out) * 14 + 400 * kMiB);
  const Buffer x = twins.noise(dtype, c.rows * c.in), w = twins.noise(dtype, c.in * c.out, 0.02);
  const Buffer bias = twins.noise(dtype, c.out), dy = twins.noise(dtype, c.rows * c.out);
  const Buffer before = twins.noise(dtype, c.rows * c.in);
  const Buffer z = twins.zeros(dtype, c.rows * c.out), y = twins.zeros(dtype, c.rows * c.out);
  const Buffer dz = twins.zeros(dtype, c.rows * c.in);
  twins.run([&](Side& on) {
    const kernels::Scratch scratch = on.scratch(kernels::linear_scratch_bytes(on.kind(), l));
    kernels::linear_gelu_forward(on.stream(), l, on.at(x), on.at(w), c.bias ? on.at(bias) : nullptr, on.at(z),
                                 on.at(y), scratch);
    kernels::linear_gelu_backward_input(on.stream(), l, on.at(dy), on.at(w), on.at(before), on.at(dz),
                                        scratch);
  });
  // The host rounds once more on the way, and the library's tanh is an approximation.
  constexpr double kEpilogueTolerance = 2e-3;
  twins.expect_near(z, "z", {kSumTolerance, c.out});
  twins.expect_near(y, "y", {dtype == DType::bf16 ? kEpilogueTolerance : kSumTolerance, c.out});
  twins.expect_near(dz, "dz", {dtype == DType::bf16 ? kEpilogueTolerance : kSumTolerance, c.in});
}

INSTANTIATE_TEST_SUITE_P(Cuda, LinearGeluOnGpu,
                         testing::Combine(testing::Values(LinearCase{"small", 40, 128, 72, true},
                                                          LinearCase{"mlp", 1024, 768, 3072, true},
                                                          LinearCase{"odd", 511, 333, 777, false}),
                                          both_dtypes()),
                         case_name<LinearCase>);

struct GemmCase {
  const char* name;
  int64_t m, n, k;
  bool trans_a, trans_b, accumulate, bias;
};
class GemmOnGpu : public CaseInDType<GemmCase> {};

TEST_P(GemmOnGpu, AgreesWithTheHostWithinStridedMatrices) {
  const auto& [c, dtype] = GetParam();
  const int64_t pad = 8;  // elements between rows, which must stay as they were
  const int64_t a_rows = c.trans_a ? c.k : c.m, lda = (c.trans_a ? c.m : c.k) + pad;
  const int64_t b_rows = c.trans_b ? c.n : c.k, ldb = (c.trans_b ? c.k : c.n) + pad, ldc = c.n + pad;
  Twins twins(size_t(a_rows * lda + b_rows * ldb + c.m * ldc) * 16 + 200 * kMiB);
  const Buffer a = twins.noise(dtype, a_rows * lda), b = twins.noise(dtype, b_rows * ldb);
  const Buffer bias = twins.noise(dtype, c.n), out = twins.noise(DType::f32, c.m * ldc);
  Gemm g{.m = c.m,
         .n = c.n,
         .k = c.k,
         .a = nullptr,
         .lda = lda,
         .trans_a = c.trans_a,
         .b = nullptr,
         .ldb = ldb,
         .trans_b = c.trans_b,
         .in = dtype,
         .c = nullptr,
         .ldc = ldc,
         .out = DType::f32,
         .accumulate = c.accumulate};
  twins.run([&](Side& on) {
    g.a = on.at(a), g.b = on.at(b), g.c = on.at(out), g.bias = c.bias ? on.at(bias) : nullptr;
    kernels::gemm(on.stream(), g, on.scratch(kernels::gemm_scratch_bytes(on.kind(), g)));
  });
  twins.expect_near(out, "C", {kSumTolerance, ldc});
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, GemmOnGpu,
    testing::Combine(testing::Values(GemmCase{"small_nn", 17, 40, 24, false, false, false, true},
                                     GemmCase{"small_tt", 24, 16, 40, true, true, true, false},
                                     GemmCase{"nn", 1024, 1024, 512, false, false, true, false},
                                     GemmCase{"nt", 1000, 520, 2048, false, true, false, true},
                                     GemmCase{"tn", 777, 1023, 555, true, false, true, false},
                                     GemmCase{"tt", 512, 256, 1111, true, true, false, false},
                                     GemmCase{"vector", 1, 4096, 4096, false, true, false, true}),
                     both_dtypes()),
    case_name<GemmCase>);

}  // namespace
}  // namespace headrace::test
