// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/instructions.h"

#include <bit>
#include <cstring>

#include "tests/emulation/executor.h"

namespace headrace::emulation {
namespace {

bool aligned_16(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

uint64_t pair(uint32_t low, uint32_t high) {
  return low | (uint64_t(high) << 32);
}
uint64_t pair(float low, float high) {
  return pair(std::bit_cast<uint32_t>(low), std::bit_cast<uint32_t>(high));
}
uint32_t half(uint64_t word, unsigned index) {
  return uint32_t(word >> (32 * index));
}
float float_half(uint64_t word, unsigned index) {
  return std::bit_cast<float>(half(word, index));
}
/// bf16 number `index` of a register.
float bf16_of(uint32_t bits, unsigned index) {
  return std::bit_cast<float>(index == 0 ? bits << 16 : bits & 0xffff0000u);
}

/// The words of each lane are the addresses of its row; they become its four registers.
void read_matrices(WarpSlots& slots, bool transposed) {
  uint16_t matrices[4][8][8];
  for (unsigned lane = 0; lane < kLanes; ++lane)
    std::memcpy(matrices[lane / 8][lane % 8], reinterpret_cast<const void*>(slots[lane].words[0]), 16);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    uint32_t registers[4];
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned row = lane / 4, col = 2 * (lane % 4);
      const uint16_t low = transposed ? matrices[m][col][row] : matrices[m][row][col];
      const uint16_t high = transposed ? matrices[m][col + 1][row] : matrices[m][row][col + 1];
      registers[m] = low | (uint32_t(high) << 16);
    }
    slots[lane].words[0] = pair(registers[0], registers[1]);
    slots[lane].words[1] = pair(registers[2], registers[3]);
  }
}

/// Words of a lane: a0 a1, a2 a3, b0 b1, d0 d1, d2 d3; the first two become the new d.
void multiply(WarpSlots& slots) {
  float a[16][16], b[16][8], d[16][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const auto& words = slots[lane].words;
    const unsigned g = lane / 4, t = 2 * (lane % 4);
    for (unsigned i = 0; i < 2; ++i) {
      a[g][t + i] = bf16_of(half(words[0], 0), i);
      a[g + 8][t + i] = bf16_of(half(words[0], 1), i);
      a[g][t + 8 + i] = bf16_of(half(words[1], 0), i);
      a[g + 8][t + 8 + i] = bf16_of(half(words[1], 1), i);
      b[t + i][g] = bf16_of(half(words[2], 0), i);
      b[t + 8 + i][g] = bf16_of(half(words[2], 1), i);
      d[g][t + i] = float_half(words[3], i);
      d[g + 8][t + i] = float_half(words[4], i);
    }
  }
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned g = lane / 4, t = 2 * (lane % 4);
    slots[lane].words[0] = pair(d[g][t], d[g][t + 1]);
    slots[lane].words[1] = pair(d[g + 8][t], d[g + 8][t + 1]);
  }
}

}  // namespace

void* shared_memory() {
  return Executor::running().shared().data();
}

void copy_async_16(void* shared, const void* from, bool valid, Site at) {
  Executor& executor = Executor::running();
  if (!executor.shared().holds(shared, 16))
    executor.fault("an asynchronous copy goes outside the block's shared memory", at);
  if (!aligned_16(shared) || !aligned_16(from))
    executor.fault("an asynchronous copy's address is not 16-byte aligned", at);
  executor.copies().add(shared, from, valid);
}

void copy_async_commit() {
  Executor::running().copies().commit();
}

void copy_async_wait(int pending) {
  Executor::running().copies().wait(size_t(pending));
}

void load_matrices(uint32_t (&r)[4], const void* row, bool transposed, Site at) {
  Executor& executor = Executor::running();
  if (!executor.shared().holds(row, 16))
    executor.fault("a matrix row is outside the block's shared memory", at);
  if (!aligned_16(row)) executor.fault("a matrix row is not 16-byte aligned", at);
  const std::array<uint64_t, 1> address = {reinterpret_cast<uintptr_t>(row)};
  const WarpSlots& slots = executor.meet(transposed ? "load_matrices_transposed" : "load_matrices", ~0u, at,
                                         address, [&](WarpSlots& all) { read_matrices(all, transposed); });
  const auto& words = slots[executor.lane()].words;
  for (unsigned i = 0; i < 4; ++i) r[i] = half(words[i / 2], i % 2);
}

void multiply_add_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site at) {
  Executor& executor = Executor::running();
  const std::array<uint64_t, 5> mine = {pair(a[0], a[1]), pair(a[2], a[3]), pair(b0, b1), pair(d[0], d[1]),
                                        pair(d[2], d[3])};
  const WarpSlots& slots = executor.meet("multiply_add_16x8x16", ~0u, at, mine, multiply);
  const auto& words = slots[executor.lane()].words;
  for (unsigned i = 0; i < 4; ++i) d[i] = float_half(words[i / 2], i % 2);
}

}  // namespace headrace::emulation
