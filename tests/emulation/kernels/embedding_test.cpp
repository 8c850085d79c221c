// SPDX-License-Identifier: Apache-2.0
// CUDA's embedding, run by the emulation: sums by hand in the documented order, which are the host's bits
// too.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/emulation/kernels/cases.h"

namespace headrace::kernels {
namespace {

struct Lookups {
  size_t rows, seq, cols, vocab;
};
/// Rows beyond a turn of the search (1024), columns beyond a block's range (1024 in fp32, 2048 in bf16).
constexpr Lookups kLookups[] = {{1, 1, 1, 1},    {6, 3, 5, 4},    {7, 4, 8, 3},        {300, 60, 24, 50},
                                {23, 8, 37, 11}, {5, 9, 2056, 3}, {1100, 550, 8, 200}, {9, 3, 1031, 4}};

std::vector<int32_t> some_tokens(const Lookups& s) {
  std::mt19937 generator(5);
  std::vector<int32_t> tokens(s.rows);
  for (int32_t& t : tokens) t = int32_t(generator() % s.vocab);
  return tokens;
}

Embedding embedding(const Lookups& s, DType dtype) {
  return {int64_t(s.rows), int64_t(s.seq), int64_t(s.cols), int64_t(s.vocab), dtype};
}

template <class Body>
void for_every_case(Body body) {
  for (const DType dtype : {kF32, kBf16}) {
    for (const Lookups& s : kLookups) {
      for (const size_t shift : kShifts) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << s.rows << "x" << s.cols << " of "
                                        << s.vocab << " +" << shift);
        body(s, dtype, shift);
      }
    }
  }
}

TEST(CudaEmbedding, ForwardLooksUpAndAddsPositions) {
  for_every_case([](const Lookups& s, DType dtype, size_t shift) {
    EmulatedStream stream;
    const std::vector<int32_t> tokens = some_tokens(s);
    const Tensor table = random_tensor(dtype, s.vocab * s.cols, 1);
    const Tensor positions = random_tensor(dtype, s.seq * s.cols, 2);
    const DeviceValues<int32_t> from(tokens);
    const DeviceTensor rows(table, shift), added(positions, shift);
    const DeviceTensor y(dtype, s.rows * s.cols, shift), plain(dtype, s.rows * s.cols, shift);
    const Embedding e = embedding(s, dtype);
    cuda::embedding_forward(stream, e, from.data(), rows.data(), added.data(), y.data());
    cuda::embedding_forward(stream, e, from.data(), rows.data(), nullptr, plain.data());
    Tensor want(dtype, s.rows * s.cols), want_plain(dtype, s.rows * s.cols);
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t row = i / s.cols, col = i % s.cols;
      const auto looked_up = float(table[size_t(tokens[row]) * s.cols + col]);
      want_plain.set(i, looked_up);
      want.set(i, looked_up + float(positions[row % s.seq * s.cols + col]));
    }
    EXPECT_EQ(plain.fetch(stream).bytes(), want_plain.bytes());
    EXPECT_EQ(y.fetch(stream).bytes(), want.bytes());
  });
}

TEST(CudaEmbedding, BackwardAddsRowsInAscendingOrder) {
  for_every_case([](const Lookups& s, DType dtype, size_t shift) {
    EmulatedStream stream;
    const std::vector<int32_t> tokens = some_tokens(s);
    Tensor dy = random_tensor(dtype, s.rows * s.cols, 3);
    Tensor want = random_tensor(kF32, s.vocab * s.cols, 4), host_table = want;
    Tensor want_positions = random_tensor(kF32, s.seq * s.cols, 5), host_positions = want_positions;
    const DeviceValues<int32_t> from(tokens);
    const DeviceTensor gradient(dy, shift), dtable(want, shift), dpositions(want_positions, shift);
    const Embedding e = embedding(s, dtype);
    cuda::embedding_backward(stream, e, from.data(), gradient.data(), dtable.floats(), dpositions.floats());
    host::embedding_backward(e, tokens.data(), dy.data(), host_table.floats(), host_positions.floats());
    for (size_t i = 0; i < s.rows * s.cols; ++i) {
      const size_t row = i / s.cols, col = i % s.cols;
      want.floats()[size_t(tokens[row]) * s.cols + col] += float(dy[i]);
      want_positions.floats()[row % s.seq * s.cols + col] += float(dy[i]);
    }
    EXPECT_EQ(dtable.fetch(stream).bytes(), want.bytes());
    EXPECT_EQ(dpositions.fetch(stream).bytes(), want_positions.bytes());
    EXPECT_EQ(want.bytes(), host_table.bytes());
    EXPECT_EQ(want_positions.bytes(), host_positions.bytes());
  });
}

TEST(CudaEmbedding, OneTokenForAllRowsAndNoPositions) {
  EmulatedStream stream;
  const Lookups s{1500, 1500, 16, 3};
  const DeviceValues<int32_t> tokens(std::vector<int32_t>(s.rows, 2));
  const Tensor dy = random_tensor(kBf16, s.rows * s.cols, 3);
  Tensor want = random_tensor(kF32, s.vocab * s.cols, 4);
  const DeviceTensor gradient(dy), dtable(want);
  cuda::embedding_backward(stream, embedding(s, kBf16), tokens.data(), gradient.data(), dtable.floats(),
                           nullptr);
  for (size_t i = 0; i < s.rows * s.cols; ++i) want.floats()[2 * s.cols + i % s.cols] += float(dy[i]);
  EXPECT_EQ(dtable.fetch(stream).bytes(), want.bytes());
}

TEST(CudaEmbedding, NothingIsDoneToNothing) {
  EmulatedStream stream;
  const Embedding e{.rows = 0, .seq = 4, .cols = 8, .vocab = 4, .dtype = kBf16};
  cuda::embedding_forward(stream, e, nullptr, nullptr, nullptr, nullptr);
  cuda::embedding_backward(stream, e, nullptr, nullptr, nullptr, nullptr);
  stream.synchronize();
}

}  // namespace
}  // namespace headrace::kernels
