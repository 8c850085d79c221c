// SPDX-License-Identifier: Apache-2.0
#include "nvme/probe.h"

#include "headrace/nvme.h"
#include "test_folder.h"

namespace headrace::nvme::test {
namespace {

TEST(Probe, APathIsDescribedAndNothingIsLeftInIt) {
  const TestFolder folder;
  const PathSupport support = probe_path(folder.path());
  EXPECT_TRUE(support.writable) << support.reason;
  EXPECT_FALSE(support.file_system.empty());
  EXPECT_GT(support.free_bytes, 0u);
  if (support.direct.available) {
    EXPECT_GT(support.direct.memory_alignment, 0u);
    EXPECT_GT(support.direct.offset_alignment, 0u);
  } else {
    EXPECT_FALSE(support.direct.reason.empty());
  }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(Probe, AMissingPathSaysWhy) {
  const PathSupport support = probe_path("/nonexistent/headrace");
  EXPECT_FALSE(support.writable);
  EXPECT_EQ(support.reason, "No such file or directory");
}

TEST(Probe, AFileSystemWithoutWritesSaysWhy) {
  const PathSupport support = probe_path("/proc");
  EXPECT_FALSE(support.writable);
  EXPECT_FALSE(support.direct.available);
  EXPECT_FALSE(support.direct.reason.empty());
}

TEST(Probe, IoUringIsEitherThereOrExplained) {
  const IoUringSupport support = probe_io_uring();
  EXPECT_EQ(support.available, support.error_code == 0);
  EXPECT_EQ(support.available, support.reason.empty());
}

TEST(Probe, TheStorePicksWhatTheProbeFound) {
  const TestFolder folder;
  const Store store({.path = folder.path(), .run_id = ""});
  const bool ring = probe_io_uring().available;
  EXPECT_EQ(store.engine(), ring ? EngineKind::io_uring : EngineKind::posix);
  const bool all = ring && probe_path(folder.path()).direct.available;
  EXPECT_EQ(store.engine_note().empty(), all) << store.engine_note();
}

TEST(StoreThreads, AreAPairOfRingsOrAPairOfPools) {
  EXPECT_EQ(store_thread_count(EngineKind::io_uring, 64), 2u);
  EXPECT_EQ(store_thread_count(EngineKind::posix, 4), 8u);
  EXPECT_EQ(store_thread_count(EngineKind::posix, 64), 32u);  // pools have at most 16 threads
}

}  // namespace
}  // namespace headrace::nvme::test
