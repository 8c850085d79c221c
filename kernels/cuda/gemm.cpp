// SPDX-License-Identifier: Apache-2.0
// Matrix products through cuBLASLt: the algorithm of a shape is asked for at its first use and kept.
// Row-major matrices are the transposes of column-major ones, so C = A B is asked for as C^T = B^T A^T.
//
// Reproducible: only algorithms that add parts of a sum in fp32 and in a fixed order (or do not split it) are
// taken, and the choice depends on the shape and on whether all addresses are multiples of 16 bytes, which
// planned memory makes true or false by shape. fp32 is multiplied in fp32, not TF32.
#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "headrace/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cublaslt_objects.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/gelu_product.h"
#include "kernels/cuda/product_rows.h"

namespace headrace::kernels::cuda {
namespace {

/// Workspace is for the parts of sums over k that are split, which pays for long sums with few results. More
/// than this would be split by nobody.
constexpr size_t kMaxWorkspaceBytes = size_t(32) << 20;
constexpr int64_t kMaxParts = 4, kMinElemsOfPart = 256;
constexpr size_t kWorkspaceAlignment = 256;
/// Where addresses and rows are multiples of this, every access can be as wide as the GPU has them.
constexpr uintptr_t kWideBytes = 16;
constexpr int kMaxGpus = 64;

/// What happens to a product on its way out, beside the bias.
enum class Gelu : uint8_t { none, forward, backward };

/// A product with its epilogue; z [m, n] has the row stride of C.
struct Work {
  Gemm g;
  Gelu gelu = Gelu::none;
  const void* z = nullptr;
};

cublasLtEpilogue_t epilogue_of(const Work& w) {
  switch (w.gelu) {
    case Gelu::forward:
      return w.g.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Gelu::backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Gelu::none:
      break;
  }
  return w.g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Everything that the choice of an algorithm depends on.
struct Shape {
  int gpu;
  int64_t m, n, k, lda, ldb, ldc;
  bool trans_a, trans_b, accumulate, bias, wide;
  DType in, out;
  Gelu gelu;
  bool operator==(const Shape&) const = default;
};

struct HashOfShape {
  size_t operator()(const Shape& s) const {
    uint64_t hash = 0;
    const int flags = s.trans_a | s.trans_b << 1 | s.accumulate << 2 | s.bias << 3 | s.wide << 4 |
                      int(s.in) << 5 | int(s.out) << 6 | int(s.gelu) << 7 | s.gpu << 9;
    for (const int64_t word : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc, int64_t(flags)}) {
      hash = (hash ^ uint64_t(word)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return size_t(hash);
  }
};

bool is_wide(const Gemm& g) {
  const auto whole = [](const void* data, int64_t row_elems, DType dtype) {
    return reinterpret_cast<uintptr_t>(data) % kWideBytes == 0 &&
           size_t(row_elems) * dtype_bytes(dtype) % kWideBytes == 0;
  };
  return whole(g.a, g.lda, g.in) && whole(g.b, g.ldb, g.in) && whole(g.c, g.ldc, g.out) &&
         whole(g.bias, 0, g.in);
}

Shape shape_of(const Work& w, int gpu) {
  const Gemm& g = w.g;
  return {gpu,
          g.m,
          g.n,
          g.k,
          g.lda,
          g.ldb,
          g.ldc,
          g.trans_a,
          g.trans_b,
          g.accumulate,
          g.bias != nullptr,
          is_wide(g),
          g.in,
          g.out,
          w.gelu};
}

/// Of the algorithm, not of what else a product may need.
size_t workspace_bytes(const Gemm& g) {
  const int64_t parts = g.k / kMinElemsOfPart < kMaxParts ? g.k / kMinElemsOfPart : kMaxParts;
  if (parts < 2) return 0;
  const size_t bytes = size_t(g.m) * size_t(g.n) * size_t(parts) * sizeof(float);
  const size_t rounded = (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  return rounded < kMaxWorkspaceBytes ? rounded : kMaxWorkspaceBytes;
}

/// cuBLASLt's objects for one shape.
struct Product {
  Description description;
  Layout a, b, c;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< none where the library has none
};

/// The heuristic takes alignments from addresses: it gets addresses that are just as aligned as was promised,
/// run() sets the real ones.
Description description_of(const Work& w, bool wide) {
  const Gemm& g = w.g;
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), g, "MatmulDescCreate");
  Description description(made);
  // The library's first operand is our second.
  set(g, description, CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(g, description, CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(g, description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(w));
  if (g.bias) {
    set(g, description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(g.in));
    const uintptr_t alignment = wide ? kWideBytes : dtype_bytes(g.in);
    set(g, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(alignment));
  }
  if (w.z) {
    set(g, description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.ldc);
    const uintptr_t alignment = kWideBytes;
    set(g, description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<const void*>(alignment));
  }
  return description;
}

Preference preference_of(const Gemm& g, bool wide) {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), g, "MatmulPreferenceCreate");
  Preference preference(made);
  const uint32_t in_bytes = wide ? kWideBytes : uint32_t(dtype_bytes(g.in));
  const uint32_t out_bytes = wide ? kWideBytes : uint32_t(dtype_bytes(g.out));
  set(g, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes(g)));
  // In place the parts of a sum would be rounded to the result's format, once each.
  set(g, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(g, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, in_bytes);
  set(g, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, in_bytes);
  set(g, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_bytes);
  set(g, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_bytes);
  return preference;
}

/// An epilogue that the library does not have for a shape is refused or has no algorithm.
void choose_algorithm(cublasLtHandle_t library, const Work& w, bool wide, Product& product) {
  const Gemm& g = w.g;
  const Preference preference = preference_of(g, wide);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library, product.description.get(), product.a.get(), product.b.get(),
                                     product.c.get(), product.c.get(), preference.get(), 1, &best, &found);
  if (w.gelu != Gelu::none && (status == CUBLAS_STATUS_NOT_SUPPORTED || found == 0)) return;
  check(status, g, "MatmulAlgoGetHeuristic");
  if (found == 0) throw DeviceError(text_of(g) + ": cuBLASLt has no algorithm for it on this GPU");
  check(best.state, g, "MatmulAlgoGetHeuristic");
  product.algorithm = best.algo;
}

Product make_product(cublasLtHandle_t library, const Work& w, bool wide) {
  const Gemm& g = w.g;
  Product product{.description = description_of(w, wide),
                  .a = g.trans_b ? layout(g, g.in, g.k, g.n, g.ldb) : layout(g, g.in, g.n, g.k, g.ldb),
                  .b = g.trans_a ? layout(g, g.in, g.m, g.k, g.lda) : layout(g, g.in, g.k, g.m, g.lda),
                  .c = layout(g, g.out, g.n, g.m, g.ldc),
                  .algorithm = {}};
  choose_algorithm(library, w, wide, product);
  return product;
}

/// Made once for each shape that the process meets, never dropped. Thread-safe.
class Products {
 public:
  /// False, with nothing done, where the library has no algorithm with the epilogue.
  bool run(cudaStream_t stream, const Work& w, std::byte* workspace) {
    const Gemm& g = w.g;
    int gpu = 0;
    headrace::cuda::check(cudaGetDevice(&gpu), "look for a GPU");
    const std::lock_guard lock(mutex_);
    cublasLtHandle_t library = library_on(gpu, g);
    const Shape shape = shape_of(w, gpu);
    auto found = products_.find(shape);
    if (found == products_.end())
      found = products_.emplace(shape, make_product(library, w, shape.wide)).first;
    const Product& product = found->second;
    if (!product.algorithm) return false;
    if (g.bias) set(g, product.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    if (w.z) set(g, product.description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, w.z);
    const float alpha = 1.0f, beta = g.accumulate ? 1.0f : 0.0f;
    check(cublasLtMatmul(library, product.description.get(), &alpha, g.b, product.a.get(), g.a,
                         product.b.get(), &beta, g.c, product.c.get(), g.c, product.c.get(),
                         &*product.algorithm, workspace, workspace_bytes(g), stream),
          g, "Matmul");
    return true;
  }

 private:
  /// Stays until the process ends: at exit the driver may be gone before a destructor runs.
  static cublasLtHandle_t library_on(int gpu, const Gemm& g) {
    static std::array<cublasLtHandle_t, kMaxGpus> libraries{};
    HEADRACE_CHECK(gpu < kMaxGpus, "more GPUs than expected");
    cublasLtHandle_t& library = libraries[size_t(gpu)];
    if (!library) check(cublasLtCreate(&library), g, "Create");
    return library;
  }

  std::mutex mutex_;
  std::unordered_map<Shape, Product, HashOfShape> products_;
};

Products& products() {
  static Products& all = *new Products;  // stays, as the library does: at exit the driver may be gone
  return all;
}

/// The library multiplies fp32 into fp32 only; the sum is then rounded by a pass of its own.
bool sums_apart(const Gemm& g) {
  return g.in == DType::f32 && g.out == DType::bf16;
}

size_t sum_bytes(const Gemm& g) {
  return sums_apart(g) ? size_t(g.m) * size_t(g.n) * sizeof(float) : 0;
}

std::byte* aligned(std::byte* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return data + (size_t(-address) & (kWorkspaceAlignment - 1));
}

/// The last pass over C where one is needed, with the sums in `from`.
void finish(cudaStream_t stream, const Gemm& g, const float* from, int64_t from_stride) {
  store_product_rows(stream, {.rows = g.m,
                              .cols = g.n,
                              .from = from,
                              .from_stride = from_stride,
                              .bias = g.bias,
                              .bias_dtype = g.in,
                              .c = g.c,
                              .c_stride = g.ldc,
                              .c_dtype = g.out});
}

void multiply(cudaStream_t stream, const Gemm& g, std::byte* workspace) {
  HEADRACE_CHECK(products().run(stream, {g}, workspace), "a product without gelu runs or throws");
}

bool fused(cudaStream_t stream, const Work& w, Scratch scratch) {
  const Gemm& g = w.g;
  if (g.in != DType::bf16 || g.out != DType::bf16 || g.m == 0 || g.n == 0 || g.k == 0) return false;
  if (!is_wide(g) || reinterpret_cast<uintptr_t>(w.z) % kWideBytes != 0) return false;
  HEADRACE_CHECK(!g.accumulate, "gelu of a sum that goes on");
  HEADRACE_CHECK(scratch.bytes >= gemm_scratch_bytes(g), "scratch smaller than asked for");
  return products().run(stream, w, aligned(scratch.data));
}

}  // namespace

bool gelu_product(cudaStream_t stream, const Gemm& g, void* z, Scratch scratch) {
  return fused(stream, {g, Gelu::forward, z}, scratch);
}

bool gelu_gradient_product(cudaStream_t stream, const Gemm& g, const void* z, Scratch scratch) {
  return fused(stream, {g, Gelu::backward, z}, scratch);
}

void gemm(cudaStream_t stream, const Gemm& g, Scratch scratch) {
  HEADRACE_CHECK(g.m >= 0 && g.n >= 0 && g.k >= 0, "a matrix has no negative size");
  HEADRACE_CHECK(!g.accumulate || g.out == DType::f32, "sums are kept in fp32");
  HEADRACE_CHECK(scratch.bytes >= gemm_scratch_bytes(g), "scratch smaller than asked for");
  if (g.m == 0 || g.n == 0) return;
  auto* const c = static_cast<float*>(g.c);
  if (g.k == 0) {
    if (!g.accumulate || g.bias) finish(stream, g, g.accumulate ? c : nullptr, g.ldc);
    return;
  }
  std::byte* const workspace = aligned(scratch.data);
  Gemm product = g;
  if (sums_apart(g)) {
    auto* const sums = reinterpret_cast<float*>(workspace + workspace_bytes(g));
    product.c = sums;
    product.ldc = g.n;
    product.out = DType::f32;
    product.bias = nullptr;
    multiply(stream, product, workspace);
    return finish(stream, g, sums, g.n);
  }
  const bool bias_apart = g.bias && g.in != g.out;  // the library's bias has the result's format
  if (bias_apart) product.bias = nullptr;
  multiply(stream, product, workspace);
  if (bias_apart) finish(stream, g, c, g.ldc);
}

size_t gemm_scratch_bytes(const Gemm& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0) return 0;
  return workspace_bytes(g) + sum_bytes(g) + kWorkspaceAlignment;
}

}  // namespace headrace::kernels::cuda
