// SPDX-License-Identifier: Apache-2.0
// A small model with known contents to save and read back: every byte is a function of (step, unit, plane,
// element), so that what is read can be judged without what was written.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/saved_run.h"

namespace headrace::test {

inline constexpr int64_t kTile = 64 * 1024;

/// Element `i` of a plane, as bits; planes: 0 weights, 1 lo, 2 m, 3 v.
inline uint32_t bits(uint64_t step, size_t unit, int plane, int64_t i) {
  const uint64_t x = (step * 1000003u + unit * 8191u + uint64_t(plane)) * 0x9e3779b97f4a7c15u + uint64_t(i);
  return uint32_t((x * 0xd6e8feb86659fd93u) >> 32);
}

/// Memory behind a StateTile.
struct TileMemory {
  explicit TileMemory(int64_t elems)
      : weights(size_t(elems) * 4), lo(size_t(elems)), m(size_t(elems)), v(size_t(elems)) {}
  StateTile tile(int64_t first, int64_t elems, DType precision) {
    StateTile tile{.first = first, .elems = elems, .weights = weights.data(), .arrays = {}};
    tile.arrays.count = size_t(elems);
    tile.arrays.set_array(precision == DType::bf16 ? adam::Array::hi : adam::Array::w, weights.data());
    tile.arrays.lo = lo.data();
    tile.arrays.m = m.data();
    tile.arrays.v = v.data();
    return tile;
  }
  std::vector<std::byte> weights;
  std::vector<uint16_t> lo;
  std::vector<float> m, v;
};

inline void fill(TileMemory& memory, uint64_t step, size_t unit, int64_t first, int64_t elems,
                 DType precision) {
  const size_t width = dtype_bytes(precision);
  for (int64_t i = 0; i < elems; ++i) {
    const uint32_t w = bits(step, unit, 0, first + i);
    const uint32_t m = bits(step, unit, 2, first + i), v = bits(step, unit, 3, first + i);
    std::memcpy(memory.weights.data() + size_t(i) * width, &w, width);
    memory.lo[size_t(i)] = uint16_t(bits(step, unit, 1, first + i));
    std::memcpy(&memory.m[size_t(i)], &m, 4);
    std::memcpy(&memory.v[size_t(i)], &v, 4);
  }
}

/// Equal bit for bit (the values may be NaNs).
inline bool equal(const TileMemory& a, const TileMemory& b, int64_t elems, DType precision) {
  const auto n = size_t(elems);
  return std::memcmp(a.weights.data(), b.weights.data(), n * dtype_bytes(precision)) == 0 &&
         (precision == DType::f32 || std::memcmp(a.lo.data(), b.lo.data(), n * 2) == 0) &&
         std::memcmp(a.m.data(), b.m.data(), n * 4) == 0 && std::memcmp(a.v.data(), b.v.data(), n * 4) == 0;
}

struct Unit {
  UnitSpec spec;
  UnitLayout layout;
};

/// Three units: one of several tiles with a gap between its segments, one of a single tile, one empty.
inline std::vector<Unit> small_model() {
  const Unit layer{{"layer.0", {{"norm.weight", {100}, false}, {"mlp.weight", {1500, 100}, true}}},
                   {{{0, 100, false}, {128, 150000, true}}, 150128, 150100}};
  const Unit head{{"head", {{"weight", {7}, true}}}, {{{0, 7, true}}, 7, 7}};
  return {layer, head, {{"none", {}}, {{}, 0, 0}}};
}

inline std::vector<UnitSpec> specs(const std::vector<Unit>& units) {
  std::vector<UnitSpec> out;
  for (const Unit& unit : units) out.push_back(unit.spec);
  return out;
}

/// Half of the attempted steps were skipped, so that no count can be taken for another.
inline RunState state_at(uint64_t attempted) {
  return {.step = attempted / 2,
          .attempted_steps = attempted,
          .skipped_steps = attempted - attempted / 2,
          .skipped_in_a_row = 1,
          .tokens = (uint64_t{1} << 63) + 5,
          .data_epoch = 3,
          .data_window = 77,
          .model = "llama, layers 2",
          .data_fingerprint = "text;a.txt:8:8x1",
          .seed = ~uint64_t{0}};
}

inline void add_units(SavedRunWriter& writer, uint64_t step, const std::vector<Unit>& units,
                      DType precision) {
  TileMemory memory(kTile);
  for (size_t u = 0; u < units.size(); ++u) {
    writer.begin_unit(units[u].spec, units[u].layout);
    for (int64_t first = 0; first < units[u].layout.elems; first += kTile) {
      const int64_t elems = std::min(kTile, units[u].layout.elems - first);
      fill(memory, step, u, first, elems, precision);
      writer.add_tile(memory.tile(first, elems, precision));
    }
    writer.end_unit();
  }
}

inline std::string save(const std::string& dir, uint64_t step, const std::vector<Unit>& units,
                        DType precision = DType::bf16, const std::string& config = "[train]\nsteps = 7\n") {
  SavedRunWriter writer(dir, state_at(step), state_format(precision), config);
  add_units(writer, step, units, precision);
  return writer.finish();
}

/// Reads everything, all checksums verified; whether it is what save(step) wrote.
inline bool holds(const SavedRun& run, uint64_t step, const std::vector<Unit>& units, DType precision) {
  TileMemory read(kTile), expected(kTile);
  for (size_t u = 0; u < units.size(); ++u) {
    for (int64_t first = 0; first < units[u].layout.elems; first += kTile) {
      const int64_t elems = std::min(kTile, units[u].layout.elems - first);
      run.read_tile(units[u].spec.name, read.tile(first, elems, precision));
      fill(expected, step, u, first, elems, precision);
      if (!equal(read, expected, elems, precision)) return false;
    }
  }
  return true;
}

}  // namespace headrace::test
