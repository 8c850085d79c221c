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

const char* plane_name(const adam::ArrayInfo& info) {
  return info.array == adam::Array::w || info.array == adam::Array::hi ? "weights" : info.name;
}

}  // namespace

UnitFileLayout::UnitFileLayout(const adam::Format& format, int64_t elems_in)
    : elems(elems_in), tiles(size_t((elems_in + kTileElems - 1) / kTileElems)) {
  HEADRACE_CHECK(elems >= 0 && elems <= kMaxUnitElems, "impossible size of a unit");
  uint64_t end = 0;
  for (const adam::ArrayInfo& info : adam::ArrayList(format)) {
    planes.push_back({plane_name(info), aligned(end), info});
    end = planes.back().offset + planes.back().bytes(elems);
  }
  table_offset = aligned(end);
  file_bytes = table_offset + planes.size() * tiles * sizeof(uint32_t);
}

UnitFileWriter::UnitFileWriter(const std::string& path, const adam::Format& format, int64_t elems)
    : layout_(format, elems), file_(File::create(path)), table_(layout_.planes.size() * layout_.tiles) {
  file_.reserve(layout_.file_bytes);
}

void UnitFileWriter::add(const StateTile& tile) {
  HEADRACE_CHECK(tile.first == next_, "tiles come in ascending order without holes");
  HEADRACE_CHECK(tile.elems >= 0 && tile.elems <= layout_.elems - next_, "tile beyond the unit's end");
  for (size_t p = 0; p < layout_.planes.size(); ++p) {
    const UnitFileLayout::Plane& plane = layout_.planes[p];
    HEADRACE_CHECK(tile.first % int64_t(plane.array.elems) == 0, "a block is saved in one piece");
    const std::byte* const memory = tile.arrays.array(plane.array.array);
    const uint64_t before = plane.bytes(tile.first);
    for (int64_t at = tile.first; at < tile.first + tile.elems;) {
      const int64_t end = std::min((at / kTileElems + 1) * kTileElems, tile.first + tile.elems);
      const std::span bytes(memory + (plane.bytes(at) - before), size_t(plane.bytes(end) - plane.bytes(at)));
      uint32_t& crc = table_[p * layout_.tiles + size_t(at / kTileElems)];
      crc = crc32c(bytes, crc);
      file_.write(plane.offset + plane.bytes(at), bytes);
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

UnitFileReader::UnitFileReader(const std::string& path, const adam::Format& format, int64_t elems,
                               uint32_t table_crc)
    : layout_(format, elems), file_(File::open(path)) {
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
  for (size_t p = 0; p < layout_.planes.size(); ++p)
    read_plane(p, tile.first, tile.elems, tile.arrays.array(layout_.planes[p].array.array));
}

void UnitFileReader::read_plane(size_t plane, int64_t first, int64_t elems, std::byte* out) const {
  HEADRACE_CHECK(first >= 0 && elems >= 0 && first <= layout_.elems - elems, "range outside the unit");
  const UnitFileLayout::Plane& p = layout_.planes[plane];
  HEADRACE_CHECK(first % int64_t(p.array.elems) == 0, "a block is read in one piece");
  std::vector<std::byte> whole_tile;  // only when part of a tile is wanted: its checksum needs all of it
  for (int64_t at = first; at < first + elems;) {
    const int64_t tile = at / kTileElems, tile_first = tile * kTileElems;
    const int64_t tile_end = std::min(tile_first + kTileElems, layout_.elems);
    const int64_t end = std::min(tile_end, first + elems);
    const uint64_t tile_begin_bytes = p.bytes(tile_first), part_bytes = p.bytes(end) - p.bytes(at);
    const size_t tile_bytes = size_t(p.bytes(tile_end) - tile_begin_bytes);
    const bool whole = at == tile_first && end == tile_end;
    if (!whole) whole_tile.resize(tile_bytes);
    const std::span bytes(whole ? out : whole_tile.data(), tile_bytes);
    file_.read(p.offset + tile_begin_bytes, bytes);
    verify(plane, size_t(tile), bytes);
    if (!whole) std::memcpy(out, bytes.data() + size_t(p.bytes(at) - tile_begin_bytes), part_bytes);
    out += part_bytes;
    at = end;
  }
}

void UnitFileReader::verify(size_t plane, size_t tile, std::span<const std::byte> bytes) const {
  const uint32_t expected = table_[plane * layout_.tiles + tile];
  const uint32_t found = crc32c(bytes);
  if (found == expected) return;
  const UnitFileLayout::Plane& p = layout_.planes[plane];
  throw CorruptData(file_.path(), p.offset + p.bytes(int64_t(tile) * kTileElems),
                    fmt::format("{} bytes of {} have checksum {}, {} was written", bytes.size(), p.name,
                                crc_text(found), crc_text(expected)));
}

}  // namespace headrace::saved
