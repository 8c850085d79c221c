// SPDX-License-Identifier: Apache-2.0
// The engine that works everywhere: a pool of threads in pread and pwrite. One operation of one thread is one
// system call; results go to the handler as they are. The contract is io_engine.h's.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "nvme/io_engine.h"

namespace headrace::nvme {

class PosixEngine : public IoEngine {
 public:
  /// At most this many threads: more only add switches (16 reach the device's limit).
  static constexpr unsigned kMaxThreads = 16;

  /// Throws std::system_error when not all threads can be started; none is left then.
  PosixEngine(OperationHandler& handler, Direction direction, unsigned depth);
  ~PosixEngine() override;

  [[nodiscard]] EngineKind kind() const override { return EngineKind::posix; }
  void add_file(unsigned, int) override {}
  std::string register_memory(std::span<std::byte>) override { return {}; }
  void submit(Operation& operation) override;
  int sync(int fd) override { return sync_file(fd); }

 private:
  void work();
  void end_threads();

  OperationHandler& handler_;
  const Direction direction_;
  std::mutex mutex_;
  std::condition_variable more_;
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace headrace::nvme
