// SPDX-License-Identifier: Apache-2.0
// Streams and events: the order in which a device works. A Stream runs what it is given one after another;
// an Event is a mark in a stream that other streams and the host can wait for. On the host device a stream is
// a thread with a bounded queue; on CUDA it is a cudaStream_t.
//
// Thread safety: one thread at a time enqueues on a stream; events may be waited for from any thread.
// Nothing here allocates after construction: a Task holds its captures inline and a full queue blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace headrace {

enum class DeviceKind : unsigned char { host, cuda };

/// A move-only callable `void()` whose captures (at most kBytes) live inside it: never allocates.
class Task {
 public:
  static constexpr size_t kBytes = 240;

  Task() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Task>)
      Task(F&& f) {  // NOLINT: implicit on purpose, like std::function
    using T = std::decay_t<F>;
    static_assert(sizeof(T) <= kBytes, "captures do not fit: pass a pointer to state that outlives the task");
    static_assert(alignof(T) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<T>);
    new (storage_) T(std::forward<F>(f));
    operate_ = [](Op op, std::byte* self, std::byte* other) {
      T& callable = *std::launder(reinterpret_cast<T*>(self));
      if (op == Op::call) callable();
      if (op == Op::move) new (other) T(std::move(callable));
      if (op == Op::destroy) callable.~T();
    };
  }
  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  explicit operator bool() const { return operate_ != nullptr; }
  void operator()() { operate_(Op::call, storage_, nullptr); }

 private:
  enum class Op { call, move, destroy };
  void reset() {
    if (operate_) operate_(Op::destroy, storage_, nullptr);
    operate_ = nullptr;
  }
  void take(Task& other) {
    operate_ = std::exchange(other.operate_, nullptr);
    if (!operate_) return;
    operate_(Op::move, other.storage_, storage_);
    operate_(Op::destroy, other.storage_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[kBytes];
  void (*operate_)(Op, std::byte* self, std::byte* other) = nullptr;
};

class Stream;

/// A mark in a stream. An event that was never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  /// True when the work before the last record() is done.
  [[nodiscard]] virtual bool reached() const = 0;
  /// Blocks the calling thread until then; rethrows the stream's first error.
  virtual void synchronize() const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  [[nodiscard]] virtual DeviceKind kind() const = 0;
  /// cudaStream_t on CUDA, nullptr on the host device.
  [[nodiscard]] virtual void* native_handle() const = 0;

  /// Runs `task` after everything enqueued before; returns at once unless the queue is full. An exception in
  /// a task is kept, later tasks are skipped, and synchronize() rethrows it.
  virtual void enqueue(Task task) = 0;
  /// Copies `bytes` in stream order; returns before the bytes have moved. Both ranges stay valid until then.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  /// Sets `bytes` to zero in stream order.
  virtual void zero(void* to, size_t bytes) = 0;
  /// Later work on this stream starts only after `event` as recorded now.
  virtual void wait(const Event& event) = 0;
  /// Moves `event` to the end of the work enqueued so far.
  virtual void record(Event& event) = 0;
  /// Blocks the calling thread until the stream is idle; rethrows its first error.
  virtual void synchronize() = 0;
};

}  // namespace headrace
