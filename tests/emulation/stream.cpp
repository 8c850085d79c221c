// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/stream.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/emulation/device_state.h"

using namespace headrace::emulation;

namespace {

/// Every stream that lives, for cudaDeviceSynchronize.
struct Streams {
  std::mutex mutex;
  std::vector<cudaStream_t> all;
};
Streams& streams() {
  static Streams* const instance = new Streams;  // the default stream outlives statics
  return *instance;
}

}  // namespace

CUstream_st::CUstream_st() : thread_([this] { run(); }) {
  const std::lock_guard lock(streams().mutex);
  streams().all.push_back(this);
}

CUstream_st::~CUstream_st() {
  {
    const std::lock_guard lock(streams().mutex);
    std::erase(streams().all, this);
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CUstream_st::run() {
  pthread_setname_np(pthread_self(), "emulated-gpu");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> entry = std::move(queue_.front());
    lock.unlock();
    entry();
    lock.lock();
    queue_.pop_front();
    if (queue_.empty()) changed_.notify_all();
  }
}

void CUstream_st::enqueue(std::function<void()> entry) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(entry));
  }
  changed_.notify_all();
}

void CUstream_st::enqueue_work(std::function<void()> work) {
  enqueue([work = std::move(work)] {
    if (!has_fault()) work();
  });
}

void CUstream_st::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
}

bool CUstream_st::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

namespace headrace::emulation {

CUstream_st& stream_or_default(cudaStream_t stream) {
  if (stream) return *stream;
  static CUstream_st* const default_stream = new CUstream_st;  // never destroyed: as on a GPU
  return *default_stream;
}

}  // namespace headrace::emulation

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (const cudaError_t error = standing_error()) return note(error);
  if (flags > cudaStreamNonBlocking) return note(cudaErrorInvalidValue);
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return note(cudaErrorInvalidResourceHandle);
  delete stream;
  return note(standing_error());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!device_present()) return note(cudaErrorNoDevice);
  stream_or_default(stream).synchronize();
  return note(standing_error());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = standing_error()) return note(error);
  return stream_or_default(stream).idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (!device_present()) return note(cudaErrorNoDevice);
  std::vector<cudaStream_t> all;
  {
    const std::lock_guard lock(streams().mutex);
    all = streams().all;
  }
  for (cudaStream_t stream : all) stream->synchronize();
  return note(standing_error());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  if (const cudaError_t error = standing_error()) return note(error);
  stream_or_default(stream).enqueue_work([=] { function(user_data); });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(event->state->mutex);
  stream_or_default(stream).enqueue([state = event->state, record = event->state->records] {
    std::unique_lock state_lock(state->mutex);
    state->reached.wait(state_lock, [&] { return state->done >= record; });
  });
  return note(standing_error());
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = standing_error()) return note(error);
  *event = new CUevent_st{.timed = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  delete event;
  return note(standing_error());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(event->state->mutex);
  stream_or_default(stream).enqueue([state = event->state, record = ++event->state->records] {
    const std::lock_guard state_lock(state->mutex);
    state->time = CUevent_st::Clock::now();
    state->done = std::max(state->done, record);
    state->reached.notify_all();
  });
  return note(standing_error());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = standing_error()) return note(error);
  const std::lock_guard lock(event->state->mutex);
  return event->state->done >= event->state->records ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  CUevent_st::State& state = *event->state;
  std::unique_lock lock(state.mutex);
  state.reached.wait(lock, [&state, record = state.records] { return state.done >= record; });
  return note(standing_error());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin || !end || !begin->timed || !end->timed) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = standing_error()) return note(error);
  CUevent_st::Clock::time_point times[2];
  const cudaEvent_t events[2] = {begin, end};
  for (int i = 0; i < 2; ++i) {
    const std::lock_guard lock(events[i]->state->mutex);
    if (events[i]->state->records == 0) return note(cudaErrorInvalidResourceHandle);
    if (events[i]->state->done < events[i]->state->records) return cudaErrorNotReady;
    times[i] = events[i]->state->time;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
  return cudaSuccess;
}
