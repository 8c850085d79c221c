// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_stream.h"

#include <chrono>
#include <string>
#include <utility>

#include "device/range.h"
#include "headrace/error.h"

namespace headrace {
namespace {

using cuda::check;

thread_local bool runs_a_task = false;

void check_transfer(cudaError_t error, const char* what, size_t bytes) {
  if (error != cudaSuccess) check(error, std::string(what) + " of " + std::to_string(bytes) + " bytes");
}

const CudaEvent& cuda_event(const Event& event) {
  const auto* const found = dynamic_cast<const CudaEvent*>(&event);
  HEADRACE_CHECK(found, "the event was made by another kind of device");
  return *found;
}

}  // namespace

CudaStream::CudaStream(const char* copy_range, Counts counts)
    : copy_range_(copy_range),
      counts_(counts),
      stream_(make_cuda_stream()),
      busy_(stream_.get()),
      ring_(std::make_unique<Entry[]>(kQueueEntries)) {}

CudaStream::~CudaStream() {
  drain();  // whoever waited for the work has been told of errors
}

void* CudaStream::native_handle() const {
  begin_work();
  return stream_.get();
}

CudaStream::Entry& CudaStream::next_free_entry() {
  const uint64_t index = enqueued_.load(std::memory_order_relaxed);
  if (index >= kQueueEntries) wait_done(index - kQueueEntries + 1);
  Entry& entry = ring_[index % kQueueEntries];
  entry.stream = this;
  entry.index = index;
  return entry;
}

void CudaStream::launch(Entry& entry) {
  const auto run = [](void* given) {
    Entry& ready = *static_cast<Entry*>(given);
    ready.stream->perform(ready);
  };
  check(cudaLaunchHostFunc(stream_.get(), run, &entry), "enqueuing of a task");
  enqueued_.store(entry.index + 1);
}

void CudaStream::enqueue(Task task) {
  HEADRACE_CHECK(bool(task), "an empty task");
  begin_work();
  Entry& entry = next_free_entry();
  entry.task = std::move(task);
  launch(entry);
}

void CudaStream::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const Range range(copy_range_);
  busy_.begin();
  check_transfer(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), "copy", bytes);
  if (counts_ == Counts::copies) busy_.end();
  copied_bytes_ += bytes;
}

void CudaStream::zero(void* to, size_t bytes) {
  if (bytes == 0) return;
  begin_work();
  check_transfer(cudaMemsetAsync(to, 0, bytes, stream_.get()), "zeroing", bytes);
}

/// The GPU waits by itself. Only a task's error needs a task of its own to pass it on, and only as long as
/// one may still happen before the event.
void CudaStream::wait(const Event& event) {
  const CudaEvent& awaited = cuda_event(event);
  const auto [stream, position] = awaited.mark();
  if (!stream || stream == this) return;
  busy_.end();
  check(cudaStreamWaitEvent(stream_.get(), awaited.event_.get(), 0), "wait for an event");
  if (stream->is_done(position) && !stream->failed_before(position)) return;
  Entry& entry = next_free_entry();
  entry.awaited = stream;
  entry.position = position;
  launch(entry);
}

void CudaStream::record(Event& event) {
  auto* const found = dynamic_cast<CudaEvent*>(&event);
  HEADRACE_CHECK(found, "the event was made by another kind of device");
  const std::lock_guard lock(found->mutex_);
  check(cudaEventRecord(found->event_.get(), stream_.get()), "record of an event");
  found->mark_ = {this, enqueued_.load(std::memory_order_relaxed)};
}

void CudaStream::synchronize() {
  HEADRACE_CHECK(!runs_a_task, "a task waits for its own stream");
  busy_.end();
  check(cudaStreamSynchronize(stream_.get()), "wait for a stream");
  busy_.calibrate();
  rethrow_before(enqueued_.load());
}

/// On a thread of the driver.
void CudaStream::perform(Entry& entry) {
  if (const CudaStream* const other = std::exchange(entry.awaited, nullptr)) {
    if (other->failed_before(entry.position)) fail(other->fault_, entry.index);
  } else {
    runs_a_task = true;
    try {
      if (!failed_before(kNever)) entry.task();
    } catch (...) {
      fail(std::current_exception(), entry.index);
    }
    runs_a_task = false;
    entry.task = Task();  // what it captured is gone before anyone is told that it is done
  }
  {
    const std::lock_guard lock(mutex_);
    done_.store(entry.index + 1);
  }
  progress_.notify_all();
}

void CudaStream::fail(std::exception_ptr error, uint64_t index) {
  if (failed_before(kNever)) return;  // the first error stays
  fault_ = std::move(error);
  fault_index_.store(index);
}

/// After a fault of the GPU the driver calls no more tasks: that ends the waiting too.
void CudaStream::wait_done(uint64_t position) {
  HEADRACE_CHECK(!runs_a_task, "a task waits for its own stream");
  std::unique_lock lock(mutex_);
  while (!progress_.wait_for(lock, std::chrono::milliseconds(100), [&] { return is_done(position); })) {
    lock.unlock();  // the driver may want its callback to end first
    const cudaError_t state = cudaStreamQuery(stream_.get());
    if (state != cudaErrorNotReady) check(state, "wait for room in a stream's queue");
    lock.lock();
  }
}

void CudaStream::rethrow_before(uint64_t position) const {
  if (failed_before(position)) std::rethrow_exception(fault_);
}

CudaEvent::Mark CudaEvent::mark() const {
  const std::lock_guard lock(mutex_);
  return mark_;
}

bool CudaEvent::reached() const {
  const cudaError_t state = cudaEventQuery(event_.get());
  if (state == cudaErrorNotReady) return false;
  check(state, "query of an event");
  return true;
}

void CudaEvent::synchronize() const {
  const Mark before = mark();
  check(cudaEventSynchronize(event_.get()), "wait for an event");
  if (before.stream) before.stream->rethrow_before(before.position);
}

}  // namespace headrace
