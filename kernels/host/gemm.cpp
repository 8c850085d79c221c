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
#include <string>
#include <type_traits>

#include "headrace/error.h"
#include "kernels/host/matmul.h"

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

}  // namespace

bool native_bf16() {
  static const bool native =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
  return native;
}

void matmul(const Gemm& g, Scratch scratch) {
  MatmulCache& cache = MatmulCache::of_this_thread();
  cache.run(cache.get(shape_of(g)), g, scratch);
}

size_t matmul_scratch_bytes(const Gemm& shape) {
  return MatmulCache::of_this_thread().get(shape_of(shape)).scratch_bytes;
}

}  // namespace headrace::kernels::host
