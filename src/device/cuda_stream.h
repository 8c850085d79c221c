// SPDX-License-Identifier: Apache-2.0
// Streams and events of the cuda device: a cudaStream_t with a bounded ring of host tasks, and a cudaEvent_t
// with the stream's count of tasks at the time it was recorded. Made by CudaDevice.
//
// Errors: a fault of the GPU comes out of whichever call meets it first, as DeviceError. A task that throws
// makes its stream failed for good, as on the host device: later tasks are skipped, copies and kernels go on
// (nobody will look at what they make), and a stream that waits for a position at or after the fault becomes
// failed with the same exception. Tasks run on a thread of the driver and must make no CUDA calls.
//
// Lifetime: a stream outlives its events and the streams that wait for it. The destructor finishes what was
// enqueued.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>

#include "device/cuda_busy_time.h"
#include "headrace/stream.h"

namespace headrace {

class CudaStream final : public Stream {
 public:
  static constexpr size_t kQueueEntries = 512;  ///< of tasks; kernels and copies are queued by the driver
  /// What the stream's busy time is made of: its copies, or everything between one wait and the next.
  enum class Counts : unsigned char { copies, work };

  /// `copy_range` names copies in a profile: "copy_h2d". It must outlive the stream.
  explicit CudaStream(const char* copy_range, Counts counts = Counts::work);
  ~CudaStream() override;

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
  /// Whoever launches asks for the handle each time: the stream then knows that it has work.
  [[nodiscard]] void* native_handle() const override;
  void enqueue(Task task) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void zero(void* to, size_t bytes) override;
  void wait(const Event& event) override;
  void record(Event& event) override;
  void synchronize() override;

  /// Blocks until everything enqueued so far is done; leaves errors where they are.
  void drain() const { (void)cudaStreamSynchronize(stream_.get()); }
  /// Bytes given to copy() so far.
  [[nodiscard]] uint64_t copied_bytes() const { return copied_bytes_; }
  /// Busy so far; waiting for events and for work is not in it. Called by the thread that enqueues.
  [[nodiscard]] uint64_t busy_ns() const { return busy_.ns(); }

 private:
  friend class CudaEvent;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  /// A task, or a position of another stream whose error is to be taken over.
  struct Entry {
    CudaStream* stream = nullptr;
    uint64_t index = 0;
    Task task;
    const CudaStream* awaited = nullptr;
    uint64_t position = 0;
  };

  void begin_work() const {
    if (counts_ == Counts::work) busy_.begin();
  }
  Entry& next_free_entry();
  void launch(Entry& entry);
  void perform(Entry& entry);
  void fail(std::exception_ptr error, uint64_t index);
  void wait_done(uint64_t position);
  [[nodiscard]] bool is_done(uint64_t position) const { return done_.load() >= position; }
  [[nodiscard]] bool failed_before(uint64_t position) const { return fault_index_.load() < position; }
  void rethrow_before(uint64_t position) const;

  const char* copy_range_;
  Counts counts_;
  CudaStreamHandle stream_;
  mutable CudaBusyTime busy_;
  uint64_t copied_bytes_ = 0;
  std::unique_ptr<Entry[]> ring_;
  std::atomic<uint64_t> enqueued_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> fault_index_{kNever};  ///< the task that failed; publishes fault_
  std::exception_ptr fault_;
  std::mutex mutex_;
  std::condition_variable progress_;
};

class CudaEvent final : public Event {
 public:
  CudaEvent() : event_(make_cuda_event(cudaEventDisableTiming)) {}
  [[nodiscard]] bool reached() const override;
  void synchronize() const override;

 private:
  friend class CudaStream;
  struct Mark {
    const CudaStream* stream = nullptr;
    uint64_t position = 0;
  };
  [[nodiscard]] Mark mark() const;

  CudaEventHandle event_;
  mutable std::mutex mutex_;  ///< waiting and recording again may meet
  Mark mark_;
};

}  // namespace headrace
