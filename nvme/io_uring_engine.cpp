// SPDX-License-Identifier: Apache-2.0
#include "nvme/io_uring_engine.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headrace/error.h"
#include "nvme/probe.h"

namespace headrace::nvme {
namespace {

// The kernel takes at most 1 GiB in one registered buffer (EFAULT beyond).
constexpr size_t kMaxBufferBytes = size_t(1) << 30;
constexpr unsigned kFileSlots = 1024;

}  // namespace

int init_ring(unsigned entries, io_uring* ring) {
  int result = -EINVAL;
  for (const unsigned flags : kRingFlags) {
    result = io_uring_queue_init(entries, ring, flags);
    if (result != -EINVAL) break;
  }
  return result;
}

IoUringEngine::IoUringEngine(OperationHandler& handler, Direction direction, unsigned depth)
    : handler_(handler), direction_(direction), depth_(depth), file_registered_(kFileSlots, false) {
  thread_ = std::jthread([this] { run(); });
  std::unique_lock lock(mutex_);
  called_.wait(lock, [this] { return ready_; });
  if (call_result_ < 0) throw IoError("set up", "io_uring", -call_result_);
}

IoUringEngine::~IoUringEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake();
  }
  thread_.join();
}

void IoUringEngine::add_file(unsigned slot, int fd) {
  call([&] {
    if (slot >= file_slots_ || (fd < 0 && !file_registered_[slot])) return 0;
    // A refusal costs nothing but speed: the operation then names the descriptor itself.
    file_registered_[slot] = io_uring_register_files_update(&ring_, slot, &fd, 1) == 1 && fd >= 0;
    return 0;
  });
}

std::string IoUringEngine::register_memory(std::span<std::byte> arena) {
  const int result = call([&] {
    if (buffers_registered_) io_uring_unregister_buffers(&ring_);
    for (size_t begin = 0; begin < arena.size(); begin += kMaxBufferBytes) {
      buffers_.push_back({arena.data() + begin, std::min(kMaxBufferBytes, arena.size() - begin)});
    }
    const int refused = io_uring_register_buffers(&ring_, buffers_.data(), unsigned(buffers_.size()));
    buffers_registered_ = refused == 0;
    return refused;
  });
  if (result == 0) return {};
  if (result == -ENOMEM) {
    return fmt::format("buffers not registered: locking {} bytes is over RLIMIT_MEMLOCK ({})", arena.size(),
                       memlock_limit_text());
  }
  return fmt::format("buffers not registered: {}", std::strerror(-result));
}

void IoUringEngine::submit(Operation& operation) {
  if (std::this_thread::get_id() == thread_.get_id()) return issue(operation);
  operation.next = nullptr;
  const std::lock_guard lock(mutex_);
  (first_ ? last_->next : first_) = &operation;
  last_ = &operation;
  wake();
}

void IoUringEngine::wake() {
  if (std::exchange(woken_, true)) return;
  const uint64_t one = 1;
  const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
  HEADRACE_CHECK(written == ssize_t(sizeof one), "the ring thread cannot be woken");
}

int IoUringEngine::call(const std::function<int()>& work) {
  std::unique_lock lock(mutex_);
  called_.wait(lock, [this] { return call_ == nullptr; });
  call_ = &work;
  wake();
  called_.wait(lock, [&] { return call_ != &work; });
  return call_result_;
}

void IoUringEngine::run() {
  enter_io_thread(direction_ == Direction::read ? "nvme-ring-read" : "nvme-ring-write");
  const int opened = open_ring();
  {
    const std::lock_guard lock(mutex_);
    call_result_ = opened;
    ready_ = true;
  }
  called_.notify_all();
  if (opened < 0) return;
  arm_wake();
  while (take_work()) {
    flush(1);
    reap();
  }
  close_ring();
}

int IoUringEngine::open_ring() {
  wake_fd_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  if (!wake_fd_) return -errno;
  const int result = init_ring(depth_ + 1, &ring_);  // one more for the eventfd
  if (result < 0) return result;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const auto slots = unsigned(std::min<uint64_t>(kFileSlots, files.rlim_cur));
  if (io_uring_register_files_sparse(&ring_, slots) == 0) file_slots_ = slots;
  return 0;
}

void IoUringEngine::close_ring() {
  // The kernel frees a closed ring later, in the background; what it holds would stay charged until then.
  if (buffers_registered_) io_uring_unregister_buffers(&ring_);
  if (file_slots_ > 0) io_uring_unregister_files(&ring_);
  io_uring_queue_exit(&ring_);
}

bool IoUringEngine::take_work() {
  Operation* operation = nullptr;
  const std::function<int()>* call = nullptr;
  {
    const std::lock_guard lock(mutex_);
    operation = std::exchange(first_, nullptr);
    call = call_;
    if (stop_ && !operation && !call && in_flight_ == 0) return false;
  }
  if (call) {
    const int result = (*call)();
    const std::lock_guard lock(mutex_);
    call_result_ = result;
    call_ = nullptr;
    called_.notify_all();
  }
  while (operation) {
    Operation* next = operation->next;  // the link is the operation's owner's once it is issued
    issue(*operation);
    operation = next;
  }
  return true;
}

void IoUringEngine::issue(Operation& operation) {
  handler_.before_issue(operation);
  io_uring_sqe* sqe = next_sqe();
  prepare(sqe, operation);
  io_uring_sqe_set_data(sqe, &operation);
  ++in_flight_;
  // Handed over one by one: the work in before_issue and completed then overlaps with the drive's.
  flush(0);
}

void IoUringEngine::prepare(io_uring_sqe* sqe, const Operation& operation) {
  const bool fixed_file = operation.file_slot < file_slots_ && file_registered_[operation.file_slot];
  const int file = fixed_file ? int(operation.file_slot) : operation.fd;
  const int buffer = buffer_index(operation);
  const auto bytes = unsigned(operation.bytes);
  const bool read = operation.direction == Direction::read;
  if (read && buffer >= 0) {
    io_uring_prep_read_fixed(sqe, file, operation.memory, bytes, operation.offset, buffer);
  } else if (read) {
    io_uring_prep_read(sqe, file, operation.memory, bytes, operation.offset);
  } else if (buffer >= 0) {
    io_uring_prep_write_fixed(sqe, file, operation.memory, bytes, operation.offset, buffer);
  } else {
    io_uring_prep_write(sqe, file, operation.memory, bytes, operation.offset);
  }
  if (fixed_file) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}

int IoUringEngine::buffer_index(const Operation& operation) const {
  if (!buffers_registered_) return -1;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(buffers_[i].iov_base);
    const std::byte* end = begin + buffers_[i].iov_len;
    if (operation.memory >= begin && operation.memory < end) {
      return operation.bytes <= size_t(end - operation.memory) ? int(i) : -1;  // -1 also across two buffers
    }
  }
  return -1;
}

void IoUringEngine::flush(unsigned wait_for) {
  const int result = io_uring_submit_and_wait(&ring_, wait_for);
  // EINTR: a signal; EAGAIN: the kernel is short of memory; EBUSY: completions must be reaped first. What was
  // not taken stays queued and goes with the next call.
  const bool harmless = result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY;
  HEADRACE_CHECK(harmless, std::strerror(-result));
}

void IoUringEngine::reap() {
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
    auto* operation = static_cast<Operation*>(io_uring_cqe_get_data(cqe));
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (operation) {
      --in_flight_;
      handler_.completed(*operation, result);
    } else {
      arm_wake();
    }
  }
}

void IoUringEngine::arm_wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;  // work left until now is found by take_work, which follows
  }
  io_uring_sqe* sqe = next_sqe();
  io_uring_prep_read(sqe, wake_fd_.get(), &wake_count_, sizeof wake_count_, 0);
  io_uring_sqe_set_data(sqe, nullptr);
}

io_uring_sqe* IoUringEngine::next_sqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (!sqe) {  // only while the kernel refuses to take what is queued, see flush
    flush(0);
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

}  // namespace headrace::nvme
