// SPDX-License-Identifier: Apache-2.0
// Attention of the cuda device: checks, the choice of a path, scratch. The path depends on format, head_dim
// and alignment alone, never on how much scratch there is.
#include "kernels/attention.h"

#include <limits>

#include "headrace/error.h"
#include "kernels/cuda/attention_paths.h"
#include "kernels/cuda/cuda_kernels.h"

namespace headrace::kernels::cuda {
namespace {

constexpr size_t kAlignment = 16;

void check_shape(const Attention& a) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  HEADRACE_CHECK(a.batch >= 0 && a.seq >= 0 && a.heads >= 0 && a.head_dim > 0,
                 "attention of a negative size");
  HEADRACE_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0, "heads must be a multiple of kv_heads");
  HEADRACE_CHECK(a.head_dim <= kMaxHeadDim, "attention on CUDA: head_dim above 256");
  HEADRACE_CHECK(a.scale > 0 && a.scale <= std::numeric_limits<float>::max(),
                 "attention's scale must be positive and finite");
  HEADRACE_CHECK(a.batch == 0 || a.seq <= kMaxInt / a.batch, "attention over 2^31 rows or more");
  HEADRACE_CHECK(!a.cu_seqlens || (a.documents > 0 && a.documents < kMaxInt),
                 "cu_seqlens without a number of documents");
}

template <class... Pointers>
bool aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kAlignment == 0) && ...);
}

bool flash_shape(const Attention& a) {
  return a.dtype == DType::bf16 && (a.head_dim == 64 || a.head_dim == 96 || a.head_dim == 128);
}

bool nothing_to_do(const Attention& a) {
  return a.batch * a.seq * a.heads == 0;
}

size_t delta_bytes(const Attention& a) {
  return size_t(a.batch * a.heads * a.seq) * sizeof(float);
}

float* cut_delta(const Attention& a, Scratch scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data);
  const size_t skip = size_t(-address % kAlignment);
  HEADRACE_CHECK(scratch.bytes >= skip + delta_bytes(a), "scratch smaller than asked for");
  return reinterpret_cast<float*>(scratch.data + skip);
}

}  // namespace

size_t attention_scratch_bytes(const Attention& a) {
  return delta_bytes(a) + kAlignment;
}

void attention_forward(cudaStream_t stream, const Attention& a, const void* qkv, void* out, float* lse,
                       Scratch) {
  check_shape(a);
  if (nothing_to_do(a)) return;
  if (flash_shape(a) && aligned(qkv, out)) {
    return flash_forward(stream, a, static_cast<const bf16*>(qkv), static_cast<bf16*>(out), lse);
  }
  plain_forward(stream, a, qkv, out, lse);
}

void attention_backward(cudaStream_t stream, const Attention& a, const void* qkv, const void* out,
                        const float* lse, const void* dout, void* dqkv, Scratch scratch) {
  check_shape(a);
  if (nothing_to_do(a)) return;
  float* delta = cut_delta(a, scratch);
  attention_delta(stream, a, out, dout, delta);
  if (flash_shape(a) && aligned(qkv, dout, dqkv)) {
    return flash_backward(stream, a, static_cast<const bf16*>(qkv), lse, delta,
                          static_cast<const bf16*>(dout), static_cast<bf16*>(dqkv));
  }
  plain_backward(stream, a, qkv, lse, delta, dout, dqkv);
}

}  // namespace headrace::kernels::cuda
