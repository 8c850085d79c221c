// SPDX-License-Identifier: Apache-2.0
// One direction of a store: cuts transfers into chunks, keeps at most queue_depth of them in its engine,
// resumes short ones, checks every result and every checksum, and hands completion or the first error to
// wait(). It neither opens files nor talks to the kernel: extent.h and io_engine.h do.
//
// Everything is allocated at construction. A transfer's record is free again as soon as all its chunks are
// done (a failed one when its error has been taken), so callers are held back only by transfers really in
// flight. Thread safety: start, wait and done from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "headrace/nvme.h"
#include "nvme/extent.h"
#include "nvme/io_engine.h"
#include "nvme/page_block.h"

namespace headrace::nvme {

struct LaneOptions {
  size_t chunk_bytes = 0;
  unsigned queue_depth = 0;
  size_t memory_alignment = 1;  ///< other memory is bounced on O_DIRECT extents
  bool checksum = true;
};

class Lane : private OperationHandler {
 public:
  /// Transfers in flight at a time; one more blocks its caller.
  static constexpr unsigned kMaxTransfers = 1024;

  Lane(Direction direction, const LaneOptions& options, const EngineFactory& make_engine);
  /// Gives up what has not been issued and waits for the rest.
  ~Lane() override;

  [[nodiscard]] IoEngine& engine() { return *engine_; }

  Request start(Extent& extent, uint64_t offset, std::byte* memory, uint64_t bytes);
  /// Fills the extent with zeros and waits: no data, no checksums, not in the statistics.
  void fill_with_zeros(Extent& extent);
  void wait(Request request);
  [[nodiscard]] bool done(const Request& request) const;
  [[nodiscard]] LinkStats stats() const;

 private:
  struct Transfer {
    Extent* extent = nullptr;
    uint64_t offset = 0;
    std::byte* memory = nullptr;  // null: zeros
    uint64_t bytes = 0;
    uint64_t issued = 0;  // bytes given to chunks, or given up
    unsigned chunks = 0;  // not done yet
    uint64_t turn = 1;    // tells one use of this record from the next
    bool failed = false;  // complete, its error not yet taken
    std::exception_ptr error;
    Transfer* next = nullptr;
  };
  struct Chunk : Operation {
    Transfer* transfer = nullptr;
    uint64_t begin = 0;  // in the extent
    size_t length = 0;
    size_t moved = 0;             // of length, correct so far
    unsigned stalls = 0;          // attempts in a row that moved nothing
    std::byte* user = nullptr;    // the caller's memory; null: zeros
    std::byte* bounce = nullptr;  // aligned copy of it, if needed
    bool begun = false;
  };
  enum class Step { again, done, failed };

  void before_issue(Operation& operation) noexcept override;
  void completed(Operation& operation, int result) noexcept override;

  // With mutex_ held.
  Transfer& take_transfer(std::unique_lock<std::mutex>& lock);
  uint64_t enqueue(Transfer& transfer);
  Operation* fill();  // the chunks to submit once the mutex is free, linked
  bool cut(Transfer& transfer, Chunk& chunk);
  void leave_engine(const Chunk& chunk, bool moved);
  void fail(Transfer& transfer, std::exception_ptr error);
  void give_up_rest(Transfer& transfer);
  void finish_if_complete(Transfer& transfer);
  void release(Transfer& transfer);

  // Without.
  Request enqueue_and_submit(Extent& extent, uint64_t offset, std::byte* memory, uint64_t bytes);
  void submit_all(Operation* first);
  void aim(Chunk& chunk);
  Step advance(Chunk& chunk, int result, int& error_code);
  std::exception_ptr check(Chunk& chunk);
  [[nodiscard]] std::exception_ptr io_error(const Chunk& chunk, int error_code) const;
  [[nodiscard]] uint64_t now_ns() const;

  const Direction direction_;
  const LaneOptions options_;
  PageBlock zeros_;
  PageBlock bounce_memory_;

  mutable std::mutex mutex_;
  std::condition_variable progress_;
  std::vector<Transfer> transfers_;
  Transfer* free_transfers_ = nullptr;
  Transfer* first_pending_ = nullptr;  // with bytes not yet issued, in order
  Transfer* last_pending_ = nullptr;
  unsigned running_ = 0;  // transfers not complete
  std::vector<Chunk> chunks_;
  Operation* free_chunks_ = nullptr;
  std::vector<std::byte*> free_bounces_;
  unsigned in_engine_ = 0;
  unsigned counted_ = 0;  // of those, in the statistics
  uint64_t busy_since_ns_ = 0;
  LinkStats stats_;

  std::unique_ptr<IoEngine> engine_;  // goes first
};

}  // namespace headrace::nvme
