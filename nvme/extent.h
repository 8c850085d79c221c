// SPDX-License-Identifier: Apache-2.0
// One extent: a file of exact size whose blocks are reserved, with the CRC32C of each piece written, in
// memory. Made by the store, moved through by the lanes.
//
// With O_DIRECT, the whole blocks go through one descriptor; the last odd bytes of a size that is no multiple
// of the block go through the page cache with a second one. So the file's size is always the extent's, and no
// transfer ever extends or truncates it. Thread safety: transfers in flight do not overlap, so each piece has
// one user at a time; the hand-over of a piece from one transfer to the next is ordered by the caller's
// wait().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/nvme.h"
#include "nvme/file_descriptor.h"

namespace headrace::nvme {

class Extent {
 public:
  /// Makes the file and reserves its blocks. `block_bytes` 0: everything through the page cache; otherwise
  /// the O_DIRECT alignment. Throws IoError and leaves nothing behind.
  Extent(std::string path, uint64_t bytes, size_t block_bytes, unsigned first_slot);
  ~Extent();
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] size_t block_bytes() const { return block_bytes_; }
  /// Bytes from the start that move with O_DIRECT.
  [[nodiscard]] uint64_t direct_bytes() const { return direct_bytes_; }
  [[nodiscard]] int fd(bool direct) const { return direct ? direct_fd_.get() : buffered_fd_.get(); }
  [[nodiscard]] unsigned slot(bool direct) const { return direct ? first_slot_ : first_slot_ + 1; }
  /// File slots an extent takes.
  static constexpr unsigned kSlots = 2;

  /// Before bytes of [offset, offset + data.size()) reach the file: what was there is no longer valid.
  void begin_write(uint64_t offset, std::span<const std::byte> data, bool checksum);
  void finish_write(uint64_t offset, uint64_t bytes);
  /// Throws CorruptData naming the first piece that was never written or, with `checksum`, differs.
  void verify(uint64_t offset, std::span<const std::byte> data, bool checksum) const;

  /// Set by finish_write, taken by sync.
  bool take_unsynced() { return unsynced_.exchange(false); }

 private:
  enum class Piece : uint8_t { never_written, incomplete, written };

  void reserve();

  const std::string path_;
  const uint64_t bytes_;
  const size_t block_bytes_;
  const uint64_t direct_bytes_;
  const unsigned first_slot_;
  FileDescriptor direct_fd_;
  FileDescriptor buffered_fd_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> checksums_;
  std::atomic<bool> unsynced_{false};
};

}  // namespace headrace::nvme
