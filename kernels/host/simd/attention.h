// SPDX-License-Identifier: Apache-2.0
// Causal attention of one head, tile by tile (Dao, "FlashAttention-2", 2023): forward with a
// running softmax, backward by making the scores again from the stored logsumexp (see vec.h for
// how this is compiled). Keys and values of the whole sequence are kept in fp32 in the work
// area; queries pass through one tile at a time.
#pragma once

#include "kernels/host/simd/tiles.h"

namespace headrace::kernels::host::HEADRACE_ISA {

constexpr int64_t kTile = kAttentionTile;

HEADRACE_INLINE int64_t rows_in_tile(int64_t seq, int64_t tile) {
  const int64_t left = seq - tile * kTile;
  return left < kTile ? left : kTile;
}
/// Rows of queries to compute: what is padded is not worth a whole tile.
HEADRACE_INLINE int64_t padded_rows(int64_t rows) {
  return (rows + 7) / 8 * 8;
}

template <class T>
HEADRACE_INLINE const T* row_at(const void* base, int64_t row, int64_t stride) {
  return static_cast<const T*>(base) + row * stride;
}
template <class T>
HEADRACE_INLINE T* row_at(void* base, int64_t row, int64_t stride) {
  return static_cast<T*>(base) + row * stride;
}

/// A tile on the diagonal is worked on in strips of this many queries: strip s
/// sees its first kStrip (s + 1) keys.
constexpr int64_t kStrip = 16;

/// Calls body(row, rows, keys) for the strips of a tile: all of it, or the
/// triangle of a tile on the diagonal.
template <class F>
HEADRACE_INLINE void for_strips(bool diagonal, int64_t rows, F body) {
  if (!diagonal) return body(int64_t(0), rows, kTile);
  for (int64_t r = 0; r < rows; r += kStrip) body(r, rows - r < kStrip ? rows - r : kStrip, r + kStrip);
}

/// Hides what a query of a strip may not see: in its last kStrip keys, those after itself.
HEADRACE_INLINE void mask_strip(float* scores, int64_t row, int64_t rows, int64_t keys) {
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t c = r + 1; c < keys; ++c) scores[r * kTile + c] = -__builtin_inff();
  }
}

/// Running maximum, and denominator lane by lane, of every query of a tile.
struct Softmax {
  float max[kTile];
  Vec sum[kTile];
};

/// scores -> exp(scores - new maximum) in rows [row, row + rows); rescales
/// what was summed under the old maximum.
HEADRACE_INLINE void softmax_strip(Softmax& state, float* scores, int64_t row, int64_t rows, int64_t keys,
                                   bool first, float* out, int64_t padded) {
  float factor[kTile], after[kTile] = {};
  for (int64_t r = row; r < row + rows; ++r) {
    const float* s = scores + r * kTile;
    Vec highest = vmax(splat(state.max[r]), load(s));
    for (int64_t c = kLanes; c < keys; c += kLanes) highest = vmax(load(s + c), highest);
    after[r] = horizontal_max(highest);
  }
  for (int64_t r = row; r < row + rows; r += kLanes) {
    store(factor + r, exp(load(state.max + r) - load(after + r)));
  }
  for (int64_t r = row; r < row + rows; ++r) {
    float* s = scores + r * kTile;
    Vec sum{};
    for (int64_t c = 0; c < keys; c += kLanes) {
      const Vec e = exp(load(s + c) - after[r]);
      store(s + c, e);
      sum += e;
    }
    state.sum[r] = state.sum[r] * factor[r] + sum;
    state.max[r] = after[r];
    if (first || factor[r] == 1.0f) continue;
    float* o = out + r * padded;
    for (int64_t i = 0; i < padded; i += kLanes) store(o + i, load(o + i) * factor[r]);
  }
}

HEADRACE_INLINE void clear(float* p, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(p + i, Vec{});
}

template <class T>
void attention_forward(const AttentionHead& a) {
  const int64_t padded = attention_padded(a.head_dim);
  const int64_t tiles = (a.seq + kTile - 1) / kTile;
  const int64_t tile_floats = kTile * padded;
  float* keys = a.work;                         // [tiles][padded][kTile], transposed
  float* values = keys + tiles * tile_floats;   // [tiles][kTile][padded]
  float* query = values + tiles * tile_floats;  // [kTile][padded]
  float* sum = query + tile_floats;             // [kTile][padded]
  float* scores = sum + tile_floats;            // [kTile][kTile]
  for (int64_t j = 0; j < tiles; ++j) {
    const int64_t rows = rows_in_tile(a.seq, j);
    load_tile<T>(rows, a.head_dim, row_at<T>(a.k, j * kTile, a.qkv_stride), a.qkv_stride, 1.0f, query);
    transpose(kTile, padded, query, padded, keys + j * tile_floats, kTile);
    load_tile<T>(rows, a.head_dim, row_at<T>(a.v, j * kTile, a.qkv_stride), a.qkv_stride, 1.0f,
                 values + j * tile_floats);
  }
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t rows = rows_in_tile(a.seq, i);
    const int64_t computed = padded_rows(rows);
    load_tile<T>(rows, a.head_dim, row_at<T>(a.q, i * kTile, a.qkv_stride), a.qkv_stride, a.scale, query);
    Softmax state;
    for (int64_t r = 0; r < kTile; ++r) {
      state.max[r] = -__builtin_inff();
      state.sum[r] = Vec{};
    }
    for (int64_t j = 0; j <= i; ++j) {
      const float* tile_keys = keys + j * tile_floats;
      const float* tile_values = values + j * tile_floats;
      for_strips(j == i, computed, [&](int64_t r, int64_t strip, int64_t seen) {
        float* s = scores + r * kTile;
        multiply(strip, seen, padded, {query + r * padded, padded, 1}, tile_keys, kTile, s, kTile, false);
        if (j == i) mask_strip(scores, r, strip, seen);
        softmax_strip(state, scores, r, strip, seen, j == 0, sum, padded);
        multiply(strip, padded, seen, {s, kTile, 1}, tile_values, padded, sum + r * padded, padded, j > 0);
      });
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float total = horizontal_sum(state.sum[r]);
      store_tile<T>(1, a.head_dim, sum + r * padded, 1.0f / total,
                    row_at<T>(a.out, i * kTile + r, a.out_stride), a.out_stride);
      a.lse[i * kTile + r] = state.max[r] + __builtin_logf(total);
    }
  }
}

/// What the backward pass keeps of one kv head for the whole sequence, and its tiles in flight.
struct BackwardWork {
  float *keys, *keys_t, *values_t, *dkeys, *dvalues;  // [tiles] tiles
  float *query, *dout, *dquery;                       // [kTile][padded]
  float *probs, *dscores;                             // [kTile][kTile]
};

HEADRACE_INLINE BackwardWork carve_backward(float* work, int64_t tiles, int64_t tile_floats) {
  BackwardWork w;
  w.keys = work;
  w.keys_t = w.keys + tiles * tile_floats;
  w.values_t = w.keys_t + tiles * tile_floats;
  w.dkeys = w.values_t + tiles * tile_floats;
  w.dvalues = w.dkeys + tiles * tile_floats;
  w.query = w.dvalues + tiles * tile_floats;
  w.dout = w.query + tile_floats;
  w.dquery = w.dout + tile_floats;
  w.probs = w.dquery + tile_floats;
  w.dscores = w.probs + kTile * kTile;
  return w;
}

/// probs = exp(scores - lse); dscores = probs (dprobs - delta), where delta = sum of dout * out.
HEADRACE_INLINE void softmax_backward_strip(const float* lse, const float* delta, float* probs,
                                            float* dscores, int64_t row, int64_t rows, int64_t keys) {
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t c = r * kTile; c < r * kTile + keys; c += kLanes) {
      const Vec p = exp(load(probs + c) - lse[r]);
      store(probs + c, p);
      store(dscores + c, p * (load(dscores + c) - delta[r]));
    }
  }
}

/// Scores, their gradients, and what they add to the queries' and the keys' gradients, of one tile.
HEADRACE_INLINE void backward_tile(const BackwardWork& w, int64_t at, int64_t computed, int64_t padded,
                                   bool diagonal, bool first, const float* lse, const float* delta) {
  for_strips(diagonal, computed, [&](int64_t r, int64_t strip, int64_t seen) {
    float* p = w.probs + r * kTile;
    float* ds = w.dscores + r * kTile;
    multiply(strip, seen, padded, {w.query + r * padded, padded, 1}, w.keys_t + at, kTile, p, kTile, false);
    multiply(strip, seen, padded, {w.dout + r * padded, padded, 1}, w.values_t + at, kTile, ds, kTile, false);
    if (diagonal) mask_strip(w.probs, r, strip, seen);
    softmax_backward_strip(lse, delta, w.probs, w.dscores, r, strip, seen);
    multiply(strip, padded, seen, {ds, kTile, 1}, w.keys + at, padded, w.dquery + r * padded, padded, !first);
  });
  // Keys of a diagonal tile are seen by the queries from their own strip on.
  for_strips(diagonal, diagonal ? computed : kTile, [&](int64_t r, int64_t strip, int64_t) {
    const int64_t q = diagonal ? r : 0, queries = computed - q;
    const int64_t keys = diagonal ? strip : kTile, from = q * kTile + r, to = at + r * padded;
    multiply(keys, padded, queries, {w.probs + from, 1, kTile}, w.dout + q * padded, padded, w.dvalues + to,
             padded, true);
    multiply(keys, padded, queries, {w.dscores + from, 1, kTile}, w.query + q * padded, padded, w.dkeys + to,
             padded, true);
  });
}

/// One tile of queries of one head against all tiles of keys before it.
template <class T>
HEADRACE_INLINE void backward_queries(const AttentionHead& a, const BackwardWork& w, int64_t head,
                                      int64_t i) {
  const int64_t padded = attention_padded(a.head_dim);
  const int64_t tile_floats = kTile * padded;
  const int64_t rows = rows_in_tile(a.seq, i);
  const int64_t computed = padded_rows(rows);
  const int64_t column = head * a.head_dim;
  const T* out = row_at<T>(a.out, i * kTile, a.out_stride) + column;
  const T* dout = row_at<T>(a.dout, i * kTile, a.out_stride) + column;
  load_tile<T>(rows, a.head_dim, row_at<T>(a.q, i * kTile, a.qkv_stride) + column, a.qkv_stride, a.scale,
               w.query);
  load_tile<T>(rows, a.head_dim, dout, a.out_stride, 1.0f, w.dout);
  float lse[kTile], delta[kTile];
  for (int64_t r = 0; r < kTile; ++r) {
    // A padded row has probability 0 everywhere.
    lse[r] = r < rows ? a.lse[head * a.lse_stride + i * kTile + r] : __builtin_inff();
    Vec sum{};
    if (r < rows) {
      for_vectors(a.head_dim, [&](int64_t c, auto lanes) {
        sum += load(out + r * a.out_stride + c, lanes) * load(w.dout + r * padded + c, lanes);
      });
    }
    delta[r] = horizontal_sum(sum);
  }
  for (int64_t j = 0; j <= i; ++j) {
    backward_tile(w, j * tile_floats, computed, padded, j == i, j == 0, lse, delta);
  }
  store_tile<T>(rows, a.head_dim, w.dquery, a.scale, row_at<T>(a.dq, i * kTile, a.qkv_stride) + column,
                a.qkv_stride);
}

template <class T>
void attention_backward(const AttentionHead& a) {
  const int64_t padded = attention_padded(a.head_dim);
  const int64_t tiles = (a.seq + kTile - 1) / kTile;
  const int64_t tile_floats = kTile * padded;
  const BackwardWork w = carve_backward(a.work, tiles, tile_floats);
  for (int64_t j = 0; j < tiles; ++j) {
    const int64_t rows = rows_in_tile(a.seq, j);
    float* keys = w.keys + j * tile_floats;
    load_tile<T>(rows, a.head_dim, row_at<T>(a.k, j * kTile, a.qkv_stride), a.qkv_stride, 1.0f, keys);
    transpose(kTile, padded, keys, padded, w.keys_t + j * tile_floats, kTile);
    load_tile<T>(rows, a.head_dim, row_at<T>(a.v, j * kTile, a.qkv_stride), a.qkv_stride, 1.0f, w.query);
    transpose(kTile, padded, w.query, padded, w.values_t + j * tile_floats, kTile);
  }
  clear(w.dkeys, tiles * tile_floats);
  clear(w.dvalues, tiles * tile_floats);
  for (int64_t head = 0; head < a.group; ++head) {
    for (int64_t i = 0; i < tiles; ++i) backward_queries<T>(a, w, head, i);
  }
  for (int64_t j = 0; j < tiles; ++j) {
    const int64_t rows = rows_in_tile(a.seq, j);
    // dkeys was summed against queries that carry the scale already.
    store_tile<T>(rows, a.head_dim, w.dkeys + j * tile_floats, 1.0f, row_at<T>(a.dk, j * kTile, a.qkv_stride),
                  a.qkv_stride);
    store_tile<T>(rows, a.head_dim, w.dvalues + j * tile_floats, 1.0f,
                  row_at<T>(a.dv, j * kTile, a.qkv_stride), a.qkv_stride);
  }
}

}  // namespace headrace::kernels::host::HEADRACE_ISA
