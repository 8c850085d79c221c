// SPDX-License-Identifier: Apache-2.0
// Element by element kernels of the host: the isa tables' loops, shared among the OpenMP team.
#include "kernels/host/host_kernels.h"
#include "kernels/host/isa.h"
#include "kernels/host/ranges.h"

namespace headrace::kernels::host {

void swiglu_forward(int64_t rows, int64_t cols, DType dtype, const void* gate_up, void* y) {
  const auto run = isa_kernels().swiglu_forward[size_t(dtype)];
  parallel_rows(rows, cols, [=](int64_t row, int64_t count) {
    run(count, cols, element(gate_up, row * 2 * cols, dtype), element(y, row * cols, dtype));
  });
}

void swiglu_backward(int64_t rows, int64_t cols, DType dtype, const void* gate_up, const void* dy,
                     void* dgate_up) {
  const auto run = isa_kernels().swiglu_backward[size_t(dtype)];
  parallel_rows(rows, cols, [=](int64_t row, int64_t count) {
    run(count, cols, element(gate_up, row * 2 * cols, dtype), element(dy, row * cols, dtype),
        element(dgate_up, row * 2 * cols, dtype));
  });
}

void gelu_forward(int64_t elems, DType dtype, const void* x, void* y) {
  const auto run = isa_kernels().gelu_forward[size_t(dtype)];
  parallel_ranges(elems, kTurnElems, [=](int64_t first, int64_t count) {
    run(count, element(x, first, dtype), element(y, first, dtype));
  });
}

void gelu_backward(int64_t elems, DType dtype, const void* x, const void* dy, void* dx) {
  const auto run = isa_kernels().gelu_backward[size_t(dtype)];
  parallel_ranges(elems, kTurnElems, [=](int64_t first, int64_t count) {
    run(count, element(x, first, dtype), element(dy, first, dtype), element(dx, first, dtype));
  });
}

void add(int64_t elems, DType dtype, const void* a, const void* b, void* y) {
  const auto run = isa_kernels().add[size_t(dtype)];
  parallel_ranges(elems, kTurnElems, [=](int64_t first, int64_t count) {
    run(count, element(a, first, dtype), element(b, first, dtype), element(y, first, dtype));
  });
}

void cast(int64_t elems, DType from, const void* x, DType to, void* y) {
  const auto run = isa_kernels().cast[size_t(from)][size_t(to)];
  parallel_ranges(elems, kTurnElems, [=](int64_t first, int64_t count) {
    run(count, element(x, first, from), element(y, first, to));
  });
}

void round_and_sum_squares(int64_t elems, const float* x, DType to, void* y, double* tile_sums) {
  const auto run = isa_kernels().round_and_sum_squares[size_t(to)];
  parallel_ranges(elems, kNormTileElems, [=](int64_t first, int64_t count) {
    tile_sums[first / kNormTileElems] = run(count, x + first, element(y, first, to));
  });
}

}  // namespace headrace::kernels::host
