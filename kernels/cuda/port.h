// SPDX-License-Identifier: Apache-2.0
// What device code is written in besides CUDA's own words: dynamic shared memory, number formats, 16-byte
// accesses, and the asynchronous copies and matrix instructions that are inline assembly. With
// HEADRACE_CUDA_EMULATED the same kernels are compiled for the CPU: then <cuda_runtime.h> is the one of
// tests/emulation, and each wrapper here has a twin there that does what the instruction is specified to do.
//
// Rules that keep kernels portable to the emulation (and easy to read): shared memory through
// shared_memory<T>() only; no inline assembly, no cuda_bf16.h, no cooperative groups, no CUB outside this
// file; warp functions with the _sync suffix and all 32 lanes.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "headrace/dtype.h"

#ifdef HEADRACE_CUDA_EMULATED
#include "tests/emulation/instructions.h"
#endif

namespace headrace::kernels::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;

/// The block's dynamic shared memory, 16-byte aligned (128 in practice).
template <class T>
__device__ __forceinline__ T* shared_memory() {
#ifdef HEADRACE_CUDA_EMULATED
  return static_cast<T*>(emulation::shared_memory());
#else
  extern __shared__ __align__(128) unsigned char headrace_shared_memory[];
  return reinterpret_cast<T*>(headrace_shared_memory);
#endif
}

// Numbers: bf16 and fp32 in memory, fp32 in registers.

__device__ __forceinline__ float widen(float x) {
  return x;
}
__device__ __forceinline__ float widen(bf16 x) {
  return __uint_as_float(uint32_t(x) << 16);
}

/// Nearest, ties to even; NaN stays NaN.
template <class T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float x) {
#ifdef HEADRACE_CUDA_EMULATED
  return to_bf16(x);
#else
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bf16(bits);
#endif
}

/// Two bf16 in one register, `low` in the lower half: the order of memory, and of the fragments of a matrix
/// instruction.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
#ifdef HEADRACE_CUDA_EMULATED
  return uint32_t(to_bf16(low)) | (uint32_t(to_bf16(high)) << 16);
#else
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#endif
}

/// 2^x to about 2 units in the last place; results below 2^-126 are 0, also for x = -infinity.
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef HEADRACE_CUDA_EMULATED
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/// Hides from the compiler that `x` is what it was, so that what follows from it is computed again and not
/// kept in registers over a loop.
__device__ __forceinline__ void forget([[maybe_unused]] int& x) {
#ifndef HEADRACE_CUDA_EMULATED
  asm volatile("" : "+r"(x));
#endif
}

/// 16 bytes of T: what one thread reads or writes at a time.
template <class T>
struct alignas(16) Pack {
  static constexpr int kElems = int(16 / sizeof(T));
  T elems[kElems];
};

/// `from` is 16-byte aligned.
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

/// Whether every pointer may be accessed 16 bytes at a time when rows are `cols` elements of T.
template <class T, class... Pointers>
bool packable(int64_t cols, const Pointers*... pointers) {
  return cols % Pack<T>::kElems == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// 1 / x within one unit in the last place, for |x| from 2^-126 to 2^126 and infinity. One instruction where
/// a division is nine.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef HEADRACE_CUDA_EMULATED
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Asynchronous copies from global to shared memory: 16 bytes each, in groups that are waited for in order.

/// Both addresses 16-byte aligned. With `valid` false the 16 bytes become zero and `from` is not read.
__device__ __forceinline__ void copy_async_16(void* shared, const void* from, bool valid = true) {
#ifdef HEADRACE_CUDA_EMULATED
  emulation::copy_async_16(shared, from, valid);
#else
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
      "l"(from), "r"(valid ? 16 : 0)
      : "memory");
#endif
}
/// Ends this thread's group of copies.
__device__ __forceinline__ void copy_async_commit() {
#ifdef HEADRACE_CUDA_EMULATED
  emulation::copy_async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most kPending of this thread's newest groups are on their way. A __syncthreads() after it
/// makes the bytes visible to the other threads.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
#ifdef HEADRACE_CUDA_EMULATED
  emulation::copy_async_wait(kPending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// Matrix instructions (PTX ISA, "Warp-level matrix instructions"). All 32 lanes call them together.

/// ldmatrix .x4: four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the address of row
/// l % 8 of matrix l / 8 (16 bytes, 16-byte aligned); register j of lane l is elements 2*(l%4), 2*(l%4)+1 of
/// row l/4 of matrix j.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
#ifdef HEADRACE_CUDA_EMULATED
  emulation::load_matrices(r, row, false);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}
/// ldmatrix .x4.trans: as above with every matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
#ifdef HEADRACE_CUDA_EMULATED
  emulation::load_matrices(r, row, true);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

/// mma.m16n8k16, bf16 operands, fp32 accumulation: d[16,8] += a[16,16] b[16,8]. With g = lane / 4 and
/// t = lane % 4, a pair (i, j), (i, j+1) to a register:
///   a: (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8)   b, by column: (2t, g), (2t+8, g)
///   d: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
__device__ __forceinline__ void multiply_add_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                     uint32_t b1) {
#ifdef HEADRACE_CUDA_EMULATED
  emulation::multiply_add_16x8x16(d, a, b0, b1);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Sums over a warp and a block, always in the same order.

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}
__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}

/// Sum over the block, given to all its threads. `area`: shared, one T per warp. blockDim is (n, 1, 1) with n
/// a multiple of 32. Two barriers; the area may be used again right after.
template <class T>
__device__ __forceinline__ T block_sum(T x, T* area) {
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  x = warp_sum(x);
  if (lane == 0) area[warp] = x;
  __syncthreads();
  T sum = lane < int(blockDim.x) / kWarp ? area[lane] : T(0);
  sum = warp_sum(sum);
  __syncthreads();
  return sum;
}

}  // namespace headrace::kernels::cuda
