// SPDX-License-Identifier: Apache-2.0
// Matrix products of the host: oneDNN matmul, one primitive per shape, made on the first use of the shape.
//
// bf16: CPUs with avx512_bf16 or AMX multiply bf16 directly. Elsewhere oneDNN emulates it at a quarter of the
// fp32 speed (Ice Lake: 65 of 300 GFLOP/s) or not at all, so blocks of the operands are converted to fp32 in
// scratch, multiplied as fp32 and the finished block is rounded once.
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <memory>
#include <type_traits>

#include "headrace/error.h"
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/ranges.h"

namespace headrace::kernels::host {
namespace {

void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) {
    throw DeviceError(std::string("oneDNN: ") + call + " failed with status " + std::to_string(int(status)));
  }
}

template <class Handle, dnnl_status_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, dnnl_status_t (*destroy)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Engine = Owner<dnnl_engine_t, dnnl_engine_destroy>;
using DnnlStream = Owner<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Owner<dnnl_memory_t, dnnl_memory_destroy>;
using Primitive = Owner<dnnl_primitive_t, dnnl_primitive_destroy>;
using PrimitiveDesc = Owner<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Attributes = Owner<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owner<dnnl_post_ops_t, dnnl_post_ops_destroy>;

/// Everything a product depends on except addresses.
struct Shape {
  int64_t m, n, k, lda, ldb, ldc;
  bool trans_a, trans_b, accumulate, bias;
  DType in, out;
  int threads;
  bool operator==(const Shape&) const = default;
};

Shape shape_of(const Gemm& g) {
  return {g.m,
          g.n,
          g.k,
          g.lda,
          g.ldb,
          g.ldc,
          g.trans_a,
          g.trans_b,
          g.accumulate,
          g.bias != nullptr,
          g.in,
          g.out,
          omp_get_max_threads()};
}

size_t hash_of(const Shape& s) {
  uint64_t hash = 0;
  const int flags =
      s.trans_a | s.trans_b << 1 | s.accumulate << 2 | s.bias << 3 | int(s.in) << 4 | int(s.out) << 5;
  for (const int64_t word : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc, int64_t(flags), int64_t(s.threads)}) {
    hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return size_t(hash);
}

dnnl_data_type_t data_type(DType dtype) {
  return dtype == DType::f32 ? dnnl_f32 : dnnl_bf16;
}

dnnl_memory_desc_t matrix(int64_t rows, int64_t cols, int64_t ld, bool trans, DType dtype) {
  const dnnl_dims_t dims = {rows, cols};
  const dnnl_dims_t strides = {trans ? 1 : ld, trans ? ld : 1};
  dnnl_memory_desc_t desc;
  check(dnnl_memory_desc_init_by_strides(&desc, 2, dims, data_type(dtype), strides), "memory_desc_init");
  return desc;
}

/// A primitive with the memory objects of its arguments; their addresses are set at every run.
struct Matmul {
  Shape shape{};
  Primitive primitive;
  Memory a, b, c, bias, scratch;
  size_t scratch_bytes = 0;
};

class MatmulCache {
 public:
  const Matmul& get(const Shape& shape) {
    const size_t home = hash_of(shape) % entries_.size();
    for (size_t probe = 0; probe < kProbes; ++probe) {
      Matmul& entry = entries_[(home + probe) % entries_.size()];
      if (entry.primitive && entry.shape == shape) return entry;
      if (!entry.primitive) return entry = make(shape);
    }
    return entries_[home] = make(shape);
  }
  void run(const Matmul& product, const Gemm& g, Scratch scratch) {
    HEADRACE_CHECK(scratch.bytes >= product.scratch_bytes, "scratch smaller than asked for");
    std::array<dnnl_exec_arg_t, 5> args;
    int count = 0;
    const auto bind = [&](int role, const Memory& memory, const void* data) {
      check(dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data)), "memory_set_data_handle");
      args[size_t(count++)] = {role, memory.get()};
    };
    bind(DNNL_ARG_SRC, product.a, g.a);
    bind(DNNL_ARG_WEIGHTS, product.b, g.b);
    bind(DNNL_ARG_DST, product.c, g.c);
    bind(DNNL_ARG_SCRATCHPAD, product.scratch, scratch.data);
    if (product.bias) bind(DNNL_ARG_BIAS, product.bias, g.bias);
    check(dnnl_primitive_execute(product.primitive.get(), stream_.get(), count, args.data()),
          "primitive_execute");
    check(dnnl_stream_wait(stream_.get()), "stream_wait");
  }
  static MatmulCache& of_this_thread() {
    thread_local const std::unique_ptr<MatmulCache> cache = std::make_unique<MatmulCache>();
    return *cache;
  }
  MatmulCache() {
    dnnl_engine_t engine = nullptr;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine_create");
    engine_.reset(engine);
    dnnl_stream_t stream = nullptr;
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream_create");
    stream_.reset(stream);
  }

 private:
  static constexpr size_t kProbes = 16;

  Memory memory(const dnnl_memory_desc_t& desc) {
    dnnl_memory_t memory = nullptr;
    check(dnnl_memory_create(&memory, &desc, engine_.get(), DNNL_MEMORY_NONE), "memory_create");
    return Memory(memory);
  }

  static Attributes attributes(bool accumulate) {
    dnnl_primitive_attr_t attr = nullptr;
    check(dnnl_primitive_attr_create(&attr), "primitive_attr_create");
    Attributes owner(attr);
    check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "set_scratchpad_mode");
    if (!accumulate) return owner;
    dnnl_post_ops_t ops = nullptr;
    check(dnnl_post_ops_create(&ops), "post_ops_create");
    const PostOps ops_owner(ops);
    check(dnnl_post_ops_append_sum(ops, 1.0f), "post_ops_append_sum");
    check(dnnl_primitive_attr_set_post_ops(attr, ops), "set_post_ops");
    return owner;
  }

  Matmul make(const Shape& s) {
    const dnnl_memory_desc_t a = matrix(s.m, s.k, s.lda, s.trans_a, s.in);
    const dnnl_memory_desc_t b = matrix(s.k, s.n, s.ldb, s.trans_b, s.in);
    const dnnl_memory_desc_t c = matrix(s.m, s.n, s.ldc, false, s.out);
    const dnnl_memory_desc_t bias = matrix(1, s.n, s.n, false, s.in);
    dnnl_matmul_desc_t desc;
    check(dnnl_matmul_desc_init(&desc, &a, &b, s.bias ? &bias : nullptr, &c), "matmul_desc_init");
    const Attributes attr = attributes(s.accumulate);
    dnnl_primitive_desc_t pd = nullptr;
    check(dnnl_primitive_desc_create(&pd, &desc, attr.get(), engine_.get(), nullptr),
          "primitive_desc_create");
    const PrimitiveDesc pd_owner(pd);
    dnnl_primitive_t primitive = nullptr;
    check(dnnl_primitive_create(&primitive, pd), "primitive_create");
    Matmul product;
    product.primitive.reset(primitive);
    product.shape = s;
    product.a = memory(a);
    product.b = memory(b);
    product.c = memory(c);
    if (s.bias) product.bias = memory(bias);
    const dnnl_memory_desc_t* scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    product.scratch = memory(*scratch);
    product.scratch_bytes = dnnl_memory_desc_get_size(scratch);
    return product;
  }

  Engine engine_;
  DnnlStream stream_;
  std::array<Matmul, 512> entries_;
};

bool native_bf16() {
  static const bool native =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
  return native;
}

bool converts(const Gemm& g, Bf16Products how) {
  if (g.in == DType::f32 && g.out == DType::f32) return false;
  if (g.in == DType::f32) return true;  // oneDNN has no fp32 product with a bf16 result
  return how == Bf16Products::converted || (how == Bf16Products::automatic && !native_bf16());
}

// Blocks of the conversion, in elements: three fp32 blocks stay in the L2 and L3 caches between their uses.
constexpr int64_t kBlockM = 512, kBlockN = 1024, kBlockK = 1024;
constexpr size_t kAlignment = 64;

/// Row length of a converted block: whole cache lines, and not a power of two apart.
int64_t block_ld(int64_t cols) {
  return (cols + 15) / 16 * 16 + 16;
}

/// The parts of scratch that a converted product uses, in floats.
struct BlockFloats {
  int64_t a, b, c, bias;
  int64_t total() const { return a + b + c + bias; }
};

BlockFloats block_floats(const Gemm& g) {
  const int64_t m = std::min(g.m, kBlockM), n = std::min(g.n, kBlockN), k = std::min(g.k, kBlockK);
  const int64_t a = g.in == DType::f32 ? 0 : g.trans_a ? k * block_ld(m) : m * block_ld(k);
  const int64_t b = g.in == DType::f32 ? 0 : g.trans_b ? n * block_ld(k) : k * block_ld(n);
  return {a, b, g.out == DType::f32 ? 0 : m * block_ld(n), block_ld(n)};
}

/// Converts rows x cols elements; rows are `ld` apart on both sides.
void cast_matrix(int64_t rows, int64_t cols, const void* from, DType from_type, int64_t from_ld, void* to,
                 DType to_type, int64_t to_ld) {
  const auto cast_row = isa_kernels().cast[size_t(from_type)][size_t(to_type)];
  parallel_rows(rows, cols, [=](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      cast_row(cols, element(from, row * from_ld, from_type), element(to, row * to_ld, to_type));
    }
  });
}

/// One block of the product as an fp32 product, its operands converted when `run` wants them.
struct Block {
  int64_t i, j, p;  ///< where it starts in m, n, k
  Gemm product;
};

Block block_at(const Gemm& g, int64_t i, int64_t j, int64_t p) {
  Block block{i, j, p, g};
  Gemm& f = block.product;
  f.m = std::min(kBlockM, g.m - i);
  f.n = std::min(kBlockN, g.n - j);
  f.k = std::min(kBlockK, g.k - p);
  f.a = element(g.a, g.trans_a ? p * g.lda + i : i * g.lda + p, g.in);
  f.b = element(g.b, g.trans_b ? j * g.ldb + p : p * g.ldb + j, g.in);
  f.c = element(g.c, i * g.ldc + j, g.out);
  f.bias = p == 0 ? element(g.bias, j, g.in) : nullptr;
  f.accumulate = g.accumulate || p > 0;
  if (g.in == DType::bf16) {
    f.lda = block_ld(g.trans_a ? f.m : f.k);
    f.ldb = block_ld(g.trans_b ? f.k : f.n);
    f.in = DType::f32;
  }
  if (g.out == DType::bf16) {
    f.ldc = block_ld(f.n);
    f.out = DType::f32;
  }
  return block;
}

template <class F>
void for_blocks(const Gemm& g, F body) {
  for (int64_t i = 0; i < g.m; i += kBlockM) {
    for (int64_t j = 0; j < g.n; j += kBlockN) {
      for (int64_t p = 0; p < g.k; p += kBlockK) body(block_at(g, i, j, p));
    }
  }
}

void converted_gemm(const Gemm& g, Scratch scratch) {
  const BlockFloats floats = block_floats(g);
  const size_t block_bytes = size_t(floats.total()) * sizeof(float);
  HEADRACE_CHECK(scratch.bytes >= block_bytes, "scratch smaller than asked for");
  float* a = reinterpret_cast<float*>(scratch.data);
  float* b = a + floats.a;
  float* c = b + floats.b;
  float* bias = c + floats.c;
  MatmulCache& cache = MatmulCache::of_this_thread();
  for_blocks(g, [&](const Block& block) {
    Gemm f = block.product;
    if (g.in == DType::bf16) {
      cast_matrix(g.trans_a ? f.k : f.m, g.trans_a ? f.m : f.k, f.a, g.in, g.lda, a, DType::f32, f.lda);
      cast_matrix(g.trans_b ? f.n : f.k, g.trans_b ? f.k : f.n, f.b, g.in, g.ldb, b, DType::f32, f.ldb);
      if (f.bias) cast_matrix(1, f.n, f.bias, g.in, f.n, bias, DType::f32, f.n);
      f.a = a;
      f.b = b;
      if (f.bias) f.bias = bias;
    }
    void* out = f.c;
    if (g.out == DType::bf16) f.c = c;
    cache.run(cache.get(shape_of(f)), f, {scratch.data + block_bytes, scratch.bytes - block_bytes});
    const bool last = block.p + f.k == g.k;
    if (g.out == DType::bf16 && last) cast_matrix(f.m, f.n, c, DType::f32, f.ldc, out, g.out, g.ldc);
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
  // oneDNN asks for nothing, but cache lines that are not split are faster.
  const size_t skip = size_t(-reinterpret_cast<uintptr_t>(scratch.data) % kAlignment);
  HEADRACE_CHECK(scratch.bytes >= skip, "scratch smaller than asked for");
  scratch = {scratch.data + skip, scratch.bytes - skip};
  if (converts(g, how)) return converted_gemm(g, scratch);
  MatmulCache& cache = MatmulCache::of_this_thread();
  cache.run(cache.get(shape_of(g)), g, scratch);
}

size_t gemm_scratch_bytes(const Gemm& shape, Bf16Products how) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return kAlignment;
  MatmulCache& cache = MatmulCache::of_this_thread();
  const float some_bias = 0.0f;
  size_t bytes = 0;
  for (const void* bias : {static_cast<const void*>(nullptr), static_cast<const void*>(&some_bias)}) {
    Gemm g = shape;
    g.bias = bias;
    if (!converts(g, how)) {
      bytes = std::max(bytes, cache.get(shape_of(g)).scratch_bytes);
      continue;
    }
    const size_t block_bytes = size_t(block_floats(g).total()) * sizeof(float);
    for_blocks(g, [&](const Block& block) {
      bytes = std::max(bytes, block_bytes + cache.get(shape_of(block.product)).scratch_bytes);
    });
  }
  return kAlignment + bytes;
}

}  // namespace headrace::kernels::host
