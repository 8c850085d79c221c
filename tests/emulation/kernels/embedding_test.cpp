// SPDX-License-Identifier: Apache-2.0
// CUDA's embedding, run by the emulation: sums by hand in the documented order, which are the host's bits
// too.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/placed.h"

namespace headrace::kernels {
namespace {

struct Sizes {
  size_t rows, seq, cols, vocab;
};
/// Rows beyond a turn of the search (1024), columns beyond a block's range (1024 in fp32, 2048 in bf16).
constexpr Sizes kSizes[] = {{1, 1, 1, 1},       {6, 3, 5, 4},         {7, 4, 8, 3},
                            {300, 60, 24, 50},  {23, 8, 37, 11},      {5, 9, 2056, 3},
                            {1100, 550, 8, 40}, {2100, 700, 8, 2000}, {9, 3, 1031, 4}};

std::vector<int32_t> some_tokens(const Sizes& s) {
  std::mt19937 generator(5);
  std::vector<int32_t> tokens(s.rows);
  for (int32_t& t : tokens) t = int32_t(generator() % s.vocab);
  return tokens;
}

Embedding embedding(const Sizes& s, DType dtype) {
  return {int64_t(s.rows), int64_t(s.seq), int64_t(s.cols), int64_t(s.vocab), dtype};
}

template <class Body>
void for_every_case(Body body) {
  for (const DType dtype : {kF32, kBf16}) {
    for (const Sizes& s : kSizes) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << s.rows << "x" << s.cols << " of "
                                        << s.vocab << " +" << shift);
        body(s, dtype, shift);
      }
    }
  }
}

TEST(CudaEmbedding, ForwardLooksUpAndAddsPositions) {
  for_every_case([](const Sizes& s, DType dtype, size_t shift) {
    const std::vector<int32_t> tokens = some_tokens(s);
    Placed table(random_tensor(dtype, s.vocab * s.cols, 1), shift);
    Placed positions(random_tensor(dtype, s.seq * s.cols, 2), shift);
    Placed y(dtype, s.rows * s.cols, shift), plain(dtype, s.rows * s.cols, shift);
    run([&](auto on) {
      cuda::embedding_forward(on, embedding(s, dtype), tokens.data(), table.data(), positions.data(),
                              y.data());
      cuda::embedding_forward(on, embedding(s, dtype), tokens.data(), table.data(), nullptr, plain.data());
    });
    Tensor want(dtype, s.rows * s.cols), want_plain(dtype, s.rows * s.cols);
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t row = i / s.cols, col = i % s.cols;
      const auto looked_up = float(table.get()[size_t(tokens[row]) * s.cols + col]);
      want_plain.set(i, looked_up);
      want.set(i, looked_up + float(positions.get()[row % s.seq * s.cols + col]));
    }
    EXPECT_EQ(plain.get().bytes(), want_plain.bytes());
    EXPECT_EQ(y.get().bytes(), want.bytes());
  });
}

TEST(CudaEmbedding, BackwardAddsRowsInAscendingOrder) {
  for_every_case([](const Sizes& s, DType dtype, size_t shift) {
    const std::vector<int32_t> tokens = some_tokens(s);
    Placed dy(random_tensor(dtype, s.rows * s.cols, 3), shift);
    Placed dtable(random_tensor(kF32, s.vocab * s.cols, 4), shift);
    Placed dpositions(random_tensor(kF32, s.seq * s.cols, 5), shift);
    Tensor want = dtable.get(), want_positions = dpositions.get();
    Tensor host_table = want, host_positions = want_positions;
    for (size_t i = 0; i < s.rows * s.cols; ++i) {
      const size_t row = i / s.cols, col = i % s.cols;
      want.floats()[size_t(tokens[row]) * s.cols + col] += float(dy.get()[i]);
      want_positions.floats()[row % s.seq * s.cols + col] += float(dy.get()[i]);
    }
    run([&](auto on) {
      cuda::embedding_backward(on, embedding(s, dtype), tokens.data(), dy.data(), dtable.floats(),
                               dpositions.floats());
    });
    EXPECT_EQ(dtable.get().bytes(), want.bytes());
    EXPECT_EQ(dpositions.get().bytes(), want_positions.bytes());
    host::embedding_backward(embedding(s, dtype), tokens.data(), dy.data(), host_table.floats(),
                             host_positions.floats());
    EXPECT_EQ(dtable.get().bytes(), host_table.bytes());
    EXPECT_EQ(dpositions.get().bytes(), host_positions.bytes());
  });
}

TEST(CudaEmbedding, OneTokenForAllRowsAndNoPositions) {
  const Sizes s{1500, 1500, 16, 3};
  const std::vector<int32_t> tokens(s.rows, 2);
  Placed dy(random_tensor(kBf16, s.rows * s.cols, 3), 0), dtable(random_tensor(kF32, s.vocab * s.cols, 4), 0);
  Tensor want = dtable.get();
  for (size_t i = 0; i < s.rows * s.cols; ++i) want.floats()[2 * s.cols + i % s.cols] += float(dy.get()[i]);
  run([&](auto on) {
    cuda::embedding_backward(on, embedding(s, kBf16), tokens.data(), dy.data(), dtable.floats(), nullptr);
  });
  EXPECT_EQ(dtable.get().bytes(), want.bytes());
}

TEST(CudaEmbedding, NothingIsDoneToNothing) {
  const Embedding e{.rows = 0, .seq = 4, .cols = 8, .vocab = 4, .dtype = kBf16};
  run([&](auto on) {
    cuda::embedding_forward(on, e, nullptr, nullptr, nullptr, nullptr);
    cuda::embedding_backward(on, e, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace
}  // namespace headrace::kernels
