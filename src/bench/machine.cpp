// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/adam.h"

namespace headrace::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

using Clock = std::chrono::steady_clock;

/// A cache line that two threads hand to and fro. Either may have no core for a while, so both give up at the
/// deadline.
struct Ball {
  alignas(128) std::atomic<int> turn = 0;
  Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(20);

  /// Waits until the turn is `mine` and passes it on, `times` times; false when it gave up.
  bool bounce(int mine, int times) {
    constexpr int kSpins = 2000;  // far longer than a cache line takes
    for (int i = 0; i < times; ++i) {
      for (int spins = 0; turn.load(std::memory_order_acquire) != mine; ++spins) {
        if (spins < kSpins) continue;
        if (Clock::now() > deadline) return false;
        std::this_thread::yield();
      }
      turn.store(1 - mine, std::memory_order_release);
    }
    return true;
  }
};

/// Of those that this process may use.
std::pair<int, int> first_and_last_cpu() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  int first = -1, last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (first < 0) first = cpu;
    last = cpu;
  }
  return {first, last};
}

/// The calling thread. Left to the scheduler, two new threads may share a core for longer than they live.
void stay_on(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  sched_setaffinity(0, sizeof only, &only);
}

}  // namespace

Machine describe_machine() {
  return {.cpu = cpu_model(), .isa = adam::isa_name(adam::active_isa()), .cores = adam::Workers().threads()};
}

const char* pages_text(const Machine& machine) {
  if (!machine.huge_share) return "unknown";
  if (*machine.huge_share < 0.05) return "small";
  return *machine.huge_share > 0.95 ? "huge" : "partly huge";
}

std::optional<double> huge_page_share(size_t bytes) {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    size_t kib = 0;
    if (key == "AnonHugePages:" && file >> kib) return std::min(1.0, double(kib) * 1024 / double(bytes));
  }
  return std::nullopt;
}

std::optional<double> ping_pong_ns() {
  constexpr int kBatches = 20, kTimes = 100;
  const auto [first, last] = first_and_last_cpu();
  if (first == last) return std::nullopt;
  Ball ball;
  std::vector<double> batches;
  {
    std::jthread there([&ball, cpu = last] {
      stay_on(cpu);
      ball.bounce(1, (1 + kBatches) * kTimes);
    });
    std::jthread here([&ball, &batches, cpu = first] {
      stay_on(cpu);
      bool going = ball.bounce(0, kTimes);  // the other thread has started by then
      while (going && batches.size() < kBatches) {
        const Clock::time_point start = Clock::now();
        going = ball.bounce(0, kTimes);
        const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
        if (going) batches.push_back(taken.count() / (2 * kTimes));
      }
    });
  }
  if (batches.empty()) return std::nullopt;
  return quartiles_of(batches).median;
}

}  // namespace headrace::bench
