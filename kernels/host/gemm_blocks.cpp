// SPDX-License-Identifier: Apache-2.0
// gemm in terms of matmul.h. Most products are passed on as they are; three
// kinds go through scratch in blocks:
//
// bf16 operands on a CPU without bf16 arithmetic, which the library emulates at a quarter
// of the fp32 speed (Ice Lake, 2 cores: 65 of 300 GFLOP/s) or not at all: blocks are
// converted to fp32, the result rounded once.
//
// fp32 operands whose rows are a multiple of 4 KiB apart, unless transposed, as the
// library copies those itself: all rows fall into the same cache sets (1 core: 40 instead
// of 100 GFLOP/s), so blocks are copied closer.
//
// fp32 operands with a bf16 result, which the library does not have.
#include <algorithm>
#include <array>

#include "headrace/error.h"
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/matmul.h"
#include "kernels/host/ranges.h"

namespace headrace::kernels::host {
namespace {

constexpr int64_t kBlockM = 512, kBlockN = 1024, kBlockK = 1024;
constexpr size_t kAlignment = 64;

/// Row length of a copied block: whole cache lines, and not a multiple of 4 KiB.
int64_t block_ld(int64_t cols) {
  return (cols + 15) / 16 * 16 + 16;
}

/// Which matrices pass through scratch.
struct Detours {
  bool a = false, b = false, c = false;
  bool any() const { return a || b || c; }
};

/// From here on B, unless transposed, is copied in blocks of kBlockK rows: 125 instead of 83 GFLOP/s on one
/// core at k = 2304, where one column of B touches more pages than the TLB holds.
constexpr int64_t kLongK = 2048;

bool rows_collide(int64_t rows, int64_t ld, bool trans) {
  return !trans && rows > 8 && ld % 1024 == 0;
}

Detours detours_of(const Gemm& g, Bf16Products how) {
  if (g.in == DType::bf16) {
    const bool native = how == Bf16Products::native || (how == Bf16Products::automatic && native_bf16());
    if (native) return {};
    return {.a = true, .b = true, .c = g.out == DType::bf16};
  }
  return {.a = rows_collide(g.m, g.lda, g.trans_a),
          .b = rows_collide(g.k, g.ldb, g.trans_b) || (!g.trans_b && g.k >= kLongK),
          .c = g.out == DType::bf16};
}

/// The parts of scratch that the blocks use, in floats.
struct BlockFloats {
  int64_t a, b, c, bias;
  [[nodiscard]] int64_t total() const { return a + b + c + bias; }
};

BlockFloats block_floats(const Gemm& g, Detours via) {
  const int64_t m = std::min(g.m, kBlockM), n = std::min(g.n, kBlockN), k = std::min(g.k, kBlockK);
  return {.a = !via.a      ? 0
               : g.trans_a ? k * block_ld(m)
                           : m * block_ld(k),
          .b = !via.b      ? 0
               : g.trans_b ? n * block_ld(k)
                           : k * block_ld(n),
          .c = via.c ? m * block_ld(n) : 0,
          .bias = block_ld(n)};
}

/// One block of the product, as the fp32 product it becomes; addresses are those in the whole matrices.
struct Block {
  int64_t i, j, p;  ///< where it starts in m, n, k
  bool last;        ///< of its block of C
  Gemm product;
};

Block block_at(const Gemm& g, Detours via, int64_t i, int64_t j, int64_t p) {
  Block block{i, j, p, p + kBlockK >= g.k, g};
  Gemm& f = block.product;
  f.m = std::min(kBlockM, g.m - i);
  f.n = std::min(kBlockN, g.n - j);
  f.k = std::min(kBlockK, g.k - p);
  f.a = element(g.a, g.trans_a ? p * g.lda + i : i * g.lda + p, g.in);
  f.b = element(g.b, g.trans_b ? j * g.ldb + p : p * g.ldb + j, g.in);
  f.c = element(g.c, i * g.ldc + j, g.out);
  f.bias = p == 0 ? element(g.bias, j, g.in) : nullptr;
  f.accumulate = g.accumulate || p > 0;
  f.in = DType::f32;
  f.out = DType::f32;
  if (via.a) f.lda = block_ld(g.trans_a ? f.m : f.k);
  if (via.b) f.ldb = block_ld(g.trans_b ? f.k : f.n);
  if (via.c) f.ldc = block_ld(f.n);
  return block;
}

template <class F>
void for_blocks(const Gemm& g, Detours via, F body) {
  for (int64_t i = 0; i < g.m; i += kBlockM) {
    for (int64_t j = 0; j < g.n; j += kBlockN) {
      for (int64_t p = 0; p < g.k; p += kBlockK) body(block_at(g, via, i, j, p));
    }
  }
}

/// Every kind of block once: along each dimension the first, one from the middle, and the last.
template <class F>
void for_block_shapes(const Gemm& g, Detours via, F body) {
  const auto starts = [](int64_t total, int64_t block) {
    return std::array<int64_t, 3>{0, std::min(block, (total - 1) / block * block),
                                  (total - 1) / block * block};
  };
  for (int64_t i : starts(g.m, kBlockM)) {
    for (int64_t j : starts(g.n, kBlockN)) {
      for (int64_t p : starts(g.k, kBlockK)) body(block_at(g, via, i, j, p));
    }
  }
}

/// Copies rows x cols elements from one format and row length to another.
void cast_matrix(int64_t rows, int64_t cols, const void* from, DType from_type, int64_t from_ld, void* to,
                 DType to_type, int64_t to_ld) {
  const auto cast_row = isa_kernels().cast[size_t(from_type)][size_t(to_type)];
  parallel_rows(rows, cols, [=](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      cast_row(cols, element(from, row * from_ld, from_type), element(to, row * to_ld, to_type));
    }
  });
}

/// The scratch of one blocked product, and which block of A and of B lies in it.
struct Copies {
  float *a, *b, *c, *bias;
  const void* a_from = nullptr;
  const void* b_from = nullptr;
};

/// Brings what the block needs into scratch and points the block's product there.
void bring(const Gemm& g, Detours via, Gemm& f, Copies& copies) {
  if (via.a && copies.a_from != f.a) {
    copies.a_from = f.a;
    cast_matrix(g.trans_a ? f.k : f.m, g.trans_a ? f.m : f.k, f.a, g.in, g.lda, copies.a, DType::f32, f.lda);
  }
  if (via.b && copies.b_from != f.b) {
    copies.b_from = f.b;
    cast_matrix(g.trans_b ? f.n : f.k, g.trans_b ? f.k : f.n, f.b, g.in, g.ldb, copies.b, DType::f32, f.ldb);
  }
  if (f.bias) cast_matrix(1, f.n, f.bias, g.in, f.n, copies.bias, DType::f32, f.n);
  if (via.a) f.a = copies.a;
  if (via.b) f.b = copies.b;
  if (f.bias) f.bias = copies.bias;
}

void blocked_gemm(const Gemm& g, Detours via, Scratch scratch) {
  const BlockFloats floats = block_floats(g, via);
  const size_t block_bytes = size_t(floats.total()) * sizeof(float);
  HEADRACE_CHECK(scratch.bytes >= block_bytes, "scratch smaller than asked for");
  float* first = reinterpret_cast<float*>(scratch.data);
  Copies copies{.a = first,
                .b = first + floats.a,
                .c = first + floats.a + floats.b,
                .bias = first + floats.a + floats.b + floats.c};
  const Scratch rest{scratch.data + block_bytes, scratch.bytes - block_bytes};
  for_blocks(g, via, [&](const Block& block) {
    Gemm f = block.product;
    bring(g, via, f, copies);
    if (via.c) f.c = copies.c;
    matmul(f, rest);
    if (via.c && block.last) {
      cast_matrix(f.m, f.n, copies.c, DType::f32, f.ldc, block.product.c, g.out, g.ldc);
    }
  });
}

/// No products to add: C is what the sum of nothing leaves.
void empty_gemm(const Gemm& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    void* row = element(g.c, i * g.ldc, g.out);
    if (g.bias && g.accumulate) {
      isa_kernels().accumulate[size_t(g.in)](g.n, g.bias, static_cast<float*>(row));
    } else if (g.bias) {
      isa_kernels().cast[size_t(g.in)][size_t(g.out)](g.n, g.bias, row);
    } else if (!g.accumulate) {
      std::fill_n(static_cast<std::byte*>(row), size_t(g.n) * dtype_bytes(g.out), std::byte{0});
    }
  }
}

}  // namespace

void gemm(const Gemm& g, Scratch scratch, Bf16Products how) {
  HEADRACE_CHECK(!g.accumulate || g.out == DType::f32, "only fp32 results accumulate");
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return empty_gemm(g);
  // No alignment is asked for, but cache lines that are not split are faster.
  const size_t skip = size_t(-reinterpret_cast<uintptr_t>(scratch.data) % kAlignment);
  HEADRACE_CHECK(scratch.bytes >= skip, "scratch smaller than asked for");
  scratch = {scratch.data + skip, scratch.bytes - skip};
  const Detours via = detours_of(g, how);
  if (via.any()) return blocked_gemm(g, via, scratch);
  matmul(g, scratch);
}

size_t gemm_scratch_bytes(const Gemm& shape, Bf16Products how) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return kAlignment;
  const Detours via = detours_of(shape, how);
  const float some_bias = 0.0f;
  size_t bytes = 0;
  for (const void* bias : {static_cast<const void*>(nullptr), static_cast<const void*>(&some_bias)}) {
    Gemm g = shape;
    g.bias = bias;
    if (!via.any()) {
      bytes = std::max(bytes, matmul_scratch_bytes(g));
      continue;
    }
    const size_t block_bytes = size_t(block_floats(g, via).total()) * sizeof(float);
    for_block_shapes(g, via, [&](const Block& block) {
      bytes = std::max(bytes, block_bytes + matmul_scratch_bytes(block.product));
    });
  }
  return kAlignment + bytes;
}

}  // namespace headrace::kernels::host
