// SPDX-License-Identifier: Apache-2.0
// Attention in double precision, straight from its definition: the oracle of the tests of every device. Also
// cuts packed documents out, to be run alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/support.h"

namespace headrace::kernels {

inline size_t qkv_elems(const Attention& a) {
  return size_t(a.batch * a.seq * (a.heads + 2 * a.kv_heads) * a.head_dim);
}
inline size_t out_elems(const Attention& a) {
  return size_t(a.batch * a.seq * a.heads * a.head_dim);
}
inline size_t lse_elems(const Attention& a) {
  return size_t(a.batch * a.heads * a.seq);
}

struct Span {
  int64_t begin, end;  ///< rows
};
inline std::vector<Span> documents_of(const Attention& a) {
  std::vector<Span> spans;
  const int64_t count = a.cu_seqlens ? a.documents : a.batch;
  for (int64_t d = 0; d < count; ++d) {
    if (a.cu_seqlens) {
      spans.push_back({a.cu_seqlens[d], a.cu_seqlens[d + 1]});
    } else {
      spans.push_back({d * a.seq, (d + 1) * a.seq});
    }
  }
  return spans;
}
inline size_t lse_at(const Attention& a, int64_t row, int64_t head) {
  return size_t((row / a.seq * a.heads + head) * a.seq + row % a.seq);
}

/// One query of one head in `qkv`: where its vectors begin, and its attention to the keys from first on.
struct ReferenceQuery {
  const Attention& a;
  const Doubles& qkv;
  int64_t first, row, head;

  [[nodiscard]] int64_t kv() const { return head / (a.heads / a.kv_heads); }
  [[nodiscard]] size_t at(int64_t r, int64_t slot) const {
    return size_t((r * (a.heads + 2 * a.kv_heads) + slot) * a.head_dim);
  }
  [[nodiscard]] size_t q() const { return at(row, head); }
  [[nodiscard]] size_t k(int64_t r) const { return at(r, a.heads + kv()); }
  [[nodiscard]] size_t v(int64_t r) const { return at(r, a.heads + a.kv_heads + kv()); }
  [[nodiscard]] size_t out() const { return size_t((row * a.heads + head) * a.head_dim); }
  [[nodiscard]] double product(const Doubles& x, size_t i, const Doubles& y, size_t j) const {
    double sum = 0;
    for (size_t c = 0; c < size_t(a.head_dim); ++c) sum += x[i + c] * y[j + c];
    return sum;
  }
  /// Probabilities of the keys first ... row, and the log of their denominator.
  Doubles attend(double& lse) const {
    Doubles p;
    for (int64_t r = first; r <= row; ++r) p.push_back(double(a.scale) * product(qkv, q(), qkv, k(r)));
    const double top = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& e : p) sum += e = std::exp(e - top);
    for (double& e : p) e /= sum;
    lse = top + std::log(sum);
    return p;
  }
};

template <class F>
void for_each_query(const Attention& a, const Doubles& qkv, F body) {
  for (const Span& d : documents_of(a)) {
    for (int64_t head = 0; head < a.heads; ++head) {
      for (int64_t row = d.begin; row < d.end; ++row) body(ReferenceQuery{a, qkv, d.begin, row, head});
    }
  }
}

struct ReferenceAttention {
  Doubles out, lse;
};
inline ReferenceAttention reference_attention(const Attention& a, const Doubles& qkv) {
  ReferenceAttention result{Doubles(out_elems(a)), Doubles(lse_elems(a))};
  for_each_query(a, qkv, [&](const ReferenceQuery& query) {
    const Doubles p = query.attend(result.lse[lse_at(a, query.row, query.head)]);
    for (size_t j = 0; j < p.size(); ++j) {
      const size_t v = query.v(query.first + int64_t(j));
      for (size_t c = 0; c < size_t(a.head_dim); ++c) result.out[query.out() + c] += p[j] * qkv[v + c];
    }
  });
  return result;
}

/// d(out . dout) / d(qkv): dV = P^T dO; dS = P (dP - sum P dP), dP = dO V^T; dQ = scale dS K; dK = scale dS^T
/// Q.
inline Doubles reference_attention_gradient(const Attention& a, const Doubles& qkv, const Doubles& dout) {
  Doubles dqkv(qkv.size());
  for_each_query(a, qkv, [&](const ReferenceQuery& query) {
    double lse, mean = 0;
    const Doubles p = query.attend(lse);
    Doubles dp(p.size());
    for (size_t j = 0; j < p.size(); ++j) {
      dp[j] = query.product(dout, query.out(), qkv, query.v(query.first + int64_t(j)));
      mean += p[j] * dp[j];
    }
    for (size_t j = 0; j < p.size(); ++j) {
      const double ds = double(a.scale) * p[j] * (dp[j] - mean);
      const size_t q = query.q(), k = query.k(query.first + int64_t(j));
      const size_t v = query.v(query.first + int64_t(j));
      for (size_t c = 0; c < size_t(a.head_dim); ++c) {
        dqkv[q + c] += ds * qkv[k + c];
        dqkv[k + c] += ds * qkv[q + c];
        dqkv[v + c] += p[j] * dout[query.out() + c];
      }
    }
  });
  return dqkv;
}

/// What a forward and a backward pass leave, whatever the device.
struct AttentionResult {
  Tensor out, lse, dqkv;
  explicit AttentionResult(const Attention& a)
      : out(a.dtype, out_elems(a)), lse(DType::f32, lse_elems(a)), dqkv(a.dtype, qkv_elems(a)) {}
};

/// Rows [begin, end) of a tensor of `rows` rows.
inline Tensor rows_of(const Tensor& all, int64_t rows, const Span& span) {
  const size_t cols = all.size() / size_t(rows);
  Tensor part(all.dtype(), size_t(span.end - span.begin) * cols);
  std::memcpy(part.data(), &all.bytes()[size_t(span.begin) * cols * dtype_bytes(all.dtype())],
              part.bytes().size());
  return part;
}

/// Runs packed documents together and each alone by run(shape, qkv, dout): the bits must be the same.
template <class Run>
void expect_packed_equals_alone(const Attention& a, Run run) {
  Tensor qkv = random_tensor(a.dtype, qkv_elems(a), 1), dout = random_tensor(a.dtype, out_elems(a), 2);
  const AttentionResult packed = run(a, qkv, dout);
  const int64_t rows = a.batch * a.seq;
  for (const Span& d : documents_of(a)) {
    SCOPED_TRACE(testing::Message() << "rows " << d.begin << " to " << d.end);
    if (d.begin == d.end) continue;
    Attention one = a;
    one.batch = 1;
    one.seq = d.end - d.begin;
    one.cu_seqlens = nullptr;
    one.documents = 0;
    Tensor one_qkv = rows_of(qkv, rows, d), one_dout = rows_of(dout, rows, d);
    const AttentionResult alone = run(one, one_qkv, one_dout);
    EXPECT_TRUE(rows_of(packed.out, rows, d).bytes() == alone.out.bytes());
    EXPECT_TRUE(rows_of(packed.dqkv, rows, d).bytes() == alone.dqkv.bytes());
    for (int64_t head = 0; head < a.heads; ++head) {
      for (int64_t i = 0; i < one.seq; ++i) {
        ASSERT_EQ(packed.lse[lse_at(a, d.begin + i, head)], alone.lse[lse_at(one, i, head)])
            << head << " " << i;
      }
    }
  }
}

}  // namespace headrace::kernels
