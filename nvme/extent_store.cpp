// SPDX-License-Identifier: Apache-2.0
#include "nvme/extent_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "headrace/error.h"
#include "nvme/io_uring_engine.h"
#include "nvme/posix_engine.h"

namespace headrace::nvme {
namespace {

constexpr unsigned kMaxQueueDepth = 4096;
constexpr size_t kMaxChunkBytes = size_t(1) << 30;
constexpr uint64_t kPageBytes = 4096;

template <class Engine>
EngineFactory factory_of() {
  return [](OperationHandler& handler, Direction direction, unsigned depth) -> std::unique_ptr<IoEngine> {
    return std::make_unique<Engine>(handler, direction, depth);
  };
}

const Options& validated(const Options& options) {
  if (options.chunk_bytes == 0 || options.chunk_bytes % kCrcBytes != 0 ||
      options.chunk_bytes > kMaxChunkBytes) {
    throw ConfigError("nvme.chunk_bytes", fmt::format("{} is not a multiple of {} up to {}",
                                                      options.chunk_bytes, kCrcBytes, kMaxChunkBytes));
  }
  if (options.queue_depth == 0 || options.queue_depth > kMaxQueueDepth) {
    throw ConfigError("nvme.queue_depth",
                      fmt::format("{} is not between 1 and {}", options.queue_depth, kMaxQueueDepth));
  }
  return options;
}

void check_range(const Extent& extent, uint64_t offset, uint64_t bytes) {
  HEADRACE_CHECK(offset <= extent.bytes() && bytes <= extent.bytes() - offset,
                 "a transfer beyond its extent");
  const bool whole = bytes % kCrcBytes == 0 || offset + bytes == extent.bytes();
  HEADRACE_CHECK(bytes == 0 || (offset % kCrcBytes == 0 && whole),
                 "transfers are cut at multiples of kCrcBytes");
}

}  // namespace

EngineFactory pick_engine(EngineKind wanted, std::string& note) {
  if (wanted == EngineKind::posix) return factory_of<PosixEngine>();
  const IoUringSupport support = probe_io_uring();
  if (support.available) return factory_of<IoUringEngine>();
  const std::string refusal = fmt::format("io_uring is {} (errno {})", support.reason, support.error_code);
  if (wanted == EngineKind::io_uring)
    throw ConfigError("nvme.engine", refusal + "; \"posix\" works everywhere");
  note = refusal + "; using pread and pwrite threads";
  return factory_of<PosixEngine>();
}

ExtentStore::ExtentStore(const Options& options)
    : options_(validated(options)), folder_(options.path, options.run_id) {
  decide_direct();
  std::string note;
  const EngineFactory make_engine = pick_engine(options.engine, note);
  add_note(note);
  try {
    open_lanes(make_engine);
  } catch (const IoError& error) {
    // The probe's small ring worked, the real ones did not: limits on memory or descriptors.
    if (options.engine == EngineKind::io_uring) {
      throw ConfigError("nvme.engine", fmt::format("{}; \"posix\" works everywhere", error.what()));
    }
    add_note(fmt::format("{}; using pread and pwrite threads", error.what()));
    open_lanes(factory_of<PosixEngine>());
  }
}

ExtentStore::ExtentStore(const Options& options, const EngineFactory& make_engine)
    : options_(validated(options)), folder_(options.path, options.run_id) {
  decide_direct();
  open_lanes(make_engine);
}

ExtentStore::~ExtentStore() = default;  // lanes drain, extents remove their files, then the folder goes

void ExtentStore::add_note(const std::string& note) {
  if (note.empty() || note_.find(note) != std::string::npos) return;
  note_ += (note_.empty() ? "" : "; ") + note;
}

void ExtentStore::decide_direct() {
  if (!options_.direct) return;
  const DirectSupport support = probe_direct(folder_.path());
  if (!support.available) return add_note("no O_DIRECT, using the page cache: " + support.reason);
  const size_t block = std::max<size_t>(kMemoryAlignment, support.offset_alignment);
  if (!std::has_single_bit(block) || block > kCrcBytes) {
    return add_note(fmt::format("no O_DIRECT, using the page cache: its alignment is {} bytes", block));
  }
  block_bytes_ = block;
  memory_alignment_ = std::max<size_t>(kMemoryAlignment, support.memory_alignment);
}

void ExtentStore::open_lanes(const EngineFactory& make_engine) {
  const LaneOptions lane{.chunk_bytes = options_.chunk_bytes,
                         .queue_depth = options_.queue_depth,
                         .memory_alignment = memory_alignment_,
                         .checksum = options_.verify};
  try {
    read_lane_ = std::make_unique<Lane>(Direction::read, lane, make_engine);
    write_lane_ = std::make_unique<Lane>(Direction::write, lane, make_engine);
  } catch (const std::bad_alloc&) {
    throw Error(
        fmt::format("out of host memory for the I/O buffers of {}: lower nvme.chunk_bytes ({}) or "
                    "nvme.queue_depth ({}), or raise the limit of the address space (ulimit -v)",
                    options_.path, options_.chunk_bytes, options_.queue_depth));
  }
}

void ExtentStore::register_memory(std::span<std::byte> arena) {
  if (arena.empty()) return;
  add_note(read_lane_->engine().register_memory(arena));
  add_note(write_lane_->engine().register_memory(arena));
}

void ExtentStore::announce(const Extent& extent, bool present) {
  for (const bool direct : {true, false}) {
    if (extent.fd(direct) < 0) continue;
    for (Lane* lane : {read_lane_.get(), write_lane_.get()}) {
      lane->engine().add_file(extent.slot(direct), present ? extent.fd(direct) : -1);
    }
  }
}

ExtentId ExtentStore::create(std::string_view name, uint64_t bytes) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos;
  HEADRACE_CHECK(plain && name != kOwnerFile, "an extent's name is a file name of its own");
  const auto index = unsigned(extents_.size());
  auto extent = std::make_unique<Extent>(fmt::format("{}/{}", folder_.path(), name), bytes, block_bytes_,
                                         index * Extent::kSlots);
  announce(*extent, true);
  try {
    write_lane_->fill_with_zeros(*extent);
  } catch (...) {
    announce(*extent, false);  // a registered file would keep its blocks after it is removed
    throw;
  }
  extents_.push_back(std::move(extent));
  reserved_bytes_ += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return ExtentId{index};
}

Extent& ExtentStore::extent(ExtentId id) const {
  HEADRACE_CHECK(size_t(id) < extents_.size(), "not an extent of this store");
  return *extents_[size_t(id)];
}

Request ExtentStore::write(ExtentId id, uint64_t offset, std::span<const std::byte> data) {
  Extent& target = extent(id);
  check_range(target, offset, data.size());
  return write_lane_->start(target, offset, const_cast<std::byte*>(data.data()),
                            data.size());  // never written to
}

Request ExtentStore::read(ExtentId id, uint64_t offset, std::span<std::byte> data) {
  Extent& source = extent(id);
  check_range(source, offset, data.size());
  return read_lane_->start(source, offset, data.data(), data.size());
}

Lane& ExtentStore::lane_of(const Request& request) const {
  return Direction(request.value & 1) == Direction::read ? *read_lane_ : *write_lane_;
}

void ExtentStore::wait(Request request) {
  if (request.value != 0) lane_of(request).wait(request);
}

bool ExtentStore::done(const Request& request) const {
  return request.value == 0 || lane_of(request).done(request);
}

void ExtentStore::sync() {
  const std::lock_guard lock(sync_mutex_);
  for (const auto& extent : extents_) {
    if (sync_error_) break;
    if (!extent->take_unsynced()) continue;
    const int result = write_lane_->engine().sync(extent->fd(extent->direct_bytes() > 0));
    // The kernel tells a lost write once and then succeeds: what it said stays said.
    if (result < 0) sync_error_ = std::make_exception_ptr(IoError("fdatasync", extent->path(), -result));
  }
  if (sync_error_) std::rethrow_exception(sync_error_);
}

}  // namespace headrace::nvme
