// SPDX-License-Identifier: Apache-2.0
// The store behind headrace::nvme::Store: one folder, its extents, one lane for reads and one for writes.
// Picks the engine; tests give their own. The member functions are those of include/headrace/nvme.h, with its
// contract.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "headrace/nvme.h"
#include "nvme/extent.h"
#include "nvme/io_engine.h"
#include "nvme/lane.h"
#include "nvme/probe.h"
#include "nvme/run_folder.h"

namespace headrace::nvme {

/// The real engines. With `automatic`, io_uring if a ring works here, otherwise POSIX and a line in `note`;
/// a named engine that does not work is a ConfigError.
EngineFactory pick_engine(EngineKind wanted, std::string& note);

class ExtentStore {
 public:
  explicit ExtentStore(const Options& options);
  ExtentStore(const Options& options, const EngineFactory& make_engine);
  ~ExtentStore();
  ExtentStore(const ExtentStore&) = delete;
  ExtentStore& operator=(const ExtentStore&) = delete;

  void register_memory(std::span<std::byte> arena);
  ExtentId create(std::string_view name, uint64_t bytes);
  [[nodiscard]] Extent& extent(ExtentId id) const;

  Request write(ExtentId id, uint64_t offset, std::span<const std::byte> data);
  Request read(ExtentId id, uint64_t offset, std::span<std::byte> data);
  void wait(Request request);
  [[nodiscard]] bool done(const Request& request) const;
  void sync();

  [[nodiscard]] LinkStats read_stats() const { return read_lane_->stats(); }
  [[nodiscard]] LinkStats write_stats() const { return write_lane_->stats(); }
  [[nodiscard]] EngineKind engine() const { return write_lane_->engine().kind(); }
  [[nodiscard]] std::string engine_note() const { return note_; }
  [[nodiscard]] uint64_t reserved_bytes() const { return reserved_bytes_; }
  [[nodiscard]] const std::string& folder() const { return folder_.path(); }

 private:
  void add_note(const std::string& note);
  void decide_direct();
  void open_lanes(const EngineFactory& make_engine);
  void announce(const Extent& extent, bool present);
  [[nodiscard]] Lane& lane_of(const Request& request) const;

  const Options options_;
  RunFolder folder_;
  std::string note_;
  size_t block_bytes_ = 0;  // of O_DIRECT; 0: through the page cache
  size_t memory_alignment_ = 1;
  uint64_t reserved_bytes_ = 0;
  std::mutex sync_mutex_;
  std::exception_ptr sync_error_;
  std::vector<std::unique_ptr<Extent>> extents_;
  std::unique_ptr<Lane> read_lane_;
  std::unique_ptr<Lane> write_lane_;
};

}  // namespace headrace::nvme
