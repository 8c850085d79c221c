// SPDX-License-Identifier: Apache-2.0
// The engine of choice: one io_uring, made, fed and reaped by one thread of its own, with registered files
// and buffers where the kernel allows them. Other threads leave operations in a list and wake the ring thread
// with an eventfd that the ring reads, so it sleeps in one place only. The contract is io_engine.h's.
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "nvme/file_descriptor.h"
#include "nvme/io_engine.h"

namespace headrace::nvme {

/// The setup flags to try, best first; each is refused with EINVAL by kernels that do not know it.
inline constexpr std::array<unsigned, 3> kRingFlags = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0};
/// io_uring_queue_init with the best flags the kernel takes: 0 or -errno.
int init_ring(unsigned entries, io_uring* ring);

class IoUringEngine : public IoEngine {
 public:
  /// Returns when the ring works. Throws IoError with the errno of the refusal.
  IoUringEngine(OperationHandler& handler, Direction direction, unsigned depth);
  ~IoUringEngine() override;

  [[nodiscard]] EngineKind kind() const override { return EngineKind::io_uring; }
  void add_file(unsigned slot, int fd) override;
  std::string register_memory(std::span<std::byte> arena) override;
  void submit(Operation& operation) override;
  int sync(int fd) override { return sync_file(fd); }

 private:
  // Any thread.
  void wake();
  int call(const std::function<int()>& work);  // on the ring thread, as the kernel asks of registrations

  // The ring thread.
  void run();
  int open_ring();
  void close_ring();
  bool take_work();
  void issue(Operation& operation);
  void prepare(io_uring_sqe* sqe, const Operation& operation);
  void flush(unsigned wait_for);
  void reap();
  void arm_wake();
  io_uring_sqe* next_sqe();
  [[nodiscard]] int buffer_index(const Operation& operation) const;

  OperationHandler& handler_;
  const Direction direction_;
  const unsigned depth_;

  std::mutex mutex_;
  std::condition_variable called_;
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
  const std::function<int()>* call_ = nullptr;
  int call_result_ = 0;
  bool ready_ = false;
  bool stop_ = false;
  bool woken_ = false;

  // Of the ring thread; the lists change only while nothing is in flight.
  io_uring ring_{};
  FileDescriptor wake_fd_;
  uint64_t wake_count_ = 0;
  unsigned in_flight_ = 0;
  unsigned file_slots_ = 0;
  std::vector<bool> file_registered_;
  std::vector<iovec> buffers_;
  bool buffers_registered_ = false;
  std::jthread thread_;
};

}  // namespace headrace::nvme
