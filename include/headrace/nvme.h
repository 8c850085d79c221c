// SPDX-License-Identifier: Apache-2.0
// Tensors to and from drives. A Store owns one directory of extents on one path; extents are reserved up
// front, written and read asynchronously through io_uring (or a pool of pread/pwrite threads), and every byte
// read is compared with the CRC32C of the byte written. Usable without the rest of the library.
//
// Life: Store(options) -> register_memory(arena) -> create(extents) -> read / write / wait ... -> destroyed:
// drains what is in flight, then removes its files. Thread safety: create and register_memory before the
// first transfer, from one thread; read, write, wait and done from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/stats.h"

namespace headrace::nvme {

enum class EngineKind : uint8_t { automatic, io_uring, posix };

struct Options {
  std::string path{};             ///< an existing directory; the store makes its own folder in it
  std::string run_id{};           ///< names the folder; empty: made up, unique
  size_t chunk_bytes = 2u << 20;  ///< one I/O request; a multiple of kCrcBytes
  unsigned queue_depth = 16;      ///< requests in flight per direction
  EngineKind engine = EngineKind::automatic;
  bool direct = true;  ///< O_DIRECT; false reads and writes through the page cache
  bool verify = true;  ///< check the CRC32C of everything read
};

/// Transfers start and end on multiples of this within an extent, or at the extent's end; each such piece has
/// one CRC32C. 128 KiB divides every plane of an optimizer tile.
constexpr size_t kCrcBytes = 128u << 10;
/// Memory handed to read and write should be aligned to this; other memory takes a slower, bounced path.
constexpr size_t kMemoryAlignment = 4096;

enum class ExtentId : uint32_t {};

/// A transfer in flight. Must be given to wait() exactly once; the memory stays lent until then.
struct [[nodiscard]] Request {
  uint64_t value = 0;  ///< 0: nothing in flight, wait() returns at once
};

class Store {
 public:
  /// Throws IoError (path, errno) or ConfigError. Falls back from io_uring to POSIX when the kernel refuses
  /// it and `engine` is automatic; `engine_note()` then says why.
  explicit Store(const Options& options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Memory that most transfers use (page-locked and registered with the ring when allowed; a refusal, such
  /// as RLIMIT_MEMLOCK, costs speed only and is told in engine_note()). The memory must outlive the store.
  void register_memory(std::span<std::byte> arena);

  /// Reserves `bytes` (posix_fallocate, then written once, so that later writes are overwrites). `name` is a
  /// file name, unique in the store. Until written, a read of the extent is an error of the caller
  /// (CorruptData), and so is a read of a piece whose last write failed. The file's size is `bytes` from now
  /// on, whatever is written. Throws IoError with ENOSPC when the drive is too full; nothing is left behind
  /// then.
  ExtentId create(std::string_view name, uint64_t bytes);
  [[nodiscard]] uint64_t extent_bytes(ExtentId id) const;
  [[nodiscard]] std::string extent_path(ExtentId id) const;

  /// Starts a transfer of data.size() bytes at `offset` (see kCrcBytes) and returns before the bytes have
  /// moved; blocks only while very many (1024 per direction) are in flight. Overlapping transfers in flight
  /// are an error of the caller.
  Request write(ExtentId id, uint64_t offset, std::span<const std::byte> data);
  Request read(ExtentId id, uint64_t offset, std::span<std::byte> data);
  /// Blocks until the transfer is complete and correct; throws IoError or CorruptData otherwise.
  void wait(Request request);
  /// True when wait() would not block. An error still needs wait() to be seen.
  [[nodiscard]] bool done(const Request& request) const;

  /// fdatasync of every file written since the last call; an error is reported once and every time after.
  void sync();

  /// Bytes and busy time of reads and writes since construction; what create() writes does not count.
  [[nodiscard]] LinkStats read_stats() const;
  [[nodiscard]] LinkStats write_stats() const;
  [[nodiscard]] EngineKind engine() const;          ///< io_uring or posix, never automatic
  [[nodiscard]] std::string engine_note() const;    ///< one line: what was refused and why; empty if nothing
  [[nodiscard]] uint64_t reserved_bytes() const;    ///< on the drive
  [[nodiscard]] const std::string& folder() const;  ///< PATH/headrace-RUN_ID

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A folder that a dead run left on `path`: its name, size, and the process that made it.
struct Leftover {
  std::string folder;
  uint64_t bytes;
  int64_t pid;
};
/// Folders of stores whose lock nobody holds. Never touches a folder in use.
std::vector<Leftover> find_leftovers(const std::string& path);
/// Removes it, again only when nobody holds its lock.
void remove_leftover(const Leftover& leftover);

}  // namespace headrace::nvme
