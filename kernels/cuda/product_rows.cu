// SPDX-License-Identifier: Apache-2.0
#include "headrace/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/port.h"
#include "kernels/cuda/product_rows.h"

namespace headrace::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

template <class Bias, class C>
__global__ void product_rows_kernel(ProductRows p) {
  const auto* const bias = static_cast<const Bias*>(p.bias);
  auto* const c = static_cast<C*>(p.c);
  const int64_t elems = p.rows * p.cols;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < elems;
       i += int64_t(gridDim.x) * kThreads) {
    const int64_t row = i / p.cols, col = i % p.cols;
    const float sum = p.from ? p.from[row * p.from_stride + col] : 0.0f;
    c[row * p.c_stride + col] = narrow<C>(bias ? sum + widen(bias[col]) : sum);
  }
}

template <class Bias, class C>
void launch_rows(cudaStream_t stream, const ProductRows& p) {
  const int64_t wanted = ceil_div(p.rows * p.cols, kThreads);
  const unsigned grid = blocks(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  launch(stream, product_rows_kernel<Bias, C>, {.grid = dim3(grid), .block = dim3(kThreads)}, p);
}

}  // namespace

void store_product_rows(cudaStream_t stream, const ProductRows& p) {
  if (p.rows == 0 || p.cols == 0) return;
  const bool float_bias = p.bias_dtype == DType::f32, float_c = p.c_dtype == DType::f32;
  HEADRACE_CHECK(float_c || static_cast<const void*>(p.from) != p.c, "a sum in fp32 is not a result in bf16");
  if (float_bias && float_c) return launch_rows<float, float>(stream, p);
  if (float_bias) return launch_rows<float, bf16>(stream, p);
  if (float_c) return launch_rows<bf16, float>(stream, p);
  launch_rows<bf16, bf16>(stream, p);
}

}  // namespace headrace::kernels::cuda
