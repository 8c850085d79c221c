// SPDX-License-Identifier: Apache-2.0
#include "cli/rehearsal.h"

#include <fmt/format.h>
#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "cli/byte_text.h"
#include "headrace/error.h"
#include "nvme/probe.h"

namespace headrace::cli {
namespace {

constexpr unsigned kStreams = 3;          // compute, h2d, d2h
constexpr uint64_t kChunksPerStore = 9;   // buffers of the rare paths, see nvme/lane.cpp
constexpr uint64_t kAllElse = 128 << 20;  // libraries, heaps, rounding up to huge pages

/// Empty without a limit of the address space.
std::string address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return readable_bytes(double(limit.rlim_cur));
}

/// The C library gives each thread that allocates a heap of 64 MiB of address space of its own. Under a limit
/// these would take the room of what was rehearsed: a run's threads then share one heap. They allocate next
/// to nothing after the first step.
void share_one_heap() {
#ifdef M_ARENA_MAX
  if (!address_space_limit().empty()) ::mallopt(M_ARENA_MAX, 1);
#endif
}

/// Address space without pages; counts against RLIMIT_AS only.
class MappedSpace {
 public:
  explicit MappedSpace(uint64_t bytes) : bytes_(bytes) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (bytes > 0) begin_ = ::mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
    if (begin_ != MAP_FAILED) return;
    throw Error(
        fmt::format("out of host memory: the run takes {} of address space, more than the process may have; "
                    "raise its limit (ulimit -v, now {}), or lower offload.host_memory, device.memory, or "
                    "nvme.chunk_bytes and nvme.queue_depth",
                    readable_bytes(double(bytes)), address_space_limit()));
  }
  ~MappedSpace() {
    if (begin_) ::munmap(begin_, bytes_);
  }
  MappedSpace(const MappedSpace&) = delete;
  MappedSpace& operator=(const MappedSpace&) = delete;

 private:
  void* begin_ = nullptr;
  uint64_t bytes_;
};

/// The first pthread_exit of a process loads libgcc_s; where that fails for lack of memory, the C library
/// aborts. OpenMP ends its threads that way, so it happens here first.
void load_unwinder() {
  pthread_t thread{};
  const auto end = [](void*) -> void* { ::pthread_exit(nullptr); };
  if (::pthread_create(&thread, nullptr, end, nullptr) == 0) ::pthread_join(thread, nullptr);
}

/// How many of `wanted` threads can live at the same time.
unsigned startable_threads(unsigned wanted) {
  std::latch end(1);
  std::vector<std::jthread> threads;
  threads.reserve(wanted);
  try {
    while (threads.size() < wanted) threads.emplace_back([&end] { end.wait(); });
  } catch (const std::exception&) {
    // Counted below: the reason is a limit, whichever call met it.
  }
  end.count_down();
  return unsigned(threads.size());
}

}  // namespace

RunNeeds needs_of(const Plan& plan, const Config& config) {
  const auto team = unsigned(std::max(1, std::min(omp_get_max_threads(), omp_get_thread_limit())));
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned optimizer = config.engine.optimizer_threads;
  RunNeeds needs{.compute_threads = team - 1 + (optimizer == 0 ? cores : std::min(optimizer, cores)) - 1,
                 .other_threads = kStreams,
                 .memory_bytes = plan.total(Tier::device) + plan.total(Tier::host) + kAllElse};
  const NvmeOptions& nvme = config.engine.nvme;
  const auto stores = unsigned(std::count_if(plan.nvme_path_bytes.begin(), plan.nvme_path_bytes.end(),
                                             [](uint64_t bytes) { return bytes > 0; }));
  if (stores == 0) return needs;
  needs.other_threads += stores * nvme::store_thread_count(nvme.engine, nvme.queue_depth);
  needs.memory_bytes += stores * kChunksPerStore * nvme.chunk_bytes;
  return needs;
}

void rehearse(const RunNeeds& needs) {
  share_one_heap();
  load_unwinder();
  const MappedSpace space(needs.memory_bytes);
  const unsigned wanted = needs.compute_threads + needs.other_threads;
  const unsigned started = startable_threads(wanted);
  if (started == wanted) return;
  const std::string limit = address_space_limit();
  throw Error(fmt::format(
      "a run here has {} threads besides its first, {} of them for computing, but only {} can be started; "
      "raise the limit of processes (ulimit -u, or pids.max of a container){}, or lower OMP_NUM_THREADS or "
      "nvme.queue_depth",
      wanted, needs.compute_threads, started,
      limit.empty() ? "" : fmt::format(" or of the address space (ulimit -v, now {})", limit)));
}

}  // namespace headrace::cli
