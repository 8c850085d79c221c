// SPDX-License-Identifier: Apache-2.0
// Attention and rotary positions of the host: the heads of all documents are shared among the
// OpenMP team, each done by one thread in one order, so that the number of threads does not
// matter, nor what a document is packed with. Less scratch means fewer threads, never other sums.
#include <omp.h>

#include <array>
#include <cmath>

#include "headrace/error.h"
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/ranges.h"

namespace headrace::kernels::host {
namespace {

constexpr size_t kAlignment = 64;

size_t thread_bytes(const Attention& a, bool backward) {
  return size_t(attention_work_floats(a.seq, a.head_dim, backward)) * sizeof(float);
}

/// One work area per thread, cut from scratch.
struct WorkAreas {
  std::byte* data;
  size_t bytes_each;
  int count;
  float* area(int thread) const { return reinterpret_cast<float*>(data + size_t(thread) * bytes_each); }
};

WorkAreas cut_work_areas(Scratch scratch, size_t bytes_each, int64_t items) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data);
  const size_t skip = size_t(-address % kAlignment);
  HEADRACE_CHECK(scratch.bytes >= skip + bytes_each, "scratch smaller than asked for");
  const size_t fit = (scratch.bytes - skip) / bytes_each;
  const size_t wanted = std::min(size_t(omp_get_max_threads()), size_t(items));
  return {scratch.data + skip, bytes_each, int(std::min(fit, wanted))};
}

/// Rows that attend to one another; a whole sequence where nothing is packed.
struct Document {
  int64_t begin, rows;
};

int64_t document_count(const Attention& a) {
  return a.cu_seqlens ? a.documents : a.batch;
}

Document document(const Attention& a, int64_t index) {
  if (!a.cu_seqlens) return {index * a.seq, a.seq};
  return {a.cu_seqlens[index], a.cu_seqlens[index + 1] - a.cu_seqlens[index]};
}

AttentionHead head_of(const Attention& a, const Document& d) {
  AttentionHead h{};
  h.seq = d.rows;
  h.head_dim = a.head_dim;
  h.group = 1;
  h.scale = a.scale;
  h.qkv_stride = (a.heads + 2 * a.kv_heads) * a.head_dim;
  h.out_stride = a.heads * a.head_dim;
  h.lse_stride = a.seq;
  return h;
}

/// Where a row's lse of one head is.
int64_t lse_at(const Attention& a, int64_t row, int64_t head) {
  return (row / a.seq * a.heads + head) * a.seq + row % a.seq;
}

void check_documents(const Attention& a) {
  const int32_t* begins = a.cu_seqlens;
  HEADRACE_CHECK(a.documents > 0 && begins[0] == 0 && begins[a.documents] == a.batch * a.seq,
                 "cu_seqlens must reach from 0 to batch * seq");
  for (int64_t d = 0; d < a.documents; ++d) {
    HEADRACE_CHECK(begins[d] <= begins[d + 1], "cu_seqlens must ascend");
    const bool within = begins[d] == begins[d + 1] || begins[d] / a.seq == (begins[d + 1] - 1) / a.seq;
    HEADRACE_CHECK(within, "a document must not cross from one sequence into the next");
  }
}

void check_shape(const Attention& a) {
  HEADRACE_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0, "heads must be a multiple of kv_heads");
  if (a.cu_seqlens) check_documents(a);
}

}  // namespace

size_t attention_scratch_bytes(const Attention& a) {
  return size_t(omp_get_max_threads()) * thread_bytes(a, true) + kAlignment;
}

void attention_forward(const Attention& a, const void* qkv, void* out, float* lse, Scratch scratch) {
  if (a.batch * a.seq * a.heads == 0) return;
  check_shape(a);
  const int64_t items = document_count(a) * a.heads;
  const auto run = isa_kernels().attention_forward[size_t(a.dtype)];
  const WorkAreas work = cut_work_areas(scratch, thread_bytes(a, false), items);
#pragma omp parallel for schedule(dynamic) num_threads(work.count)
  for (int64_t item = 0; item < items; ++item) {
    const Document d = document(a, item / a.heads);
    if (d.rows == 0) continue;
    const int64_t head = item % a.heads, kv_head = head / (a.heads / a.kv_heads);
    AttentionHead h = head_of(a, d);
    const void* row = element(qkv, d.begin * h.qkv_stride, a.dtype);
    h.q = element(row, head * a.head_dim, a.dtype);
    h.k = element(row, (a.heads + kv_head) * a.head_dim, a.dtype);
    h.v = element(row, (a.heads + a.kv_heads + kv_head) * a.head_dim, a.dtype);
    h.out = element(out, d.begin * h.out_stride + head * a.head_dim, a.dtype);
    h.lse = lse + lse_at(a, d.begin, head);
    h.work = work.area(omp_get_thread_num());
    run(h);
  }
}

void attention_backward(const Attention& a, const void* qkv, const void* out, const float* lse,
                        const void* dout, void* dqkv, Scratch scratch) {
  if (a.batch * a.seq * a.heads == 0) return;
  check_shape(a);
  const int64_t items = document_count(a) * a.kv_heads;
  const auto run = isa_kernels().attention_backward[size_t(a.dtype)];
  const WorkAreas work = cut_work_areas(scratch, thread_bytes(a, true), items);
#pragma omp parallel for schedule(dynamic) num_threads(work.count)
  for (int64_t item = 0; item < items; ++item) {
    const Document d = document(a, item / a.kv_heads);
    if (d.rows == 0) continue;
    const int64_t kv_head = item % a.kv_heads;
    AttentionHead h = head_of(a, d);
    h.group = a.heads / a.kv_heads;
    const int64_t q_at = d.begin * h.qkv_stride + kv_head * h.group * a.head_dim;
    const int64_t k_at = d.begin * h.qkv_stride + (a.heads + kv_head) * a.head_dim;
    const int64_t v_at = k_at + a.kv_heads * a.head_dim;
    const int64_t out_at = d.begin * h.out_stride + kv_head * h.group * a.head_dim;
    h.q = element(qkv, q_at, a.dtype);
    h.k = element(qkv, k_at, a.dtype);
    h.v = element(qkv, v_at, a.dtype);
    h.dq = element(dqkv, q_at, a.dtype);
    h.dk = element(dqkv, k_at, a.dtype);
    h.dv = element(dqkv, v_at, a.dtype);
    // The backward loops only read these two.
    h.out = const_cast<void*>(element(out, out_at, a.dtype));
    h.lse = const_cast<float*>(lse) + lse_at(a, d.begin, kv_head * h.group);
    h.dout = element(dout, out_at, a.dtype);
    h.work = work.area(omp_get_thread_num());
    run(h);
  }
}

void rotary(const Rotary& r, void* qkv) {
  constexpr int64_t kMaxHalf = 512;
  const int64_t half = r.head_dim / 2;
  HEADRACE_CHECK(half <= kMaxHalf, "head_dim above 1024");
  const auto rotate = isa_kernels().rotate[size_t(r.dtype)];
  const int64_t positions = std::min(r.seq, r.rows);
  // Rows of one position share their angles; sin and cos in double cost more than the rotation of a head.
  parallel_ranges(positions, 8, [=](int64_t first, int64_t count) {
    std::array<double, kMaxHalf> frequency;
    std::array<float, kMaxHalf> cosine, sine;
    for (int64_t i = 0; i < half; ++i) {
      frequency[size_t(i)] = std::pow(double(r.theta), -2.0 * double(i) / double(r.head_dim));
    }
    for (int64_t position = first; position < first + count; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = double(position) * frequency[size_t(i)];
        cosine[size_t(i)] = float(std::cos(angle));
        sine[size_t(i)] = float(r.inverse ? -std::sin(angle) : std::sin(angle));
      }
      for (int64_t row = position; row < r.rows; row += r.seq) {
        for (int64_t head = 0; head < r.rotated_heads; ++head) {
          rotate(half, cosine.data(), sine.data(),
                 element(qkv, row * r.row_stride + head * r.head_dim, r.dtype));
        }
      }
    }
  });
}

}  // namespace headrace::kernels::host
