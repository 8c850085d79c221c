// SPDX-License-Identifier: Apache-2.0
// One unit's state in one file: its planes (weights, lo in bf16, m, v, ...) one after the other, then a
// checksum for each plane and tile of 64 Ki elements. The saved run's manifest says how many elements there
// are and guards the table of checksums. Exact layout: docs/saved_run_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "headrace/dtype.h"
#include "headrace/engine.h"

namespace headrace::saved {

constexpr int64_t kTileElems = 64 * 1024;
constexpr int64_t kMaxUnitElems = int64_t{1} << 48;

/// Where things lie in a unit's file: pure arithmetic.
struct UnitFileLayout {
  struct Plane {
    const char* name;
    uint64_t offset;  ///< bytes, a multiple of 4096
    adam::ArrayInfo array;
    /// Of the first `elems` elements, or where element `elems` begins when it begins a tile.
    [[nodiscard]] uint64_t bytes(int64_t elems) const { return array.bytes_for(uint64_t(elems)); }
  };
  UnitFileLayout(const adam::Format& format, int64_t elems);
  int64_t elems;
  std::vector<Plane> planes;
  size_t tiles;           ///< of each plane
  uint64_t table_offset;  ///< bytes, a multiple of 4096
  uint64_t file_bytes;
};

class UnitFileWriter {
 public:
  UnitFileWriter(const std::string& path, const adam::Format& format, int64_t elems);
  /// Runs of elements in ascending order without holes; those that another follows are whole blocks.
  void add(const StateTile& tile);
  /// Writes the table, syncs, closes; returns the table's checksum.
  [[nodiscard]] uint32_t finish();
  [[nodiscard]] uint64_t file_bytes() const { return layout_.file_bytes; }

 private:
  UnitFileLayout layout_;
  File file_;
  int64_t next_ = 0;
  std::vector<uint32_t> table_;  ///< [plane][tile]
};

class UnitFileReader {
 public:
  /// Throws CorruptData when the size or the table is not what the manifest says.
  UnitFileReader(const std::string& path, const adam::Format& format, int64_t elems, uint32_t table_crc);
  void read(const StateTile& tile) const;
  void read_plane(size_t plane, int64_t first, int64_t elems, std::byte* out) const;
  [[nodiscard]] int64_t elems() const { return layout_.elems; }

 private:
  void verify(size_t plane, size_t tile, std::span<const std::byte> bytes) const;
  UnitFileLayout layout_;
  File file_;
  std::vector<uint32_t> table_;
};

}  // namespace headrace::saved
