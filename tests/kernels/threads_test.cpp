// SPDX-License-Identifier: Apache-2.0
// Every kernel but the products, with one thread and with more: the bits are the same.
#include <omp.h>

#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "tests/kernels/support.h"

namespace headrace::kernels {
namespace {

/// Runs `work`, which returns the bytes it made, with 1, 2 and 3 threads.
template <class F>
void expect_same_bits(F work) {
  const int threads = omp_get_max_threads();
  std::vector<std::byte> first;
  for (const int count : {1, 2, 3}) {
    omp_set_num_threads(count);
    std::vector<std::byte> bytes = work();
    if (count == 1)
      first = std::move(bytes);
    else
      EXPECT_TRUE(bytes == first) << count << " threads";
  }
  omp_set_num_threads(threads);
}

std::vector<std::byte> joined(std::initializer_list<const Tensor*> tensors) {
  std::vector<std::byte> bytes;
  for (const Tensor* t : tensors) bytes.insert(bytes.end(), t->bytes().begin(), t->bytes().end());
  return bytes;
}

constexpr int64_t kRows = 133, kCols = 300;
constexpr size_t kElems = size_t(kRows * kCols);
constexpr DType kHalf = DType::bf16;

TEST(Threads, DoNotChangeNorms) {
  Tensor x = random_tensor(kHalf, kElems, 1), w = random_tensor(kHalf, kCols, 2),
         dy = random_tensor(kHalf, kElems, 3);
  expect_same_bits([&] {
    InlineStream stream;
    Tensor y(kHalf, kElems), mean(DType::f32, kRows), rstd(DType::f32, kRows), dx(kHalf, kElems),
        dx2(kHalf, kElems);
    Tensor y2(kHalf, kElems), dw(DType::f32, kCols), dw2(DType::f32, kCols), db(DType::f32, kCols);
    ScratchMemory scratch(norm_scratch_bytes(DeviceKind::host, kRows, kCols));
    rms_norm_forward(stream, {kRows, kCols, 1e-5f, kHalf}, x.data(), w.data(), y.data(), rstd.floats());
    rms_norm_backward(stream, {kRows, kCols, 1e-5f, kHalf}, x.data(), w.data(), rstd.floats(), dy.data(),
                      nullptr, dx.data(), dw.floats(), scratch);
    layer_norm_forward(stream, {kRows, kCols, 1e-5f, kHalf}, x.data(), w.data(), w.data(), y2.data(),
                       mean.floats(), rstd.floats());
    layer_norm_backward(stream, {kRows, kCols, 1e-5f, kHalf}, x.data(), w.data(), mean.floats(),
                        rstd.floats(), dy.data(), nullptr, dx2.data(), dw2.floats(), db.floats(), scratch);
    return joined({&y, &mean, &rstd, &dx, &dx2, &y2, &dw, &dw2, &db});
  });
}

TEST(Threads, DoNotChangeElementwise) {
  Tensor x = random_tensor(kHalf, 2 * kElems, 1), dy = random_tensor(kHalf, kElems, 3);
  Tensor wide = random_tensor(DType::f32, 2 * size_t(kNormTileElems), 4);
  expect_same_bits([&] {
    InlineStream stream;
    Tensor y(kHalf, kElems), dx(kHalf, 2 * kElems), g(kHalf, kElems), dg(kHalf, kElems), sum(kHalf, kElems);
    Tensor narrow(kHalf, wide.size()), back(DType::f32, wide.size());
    Doubles tile_sums(2);
    swiglu_forward(stream, kRows, kCols, kHalf, x.data(), y.data());
    swiglu_backward(stream, kRows, kCols, kHalf, x.data(), dy.data(), dx.data());
    gelu_forward(stream, int64_t(kElems), kHalf, x.data(), g.data());
    gelu_backward(stream, int64_t(kElems), kHalf, x.data(), dy.data(), dg.data());
    add(stream, int64_t(kElems), kHalf, x.data(), dy.data(), sum.data());
    round_and_sum_squares(stream, int64_t(wide.size()), wide.floats(), kHalf, narrow.data(),
                          tile_sums.data());
    cast(stream, int64_t(wide.size()), kHalf, narrow.data(), DType::f32, back.data());
    std::vector<std::byte> bytes = joined({&y, &dx, &g, &dg, &sum, &narrow, &back});
    const auto* sums = reinterpret_cast<const std::byte*>(tile_sums.data());
    bytes.insert(bytes.end(), sums, sums + sizeof(double) * tile_sums.size());
    return bytes;
  });
}

TEST(Threads, DoNotChangeTokenRows) {
  Tensor table = random_tensor(kHalf, 50 * kCols, 1), dy = random_tensor(kHalf, kElems, 2);
  Tensor logits = random_tensor(DType::f32, kElems, 3);
  std::vector<int32_t> tokens(kRows);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i * i % 50);
  expect_same_bits([&] {
    InlineStream stream;
    const Embedding e{.rows = kRows, .seq = 19, .cols = kCols, .vocab = 50, .dtype = kHalf};
    Tensor y(kHalf, kElems), dtable(DType::f32, 50 * kCols), dpositions(DType::f32, 19 * kCols),
        dl(kHalf, kElems);
    embedding_forward(stream, e, tokens.data(), table.data(), nullptr, y.data());
    embedding_backward(stream, e, tokens.data(), dy.data(), dtable.floats(), dpositions.floats());
    double loss = 0.0;
    cross_entropy(stream, {.rows = kRows, .vocab = kCols, .grad_scale = 1.0f, .dtype = kHalf},
                  logits.floats(), tokens.data(), &loss, dl.data(), {});
    std::vector<std::byte> bytes = joined({&y, &dtable, &dpositions, &dl});
    bytes.insert(bytes.end(), reinterpret_cast<std::byte*>(&loss), reinterpret_cast<std::byte*>(&loss + 1));
    return bytes;
  });
}

TEST(Threads, DoNotChangeAttentionNorDoesLessScratch) {
  const Attention a{2, 100, 4, 2, 32, 0.2f, kHalf};
  const size_t qkv_elems = 2 * 100 * 8 * 32, out_elems = 2 * 100 * 4 * 32;
  Tensor qkv = random_tensor(kHalf, qkv_elems, 1), dout = random_tensor(kHalf, out_elems, 2);
  const auto run = [&](size_t scratch_bytes) {
    InlineStream stream;
    Tensor rotated = qkv, out(kHalf, out_elems), lse(DType::f32, 2 * 4 * 100), dqkv(kHalf, qkv_elems);
    ScratchMemory scratch(scratch_bytes);
    rotary(stream,
           {.rows = 200,
            .seq = 100,
            .rotated_heads = 6,
            .row_stride = 256,
            .head_dim = 32,
            .theta = 1e4f,
            .dtype = kHalf},
           rotated.data());
    attention_forward(stream, a, rotated.data(), out.data(), lse.floats(), scratch);
    attention_backward(stream, a, rotated.data(), out.data(), lse.floats(), dout.data(), dqkv.data(),
                       scratch);
    return joined({&rotated, &out, &lse, &dqkv});
  };
  expect_same_bits([&] { return run(attention_scratch_bytes(DeviceKind::host, a)); });
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const size_t least = attention_scratch_bytes(DeviceKind::host, a);
  const std::vector<std::byte> alone = run(least);
  omp_set_num_threads(2);
  EXPECT_TRUE(run(least) == alone);
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace headrace::kernels
