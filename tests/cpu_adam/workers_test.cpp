// SPDX-License-Identifier: Apache-2.0
// Where workers run: how many there are, and on which CPUs.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <vector>

#include "cpu_adam/cpu_order.h"
#include "headrace/adam.h"

namespace headrace::adam {
namespace {

// Two nodes of two cores with two threads each, numbered as Linux does: cores first, then their second
// threads.
TEST(PinningOrder, TakesEveryCoreBeforeASecondThreadOfAnyAndNodesOneAfterTheOther) {
  const std::vector<CpuPlace> places = {{0, 0, 0}, {1, 1, 1}, {2, 0, 2}, {3, 1, 3},
                                        {4, 0, 0}, {5, 1, 1}, {6, 0, 2}, {7, 1, 3}};
  EXPECT_EQ(pinning_order(places), (std::vector<int>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(PinningOrder, TakesWhatThereIsOfPartlyAllowedCores) {
  EXPECT_EQ(pinning_order({{5, 0, 1}, {1, 0, 1}, {4, 0, 0}}), (std::vector<int>{4, 1, 5}));
  EXPECT_TRUE(pinning_order({}).empty());
}

std::set<int> cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::set<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  return cpus;
}

TEST(AllowedCpus, AreThoseOfThisThread) {
  std::set<int> found;
  for (const CpuPlace& place : allowed_cpus()) found.insert(place.cpu);
  EXPECT_EQ(found, cpus_of_this_thread());
}

TEST(Workers, ArePinnedToOneCpuEachWhileTheyWorkAndFreeAfterwards) {
  const std::set<int> before = cpus_of_this_thread();
  Workers workers(0, true);
  std::atomic<int> jobs = 0;
  std::set<int> cpus;
  std::mutex mutex;
  workers.for_each(size_t(workers.threads()), [&](size_t) {
    const std::set<int> mine = cpus_of_this_thread();
    const std::lock_guard lock(mutex);
    EXPECT_EQ(mine.size(), 1u);
    cpus.insert(mine.begin(), mine.end());
    ++jobs;
  });
  EXPECT_EQ(jobs, workers.threads());
  EXPECT_TRUE(std::ranges::includes(before, cpus));
  EXPECT_EQ(cpus_of_this_thread(), before);
}

TEST(Workers, AreNotPinnedUnlessAsked) {
  Workers workers(0);
  const std::set<int> before = cpus_of_this_thread();
  workers.for_each(size_t(workers.threads()), [&](size_t) { EXPECT_EQ(cpus_of_this_thread(), before); });
}

[[noreturn]] void count_workers() {
  setenv("OMP_NUM_THREADS", "1", 1);
  std::exit(Workers(0).threads());
}

// A launcher sets it for its own reasons; one thread would make the update as slow.
TEST(WorkersDeathTest, DoNotMindOmpNumThreads) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const int cpus = int(allowed_cpus().size());
  EXPECT_EXIT(count_workers(), ::testing::ExitedWithCode(cpus), "");
}

}  // namespace
}  // namespace headrace::adam
