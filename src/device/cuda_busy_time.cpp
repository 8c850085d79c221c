// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_busy_time.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

using cuda::check;

double elapsed_ns(const CudaEventHandle& from, const CudaEventHandle& to) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, from.get(), to.get()), "time between two events");
  return double(ms) * 1e6;
}

bool reached(const CudaEventHandle& event) {
  const cudaError_t state = cudaEventQuery(event.get());
  if (state == cudaErrorNotReady) return false;
  check(state, "query of an event");
  return true;
}

}  // namespace

CudaBusyTime::CudaBusyTime(cudaStream_t stream)
    : stream_(stream),
      ring_(kIntervals),
      anchor_(make_cuda_event(cudaEventDefault)),
      spare_(make_cuda_event(cudaEventDefault)) {
  for (Interval& interval : ring_) {
    interval.begin = make_cuda_event(cudaEventDefault);
    interval.end = make_cuda_event(cudaEventDefault);
  }
  calibrate();
}

/// The stream reaches the event between two looks at the host's clock. Where this thread loses its core they
/// are far apart: then it tries again, and the attempt with the closest ones counts.
void CudaBusyTime::calibrate() {
  constexpr int kAttempts = 5;
  constexpr Clock::duration kCloseEnough = std::chrono::microseconds(100);
  Clock::duration closest = Clock::duration::max();
  for (int i = 0; i < kAttempts && closest > kCloseEnough; ++i) {
    const Clock::time_point before = Clock::now();
    check(cudaEventRecord(spare_.get(), stream_), "record of an event");
    check(cudaEventSynchronize(spare_.get()), "wait for an idle stream");
    const Clock::time_point after = Clock::now();
    if (after - before >= closest) continue;
    closest = after - before;
    anchor_reached_ = after;
    std::swap(spare_, anchor_);
  }
}

void CudaBusyTime::begin() {
  if (open_) return;
  if (count_ == kIntervals) harvest();
  if (count_ == kIntervals) {
    check(cudaEventSynchronize(at(first_).end.get()), "wait for the oldest work of a stream");
    retire_oldest();
  }
  check(cudaEventRecord(at(first_ + count_).begin.get(), stream_), "record of an event");
  open_ = true;
}

void CudaBusyTime::end() {
  if (!open_) return;
  check(cudaEventRecord(at(first_ + count_).end.get(), stream_), "record of an event");
  open_ = false;
  ++count_;
}

void CudaBusyTime::retire_oldest() {
  const Interval& oldest = at(first_);
  finished_ns_ += elapsed_ns(oldest.begin, oldest.end);
  ++first_;
  --count_;
}

void CudaBusyTime::harvest() {
  while (count_ > 0 && reached(at(first_).end)) retire_oldest();
}

/// The oldest interval that is left has not ended; whether it has begun, its event says.
uint64_t CudaBusyTime::running_ns() {
  if (count_ == 0 || !reached(at(first_).begin)) return 0;
  const double since_anchor = double(std::chrono::nanoseconds(Clock::now() - anchor_reached_).count());
  return uint64_t(std::max(0.0, since_anchor - elapsed_ns(anchor_, at(first_).begin)));
}

uint64_t CudaBusyTime::ns() {
  end();
  harvest();
  return uint64_t(finished_ns_) + running_ns();
}

}  // namespace headrace
