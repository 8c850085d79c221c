// SPDX-License-Identifier: Apache-2.0
// Streams and events of the host device. A HostStream is one named thread that runs a bounded ring of
// entries; the n-th entry is done when the stream's count of done entries reaches n, so an event is nothing
// but a stream and a count. Made by HostDevice.
//
// Errors: a task that throws makes its stream failed for good. Later tasks are skipped, waits are still
// honoured (nobody is told that work is done while another stream is still at it), and every position still
// completes, so nothing hangs. A stream that waits for a position at or after the fault becomes failed with
// the same exception.
//
// Lifetime: a stream outlives its events and the streams that wait for it. The destructor finishes what was
// enqueued.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "headrace/stats.h"
#include "headrace/stream.h"

namespace headrace {

class HostStream final : public Stream {
 public:
  static constexpr size_t kQueueEntries = 512;

  /// `name` is the thread's name: at most 15 characters.
  explicit HostStream(const char* name);
  ~HostStream() override;

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::host; }
  [[nodiscard]] void* native_handle() const override { return nullptr; }
  void enqueue(Task task) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void zero(void* to, size_t bytes) override;
  void wait(const Event& event) override;
  void record(Event& event) override;
  void synchronize() override;

  /// Blocks until everything enqueued so far is done; leaves errors where they are.
  void drain() const { wait_done(enqueued_.load()); }
  /// Bytes moved by copy() and the time spent in it.
  [[nodiscard]] LinkStats copy_stats() const;
  /// Time spent in tasks so far, the running one included; waiting for events and for work is not in it.
  [[nodiscard]] uint64_t task_ns() const;

 private:
  friend class HostEvent;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  /// A task, or a position of another stream to wait for.
  struct Entry {
    Task task;
    const HostStream* awaited = nullptr;
    uint64_t position = 0;
  };

  Entry& next_free_entry();
  void publish();
  void run();
  bool await_entry(uint64_t done);
  void perform(Entry& entry, uint64_t index);
  void finish(uint64_t done);
  void fail(std::exception_ptr error, uint64_t index);

  [[nodiscard]] bool is_done(uint64_t position) const { return done_.load() >= position; }
  [[nodiscard]] bool failed_before(uint64_t position) const { return fault_index_.load() < position; }
  void wait_done(uint64_t position) const;
  void wait_done_or_rethrow(uint64_t position) const;

  std::unique_ptr<Entry[]> ring_;
  // Sleepers and wakers agree through sequentially consistent pairs: each side writes its own word before it
  // reads the other's (enqueued_ and asleep_; done_ and wake_at_), so at least one of the two sees the other.
  alignas(64) std::atomic<uint64_t> enqueued_{0};
  std::atomic<bool> asleep_{false};
  alignas(64) std::atomic<uint64_t> done_{0};
  mutable std::atomic<uint64_t> wake_at_{kNever};  ///< least position that a sleeping thread waits for
  std::atomic<uint64_t> fault_index_{kNever};      ///< the entry that failed; publishes fault_
  std::exception_ptr fault_;
  std::atomic<uint64_t> copied_bytes_{0}, copy_ns_{0};
  std::atomic<uint64_t> task_ns_{0},
      task_began_ns_{0};  ///< finished tasks; start of the running one, 0: none
  alignas(64) mutable std::mutex mutex_;
  std::condition_variable work_;
  mutable std::condition_variable progress_;
  bool stop_ = false;  ///< guarded by mutex_
  std::jthread thread_;
};

class HostEvent final : public Event {
 public:
  [[nodiscard]] bool reached() const override;
  void synchronize() const override;

 private:
  friend class HostStream;
  struct Mark {
    const HostStream* stream = nullptr;
    uint64_t position = 0;
  };
  [[nodiscard]] Mark mark() const;
  void set(Mark mark);

  mutable std::mutex mutex_;  ///< a mark is two words: waiting and recording again may meet
  Mark mark_;
};

}  // namespace headrace
