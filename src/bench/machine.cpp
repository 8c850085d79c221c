// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

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

/// Far longer than a cache line takes. Beyond, the other thread must be waiting for a core: on a busy machine
/// spinning would keep it from this one for a time slice at each turn.
constexpr int kSpins = 2000;

/// Waits until `turn` is `mine` and passes it on, `times` times.
void bounce(std::atomic<int>& turn, int mine, int times) {
  for (int i = 0; i < times; ++i) {
    for (int spins = 0; turn.load(std::memory_order_acquire) != mine; ++spins) {
      if (spins > kSpins) std::this_thread::yield();
    }
    turn.store(1 - mine, std::memory_order_release);
  }
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

double ping_pong_ns() {
  constexpr int kWarmUp = 200, kTimes = 2000;
  alignas(128) std::atomic<int> turn = 0;
  std::jthread other([&turn] { bounce(turn, 1, kWarmUp + kTimes); });
  bounce(turn, 0, kWarmUp);  // the other thread has started by then
  const auto start = std::chrono::steady_clock::now();
  bounce(turn, 0, kTimes);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / (2 * kTimes);
}

}  // namespace headrace::bench
