// SPDX-License-Identifier: Apache-2.0
// Streams and events of the emulated GPU. A stream is a thread with a queue; an event is a count of records
// and of those that were reached. What is enqueued always runs, so that nobody waits for ever; device work is
// skipped once the device has failed.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

struct CUstream_st {
  CUstream_st();
  ~CUstream_st();  ///< finishes what was enqueued

  void enqueue(std::function<void()> entry);
  /// Skipped when the device has failed by then.
  void enqueue_work(std::function<void()> work);
  void synchronize();
  [[nodiscard]] bool idle();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  ///< the entry in front is running
  bool stop_ = false;
  std::thread thread_;
};

struct CUevent_st {
  using Clock = std::chrono::steady_clock;
  /// Outlives the event while streams still record it or wait for it.
  struct State {
    std::mutex mutex;
    std::condition_variable reached;
    uint64_t records = 0;  ///< asked for
    uint64_t done = 0;     ///< the newest that was reached
    Clock::time_point time;
  };
  const std::shared_ptr<State> state = std::make_shared<State>();
  bool timed = true;
};

namespace headrace::emulation {

CUstream_st& stream_or_default(cudaStream_t stream);

}  // namespace headrace::emulation
