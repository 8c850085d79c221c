// SPDX-License-Identifier: Apache-2.0
// How long a CUDA stream was busy: the sum over intervals that its owner bounds with begin() and end(). Both
// record a timing event, so an interval runs from when the stream reaches the one to when it reaches the
// other, whatever the calling thread does meanwhile. Events come from a ring made at construction; a full
// ring blocks until its oldest interval is over. Used by CudaStream. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "device/cuda_handle.h"

namespace headrace {

class CudaBusyTime {
 public:
  static constexpr size_t kIntervals = 1024;

  /// `stream` outlives it.
  explicit CudaBusyTime(cudaStream_t stream);

  /// Opens an interval unless one is open.
  void begin();
  /// Closes the open interval, if there is one.
  void end();
  /// Nanoseconds in intervals so far, the running one included up to now. Closes the open interval, so that
  /// what the stream does later is not taken for work of now. Never blocks.
  uint64_t ns();
  /// Relates the stream's clock to the host's. For a stream that is idle: it waits for an event on it.
  void calibrate();

 private:
  using Clock = std::chrono::steady_clock;
  struct Interval {
    CudaEventHandle begin, end;
  };
  Interval& at(uint64_t index) { return ring_[index % kIntervals]; }
  /// Adds finished intervals to finished_ns_, oldest first.
  void harvest();
  void retire_oldest();
  [[nodiscard]] uint64_t running_ns();

  cudaStream_t stream_;
  std::vector<Interval> ring_;
  uint64_t first_ = 0, count_ = 0;  ///< closed intervals not harvested yet
  bool open_ = false;               ///< interval first_ + count_ has begun
  double finished_ns_ = 0;
  CudaEventHandle anchor_, spare_;
  Clock::time_point anchor_reached_;
};

}  // namespace headrace
