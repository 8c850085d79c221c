// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unit_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "checkpoint/crc32c.h"
#include "headrace/error.h"

namespace headrace::saved {
namespace {

static_assert(std::endian::native == std::endian::little, "saved runs are little-endian");

constexpr uint64_t kAlign = 4096;
constexpr uint64_t aligned(uint64_t offset) {
  return (offset + kAlign - 1) / kAlign * kAlign;
}

/// The tile's memory in the order of UnitFileLayout::planes.
std::array<std::byte*, 4> planes_of(const StateTile& tile, size_t planes) {
  auto* const m = reinterpret_cast<std::byte*>(tile.m);
  auto* const v = reinterpret_cast<std::byte*>(tile.v);
  if (planes == 3) return {tile.weights, m, v, nullptr};
  HEADRACE_CHECK(tile.lo != nullptr, "a bf16 unit has a lower half");
  return {tile.weights, reinterpret_cast<std::byte*>(tile.lo), m, v};
}

}  // namespace

UnitFileLayout::UnitFileLayout(DType precision, int64_t elems_in)
    : elems(elems_in), tiles(size_t((elems_in + kTileElems - 1) / kTileElems)) {
  HEADRACE_CHECK(elems >= 0 && elems <= kMaxUnitElems, "impossible size of a unit");
  uint64_t end = 0;
  const auto add = [&](const char* name, uint64_t elem_bytes) {
    planes.push_back({name, aligned(end), elem_bytes});
    end = planes.back().offset + uint64_t(elems) * elem_bytes;
  };
  add("weights", dtype_bytes(precision));
  if (precision == DType::bf16) add("lo", 2);
  add("m", 4);
  add("v", 4);
  table_offset = aligned(end);
  file_bytes = table_offset + planes.size() * tiles * sizeof(uint32_t);
}

UnitFileWriter::UnitFileWriter(const std::string& path, DType precision, int64_t elems)
    : layout_(precision, elems), file_(File::create(path)), table_(layout_.planes.size() * layout_.tiles) {
  file_.reserve(layout_.file_bytes);
}

void UnitFileWriter::add(const StateTile& tile) {
  HEADRACE_CHECK(tile.first == next_, "tiles come in ascending order without holes");
  HEADRACE_CHECK(tile.elems >= 0 && tile.elems <= layout_.elems - next_, "tile beyond the unit's end");
  const auto memory = planes_of(tile, layout_.planes.size());
  for (size_t p = 0; p < layout_.planes.size(); ++p) {
    const uint64_t width = layout_.planes[p].elem_bytes;
    for (int64_t at = tile.first; at < tile.first + tile.elems;) {
      const int64_t end = std::min((at / kTileElems + 1) * kTileElems, tile.first + tile.elems);
      const std::span bytes(memory[p] + uint64_t(at - tile.first) * width, size_t(end - at) * width);
      uint32_t& crc = table_[p * layout_.tiles + size_t(at / kTileElems)];
      crc = crc32c(bytes, crc);
      file_.write(layout_.planes[p].offset + uint64_t(at) * width, bytes);
      at = end;
    }
  }
  next_ += tile.elems;
}

uint32_t UnitFileWriter::finish() {
  HEADRACE_CHECK(next_ == layout_.elems, "every element of the unit is saved");
  const auto bytes = std::as_bytes(std::span(table_));
  file_.write(layout_.table_offset, bytes);
  file_.sync();
  file_.close();
  return crc32c(bytes);
}

UnitFileReader::UnitFileReader(const std::string& path, DType precision, int64_t elems, uint32_t table_crc)
    : layout_(precision, elems), file_(File::open(path)) {
  if (const uint64_t size = file_.size(); size != layout_.file_bytes) {
    throw CorruptData(
        path, std::min(size, layout_.file_bytes),
        fmt::format("the file has {} bytes, the manifest makes it {}", size, layout_.file_bytes));
  }
  // After the size check: a damaged element count must not decide how much is allocated.
  table_.resize(layout_.planes.size() * layout_.tiles);
  const auto bytes = std::as_writable_bytes(std::span(table_));
  file_.read(layout_.table_offset, bytes);
  if (const uint32_t crc = crc32c(bytes); crc != table_crc) {
    throw CorruptData(path, layout_.table_offset,
                      fmt::format("the table of checksums has checksum {}, the manifest says {}",
                                  crc_text(crc), crc_text(table_crc)));
  }
}

void UnitFileReader::read(const StateTile& tile) const {
  const auto memory = planes_of(tile, layout_.planes.size());
  for (size_t p = 0; p < layout_.planes.size(); ++p) read_plane(p, tile.first, tile.elems, memory[p]);
}

void UnitFileReader::read_plane(size_t plane, int64_t first, int64_t elems, std::byte* out) const {
  HEADRACE_CHECK(first >= 0 && elems >= 0 && first <= layout_.elems - elems, "range outside the unit");
  const auto [name, offset, width] = layout_.planes[plane];
  std::vector<std::byte> whole_tile;  // only when part of a tile is wanted: its checksum needs all of it
  for (int64_t at = first; at < first + elems;) {
    const int64_t tile = at / kTileElems, tile_first = tile * kTileElems;
    const int64_t tile_end = std::min(tile_first + kTileElems, layout_.elems);
    const int64_t end = std::min(tile_end, first + elems);
    const size_t tile_bytes = size_t(tile_end - tile_first) * width;
    const bool whole = at == tile_first && end == tile_end;
    if (!whole) whole_tile.resize(tile_bytes);
    const std::span bytes(whole ? out : whole_tile.data(), tile_bytes);
    file_.read(offset + uint64_t(tile_first) * width, bytes);
    verify(plane, size_t(tile), bytes);
    const size_t part_bytes = size_t(end - at) * width;
    if (!whole) std::memcpy(out, bytes.data() + size_t(at - tile_first) * width, part_bytes);
    out += part_bytes;
    at = end;
  }
}

void UnitFileReader::verify(size_t plane, size_t tile, std::span<const std::byte> bytes) const {
  const uint32_t expected = table_[plane * layout_.tiles + tile];
  const uint32_t found = crc32c(bytes);
  if (found == expected) return;
  const auto& [name, offset, width] = layout_.planes[plane];
  throw CorruptData(file_.path(), offset + tile * kTileElems * width,
                    fmt::format("{} bytes of {} have checksum {}, {} was written", bytes.size(), name,
                                crc_text(found), crc_text(expected)));
}

}  // namespace headrace::saved
