// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm of the host. The sums over rows are made per group of kGroupRows rows into scratch,
// then the groups are added in ascending order: the number of threads does not matter.
#include "headrace/error.h"
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/ranges.h"

namespace headrace::kernels::host {
namespace {

constexpr int64_t kGroupRows = 16;

int64_t group_count(int64_t rows) {
  return (rows + kGroupRows - 1) / kGroupRows;
}

/// sum[cols] += the groups' shares, each `stride` floats after the one before.
/// Leaves the total in the first share.
void add_groups(int64_t groups, int64_t cols, int64_t stride, float* shares, float* sum) {
  const auto accumulate = isa_kernels().accumulate[size_t(DType::f32)];
  parallel_ranges(cols, kTurnColumns, [=](int64_t column, int64_t count) {
    for (int64_t g = 1; g < groups; ++g) accumulate(count, shares + g * stride + column, shares + column);
    accumulate(count, shares + column, sum + column);
  });
}

NormRows rows_at(NormRows n, int64_t row, int64_t count, DType dtype) {
  n.rows = count;
  n.x = element(n.x, row * n.cols, dtype);
  n.y = element(n.y, row * n.cols, dtype);
  if (n.mean) n.mean += row;
  n.rstd += row;
  return n;
}

/// Runs all groups of one backward pass; share g of dweight is at scratch +
/// 2 g cols, of dbias right behind it.
void backward_groups(NormBackwardRows all, DType dtype, void (*run)(const NormBackwardRows&),
                     Scratch scratch) {
  HEADRACE_CHECK(scratch.bytes >= norm_scratch_bytes(all.rows, all.cols), "scratch smaller than asked for");
  float* shares = reinterpret_cast<float*>(scratch.data);
  parallel_ranges(all.rows, kGroupRows, [=](int64_t row, int64_t count) {
    NormBackwardRows group = all;
    const int64_t at = row * all.cols;
    group.rows = count;
    group.x = element(all.x, at, dtype);
    group.dy = element(all.dy, at, dtype);
    group.residual_dx = element(all.residual_dx, at, dtype);
    group.dx = element(all.dx, at, dtype);
    group.mean = all.mean ? all.mean + row : nullptr;
    group.rstd = all.rstd + row;
    group.dweight = shares + row / kGroupRows * 2 * all.cols;
    group.dbias = group.dweight + all.cols;
    run(group);
  });
}

}  // namespace

size_t norm_scratch_bytes(int64_t rows, int64_t cols) {
  return size_t(group_count(rows) * 2 * cols) * sizeof(float);
}

void rms_norm_forward(const RmsNorm& n, const void* x, const void* weight, void* y, float* rstd) {
  const NormRows all{.rows = n.rows,
                     .cols = n.cols,
                     .eps = n.eps,
                     .x = x,
                     .weight = weight,
                     .bias = nullptr,
                     .y = y,
                     .mean = nullptr,
                     .rstd = rstd};
  const auto run = isa_kernels().rms_norm_forward[size_t(n.dtype)];
  parallel_rows(n.rows, n.cols, [=](int64_t row, int64_t count) { run(rows_at(all, row, count, n.dtype)); });
}

void layer_norm_forward(const LayerNorm& n, const void* x, const void* weight, const void* bias, void* y,
                        float* mean, float* rstd) {
  const NormRows all{.rows = n.rows,
                     .cols = n.cols,
                     .eps = n.eps,
                     .x = x,
                     .weight = weight,
                     .bias = bias,
                     .y = y,
                     .mean = mean,
                     .rstd = rstd};
  const auto run = isa_kernels().layer_norm_forward[size_t(n.dtype)];
  parallel_rows(n.rows, n.cols, [=](int64_t row, int64_t count) { run(rows_at(all, row, count, n.dtype)); });
}

void rms_norm_backward(const RmsNorm& n, const void* x, const void* weight, const float* rstd, const void* dy,
                       const void* residual_dx, void* dx, float* dweight, Scratch scratch) {
  if (n.rows == 0) return;
  const NormBackwardRows all{.rows = n.rows,
                             .cols = n.cols,
                             .x = x,
                             .weight = weight,
                             .mean = nullptr,
                             .rstd = rstd,
                             .dy = dy,
                             .residual_dx = residual_dx,
                             .dx = dx,
                             .dweight = nullptr,
                             .dbias = nullptr};
  backward_groups(all, n.dtype, isa_kernels().rms_norm_backward[size_t(n.dtype)], scratch);
  add_groups(group_count(n.rows), n.cols, 2 * n.cols, reinterpret_cast<float*>(scratch.data), dweight);
}

void layer_norm_backward(const LayerNorm& n, const void* x, const void* weight, const float* mean,
                         const float* rstd, const void* dy, const void* residual_dx, void* dx, float* dweight,
                         float* dbias, Scratch scratch) {
  if (n.rows == 0) return;
  const NormBackwardRows all{.rows = n.rows,
                             .cols = n.cols,
                             .x = x,
                             .weight = weight,
                             .mean = mean,
                             .rstd = rstd,
                             .dy = dy,
                             .residual_dx = residual_dx,
                             .dx = dx,
                             .dweight = nullptr,
                             .dbias = nullptr};
  backward_groups(all, n.dtype, isa_kernels().layer_norm_backward[size_t(n.dtype)], scratch);
  float* shares = reinterpret_cast<float*>(scratch.data);
  add_groups(group_count(n.rows), n.cols, 2 * n.cols, shares, dweight);
  add_groups(group_count(n.rows), n.cols, 2 * n.cols, shares + n.cols, dbias);
}

}  // namespace headrace::kernels::host
