// SPDX-License-Identifier: Apache-2.0
#include "device/host_stream.h"

#include <pthread.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "headrace/error.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Looks for about 20 us, which is less than going to sleep and being woken, then gives up.
template <class Ready>
bool spin_until(Ready ready) {
  if (ready()) return true;
  static const bool alone = std::thread::hardware_concurrency() < 2;
  if (alone) return false;
  const Clock::time_point end = Clock::now() + std::chrono::microseconds(20);
  do {
    for (int i = 0; i < 16; ++i) {
      pause();
      if (ready()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

uint64_t now_ns() {
  return uint64_t(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

const HostEvent& host_event(const Event& event) {
  const auto* const host = dynamic_cast<const HostEvent*>(&event);
  HEADRACE_CHECK(host, "the event was made by another kind of device");
  return *host;
}

}  // namespace

HostStream::HostStream(const char* name) : ring_(std::make_unique<Entry[]>(kQueueEntries)) {
  thread_ = std::jthread([this, name] {
    pthread_setname_np(pthread_self(), name);
    run();
  });
}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

HostStream::Entry& HostStream::next_free_entry() {
  const uint64_t index = enqueued_.load(std::memory_order_relaxed);
  if (index >= kQueueEntries) wait_done(index - kQueueEntries + 1);
  return ring_[index % kQueueEntries];
}

void HostStream::publish() {
  enqueued_.store(enqueued_.load(std::memory_order_relaxed) + 1);
  if (!asleep_.load()) return;
  { const std::lock_guard lock(mutex_); }  // the stream's thread is now inside wait(), or awake
  work_.notify_one();
}

void HostStream::enqueue(Task task) {
  HEADRACE_CHECK(bool(task), "an empty task");
  next_free_entry().task = std::move(task);
  publish();
}

void HostStream::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  enqueue([this, to, from, bytes] {
    const Clock::time_point begin = Clock::now();
    std::memcpy(to, from, bytes);
    copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    copy_ns_.fetch_add(uint64_t(std::chrono::nanoseconds(Clock::now() - begin).count()),
                       std::memory_order_relaxed);
  });
}

void HostStream::zero(void* to, size_t bytes) {
  if (bytes == 0) return;
  enqueue([to, bytes] { std::memset(to, 0, bytes); });
}

void HostStream::wait(const Event& event) {
  const auto [stream, position] = host_event(event).mark();
  if (!stream || stream == this) return;
  if (stream->is_done(position) && !stream->failed_before(position)) return;
  Entry& entry = next_free_entry();
  entry.awaited = stream;
  entry.position = position;
  publish();
}

void HostStream::record(Event& event) {
  auto* const host = dynamic_cast<HostEvent*>(&event);
  HEADRACE_CHECK(host, "the event was made by another kind of device");
  host->set({this, enqueued_.load(std::memory_order_relaxed)});
}

void HostStream::synchronize() {
  wait_done_or_rethrow(enqueued_.load());
}

LinkStats HostStream::copy_stats() const {
  return {.bytes = copied_bytes_.load(std::memory_order_relaxed),
          .busy_ns = copy_ns_.load(std::memory_order_relaxed)};
}

uint64_t HostStream::task_ns() const {
  const uint64_t began = task_began_ns_.load();
  const uint64_t finished = task_ns_.load();
  return finished + (began ? now_ns() - began : 0);
}

void HostStream::run() {
  for (uint64_t index = 0; await_entry(index); ++index) {
    perform(ring_[index % kQueueEntries], index);
    finish(index + 1);
  }
}

/// False when the stream ends: destroyed, and nothing left to do.
bool HostStream::await_entry(uint64_t done) {
  const auto has_entry = [this, done] { return enqueued_.load() > done; };
  if (spin_until(has_entry)) return true;
  std::unique_lock lock(mutex_);
  asleep_.store(true);
  work_.wait(lock, [&] { return has_entry() || stop_; });
  asleep_.store(false);
  return has_entry();
}

void HostStream::perform(Entry& entry, uint64_t index) {
  if (const HostStream* const other = std::exchange(entry.awaited, nullptr)) {
    other->wait_done(entry.position);
    if (other->failed_before(entry.position)) fail(other->fault_, index);
    return;
  }
  const uint64_t began = now_ns();
  task_began_ns_.store(began);
  try {
    if (!failed_before(kNever)) entry.task();
  } catch (...) {
    fail(std::current_exception(), index);
  }
  task_began_ns_.store(0);
  task_ns_.fetch_add(now_ns() - began);
  entry.task = Task();  // what it captured is gone before anyone is told that it is done
}

void HostStream::finish(uint64_t done) {
  done_.store(done);
  if (done < wake_at_.load()) return;
  {
    const std::lock_guard lock(mutex_);
    wake_at_.store(kNever);
  }
  progress_.notify_all();
}

void HostStream::fail(std::exception_ptr error, uint64_t index) {
  if (failed_before(kNever)) return;  // the first error stays
  fault_ = std::move(error);
  fault_index_.store(index);
}

void HostStream::wait_done(uint64_t position) const {
  if (is_done(position)) return;
  HEADRACE_CHECK(std::this_thread::get_id() != thread_.get_id(), "a task waits for its own stream");
  if (spin_until([this, position] { return is_done(position); })) return;
  std::unique_lock lock(mutex_);
  while (true) {
    if (position < wake_at_.load()) wake_at_.store(position);
    if (is_done(position)) return;
    progress_.wait(lock);
  }
}

void HostStream::wait_done_or_rethrow(uint64_t position) const {
  wait_done(position);
  if (failed_before(position)) std::rethrow_exception(fault_);
}

HostEvent::Mark HostEvent::mark() const {
  const std::lock_guard lock(mutex_);
  return mark_;
}

void HostEvent::set(Mark mark) {
  const std::lock_guard lock(mutex_);
  mark_ = mark;
}

bool HostEvent::reached() const {
  const auto [stream, position] = mark();
  return !stream || stream->is_done(position);
}

void HostEvent::synchronize() const {
  const auto [stream, position] = mark();
  if (stream) stream->wait_done_or_rethrow(position);
}

}  // namespace headrace
