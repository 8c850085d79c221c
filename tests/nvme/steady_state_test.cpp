// SPDX-License-Identifier: Apache-2.0
// After the start nothing grows: memory, descriptors, threads and locked pages over ten thousand transfers.
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "engines.h"
#include "headrace/nvme.h"
#include "test_folder.h"

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

// Every allocation of this test program is counted. Not inlined: the compiler would pair malloc with delete.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace headrace::nvme::test {
namespace {

struct Resources {
  size_t descriptors = 0;
  size_t threads = 0;
  std::string locked;
  bool operator==(const Resources&) const = default;
};

void PrintTo(const Resources& r, std::ostream* out) {
  *out << r.descriptors << " descriptors, " << r.threads << " threads, " << r.locked;
}

Resources current_resources() {
  Resources now;
  now.descriptors = size_t(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    // The kernel's own helpers of a ring come and go with its load.
    if (!name.starts_with("iou-")) ++now.threads;
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck") || line.starts_with("VmPin")) now.locked += line + " ";
  }
  return now;
}

class SteadyState : public testing::TestWithParam<EngineKind> {};

INSTANTIATE_TEST_SUITE_P(Engines, SteadyState, testing::Values(EngineKind::io_uring, EngineKind::posix),
                         [](const auto& info) {
                           return std::string(info.param == EngineKind::posix ? "Posix" : "IoUring");
                         });

TEST_P(SteadyState, TenThousandTransfersLeaveEverythingFlat) {
  if (GetParam() == EngineKind::io_uring && !has_io_uring()) GTEST_SKIP() << "no io_uring here";
  const TestFolder folder;
  const Buffer arena(8 * 4096, 1);
  Store store({.path = folder.path(), .run_id = "", .queue_depth = 4, .engine = GetParam()});
  store.register_memory(arena.span());
  std::array<ExtentId, 8> ids{};
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = store.create("slot-" + std::to_string(i), 4096);
  const auto swap = [&](unsigned count) {
    for (unsigned n = 0; n < count; n += 16) {
      std::array<Request, 8> requests{};
      for (size_t i = 0; i < 8; ++i)
        requests[i] = store.write(ids[i], 0, arena.span().subspan(i * 4096, 4096));
      for (const Request& request : requests) store.wait(request);
      for (size_t i = 0; i < 8; ++i)
        requests[i] = store.read(ids[i], 0, arena.span().subspan(i * 4096, 4096));
      for (const Request& request : requests) store.wait(request);
    }
  };
  swap(160);
  const Resources before = current_resources();
  const uint64_t allocations_before = allocations;
  swap(10'000);
  const uint64_t allocations_after = allocations;
  EXPECT_EQ(allocations_after, allocations_before);
  EXPECT_EQ(current_resources(), before);
}

TEST(StoreLife, AStoreGivesBackAllItTook) {
  const TestFolder folder;
  const Buffer arena(1 << 20, 1);
  const auto use = [&] {
    Store store({.path = folder.path(), .run_id = ""});
    store.register_memory(arena.span());
    const ExtentId id = store.create("extent", 1 << 20);
    store.wait(store.write(id, 0, arena.span()));
  };
  use();
  const Resources before = current_resources();
  for (int i = 0; i < 20; ++i) use();
  EXPECT_EQ(current_resources(), before);
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace headrace::nvme::test
