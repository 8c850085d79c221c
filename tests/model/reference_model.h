// SPDX-License-Identifier: Apache-2.0
// Both families in double, one loop per formula, no blocking and no backward: the oracle for the loss, and by
// finite differences for every gradient. Shares nothing with the model under test but the order of its
// segments.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace headrace::test {

using Vector = std::vector<double>;
/// [unit][segment][element]
using Parameters = std::vector<std::vector<Vector>>;

class ReferenceModel {
 public:
  ReferenceModel(const ModelConfig& config, int64_t batch, int64_t seq)
      : c_(config), batch_(batch), seq_(seq), rows_(batch * seq), head_(config.hidden / config.heads) {}

  /// The embedding's output, [rows, hidden].
  Vector embed(const Parameters& p, std::span<const int32_t> tokens) const {
    Vector x(size_t(rows_ * c_.hidden));
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t i = 0; i < c_.hidden; ++i) {
        x[at(r, i)] = p[0][0][size_t(tokens[size_t(r)] * c_.hidden + i)];
        if (gpt2()) x[at(r, i)] += p[0][1][size_t(r % seq_ * c_.hidden + i)];
      }
    return x;
  }

  /// Sum of the counted rows' losses from the embedding's output on.
  double loss_from(const Parameters& p, Vector x, std::span<const int32_t> labels) const {
    for (int64_t layer = 1; layer <= c_.layers; ++layer) {
      add_attention(p[size_t(layer)], x);
      add_mlp(p[size_t(layer)], x);
    }
    const std::vector<Vector>& head = p.back();
    const Vector normed = norm(x, head, 0);
    const Vector& table = c_.tied ? p[0][0] : head.back();
    double sum = 0;
    for (int64_t r = 0; r < rows_; ++r)
      if (labels[size_t(r)] >= 0) sum += row_loss(normed, table, r, labels[size_t(r)]);
    return sum;
  }

  double loss(const Parameters& p, std::span<const int32_t> tokens, std::span<const int32_t> labels) const {
    return loss_from(p, embed(p, tokens), labels);
  }

 private:
  bool gpt2() const { return c_.family == Family::gpt2; }
  size_t at(int64_t row, int64_t col) const { return size_t(row * c_.hidden + col); }

  Vector norm(const Vector& x, const std::vector<Vector>& unit, size_t weight) const {
    Vector y(x.size());
    for (int64_t r = 0; r < rows_; ++r) {
      double mean = 0, square = 0;
      if (gpt2())
        for (int64_t i = 0; i < c_.hidden; ++i) mean += x[at(r, i)] / double(c_.hidden);
      for (int64_t i = 0; i < c_.hidden; ++i) square += std::pow(x[at(r, i)] - mean, 2) / double(c_.hidden);
      for (int64_t i = 0; i < c_.hidden; ++i) {
        y[at(r, i)] = (x[at(r, i)] - mean) / std::sqrt(square + c_.norm_eps) * unit[weight][size_t(i)];
        if (gpt2()) y[at(r, i)] += unit[weight + 1][size_t(i)];
      }
    }
    return y;
  }

  /// x [rows, in] times the matrix [out, in] in segment `weight`, plus the bias behind it in gpt2.
  Vector linear(const Vector& x, int64_t in, int64_t out, const std::vector<Vector>& unit,
                size_t weight) const {
    Vector y(size_t(rows_ * out));
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t o = 0; o < out; ++o) {
        double sum = gpt2() ? unit[weight + 1][size_t(o)] : 0;
        for (int64_t i = 0; i < in; ++i) sum += x[size_t(r * in + i)] * unit[weight][size_t(o * in + i)];
        y[size_t(r * out + o)] = sum;
      }
    return y;
  }

  void rotate(double* head, int64_t position) const {
    for (int64_t i = 0; i < head_ / 2; ++i) {
      const double angle = double(position) * std::pow(c_.rope_theta, -2.0 * double(i) / double(head_));
      const double a = head[i], b = head[i + head_ / 2];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + head_ / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  /// Output of one query head in one row.
  void attend(const Vector& qkv, int64_t row, int64_t h, double* out) const {
    const int64_t cols = (c_.heads + 2 * c_.kv_heads) * head_;
    const int64_t kv = h / (c_.heads / c_.kv_heads);
    const int64_t first = row / seq_ * seq_;
    const double* q = &qkv[size_t(row * cols + h * head_)];
    Vector weight;
    double total = 0;
    for (int64_t other = first; other <= row; ++other) {
      const double* k = &qkv[size_t(other * cols + (c_.heads + kv) * head_)];
      double dot = 0;
      for (int64_t i = 0; i < head_; ++i) dot += q[i] * k[i];
      weight.push_back(std::exp(dot / std::sqrt(double(head_))));
      total += weight.back();
    }
    for (int64_t i = 0; i < head_; ++i) out[i] = 0;
    for (int64_t other = first; other <= row; ++other) {
      const double* v = &qkv[size_t(other * cols + (c_.heads + c_.kv_heads + kv) * head_)];
      for (int64_t i = 0; i < head_; ++i) out[i] += weight[size_t(other - first)] / total * v[i];
    }
  }

  void add_attention(const std::vector<Vector>& unit, Vector& x) const {
    const int64_t cols = (c_.heads + 2 * c_.kv_heads) * head_;
    Vector qkv = linear(norm(x, unit, 0), c_.hidden, cols, unit, gpt2() ? 2 : 1);
    for (int64_t r = 0; r < rows_ && !gpt2(); ++r)
      for (int64_t h = 0; h < c_.heads + c_.kv_heads; ++h)
        rotate(&qkv[size_t(r * cols + h * head_)], r % seq_);
    Vector out(x.size());
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t h = 0; h < c_.heads; ++h) attend(qkv, r, h, &out[at(r, h * head_)]);
    const Vector y = linear(out, c_.hidden, c_.hidden, unit, gpt2() ? 4 : 2);
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  void add_mlp(const std::vector<Vector>& unit, Vector& x) const {
    const size_t mlp_norm = gpt2() ? 6 : 3, up_weight = gpt2() ? 8 : 4, down_weight = gpt2() ? 10 : 5;
    const int64_t up_cols = gpt2() ? c_.ffn : 2 * c_.ffn;
    const Vector up = linear(norm(x, unit, mlp_norm), c_.hidden, up_cols, unit, up_weight);
    Vector activated(size_t(rows_ * c_.ffn));
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t i = 0; i < c_.ffn; ++i) {
        const double z = up[size_t(r * up_cols + i)];
        activated[size_t(r * c_.ffn + i)] =
            gpt2() ? 0.5 * z * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)))
                   : z / (1 + std::exp(-z)) * up[size_t(r * up_cols + c_.ffn + i)];
      }
    const Vector y = linear(activated, c_.ffn, c_.hidden, unit, down_weight);
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  double row_loss(const Vector& normed, const Vector& table, int64_t row, int32_t label) const {
    double total = 0, target = 0;
    for (int64_t token = 0; token < c_.vocab; ++token) {
      double logit = 0;
      for (int64_t i = 0; i < c_.hidden; ++i)
        logit += normed[at(row, i)] * table[size_t(token * c_.hidden + i)];
      total += std::exp(logit);
      if (token == label) target = logit;
    }
    return std::log(total) - target;
  }

  ModelConfig c_;
  int64_t batch_, seq_, rows_, head_;
};

}  // namespace headrace::test
