// SPDX-License-Identifier: Apache-2.0
// The order in which streams work, seen from outside. What happens after an error: stream_error_test.cpp.
#include "device/host_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "gate.h"

namespace headrace {
namespace {

TEST(HostStream, RunsTasksInTheOrderTheyWereEnqueued) {
  HostStream stream("test");
  std::vector<int> order;
  order.reserve(2000);
  for (int i = 0; i < 2000; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  stream.synchronize();
  std::vector<int> expected(2000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(HostStream, CopiesAndZeroesInStreamOrder) {
  HostStream stream("test");
  std::array<int, 4> a = {1, 2, 3, 4}, b = {9, 9, 9, 9}, c = {9, 9, 9, 9};
  stream.copy(b.data(), a.data(), sizeof(a));
  stream.zero(a.data(), 2 * sizeof(int));
  stream.copy(c.data(), a.data(), sizeof(a));
  stream.copy(nullptr, nullptr, 0);
  stream.synchronize();
  EXPECT_EQ(b, (std::array{1, 2, 3, 4}));
  EXPECT_EQ(c, (std::array{0, 0, 3, 4}));
}

TEST(HostStream, ReturnsBeforeTheTaskHasRun) {
  Gate gate;
  HostStream stream("test");
  bool ran = false;
  stream.enqueue(gate.task());
  stream.enqueue([&ran] { ran = true; });
  gate.wait_entered();
  EXPECT_FALSE(ran);
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(ran);
}

TEST(HostStream, WakesFromSleepForEveryTask) {
  HostStream stream("test");
  int ran = 0;
  for (int i = 1; i <= 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // well beyond the time it looks for work
    stream.enqueue([&ran] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // and so does who waits for it
      ++ran;
    });
    stream.synchronize();
    ASSERT_EQ(ran, i);
  }
}

TEST(HostStream, AFullQueueBlocksUntilThereIsRoom) {
  Gate gate;
  HostStream stream("test");
  std::atomic<size_t> enqueued{0};
  size_t ran = 0;
  stream.enqueue(gate.task());
  gate.wait_entered();
  constexpr size_t kTasks = 2 * HostStream::kQueueEntries;
  std::jthread producer([&] {
    for (size_t i = 0; i < kTasks; ++i) {
      stream.enqueue([&ran] { ++ran; });
      ++enqueued;
    }
  });
  while (enqueued < HostStream::kQueueEntries - 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // room for a wrong producer to go on
  EXPECT_EQ(enqueued, HostStream::kQueueEntries - 1);          // the task at the gate has the other entry
  gate.open();
  producer.join();
  stream.synchronize();
  EXPECT_EQ(ran, kTasks);
}

TEST(HostStream, DestroyingItFinishesTheWork) {
  int ran = 0;
  {
    HostStream stream("test");
    for (int i = 0; i < 300; ++i) stream.enqueue([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 300);
}

TEST(HostStream, ProducersMayTakeTurns) {
  HostStream stream("test");
  std::vector<int> order;
  for (int turn = 0; turn < 8; ++turn) {
    std::jthread([&] {
      for (int i = 0; i < 200; ++i)
        stream.enqueue([&order, value = turn * 200 + i] { order.push_back(value); });
    }).join();
  }
  stream.synchronize();
  ASSERT_EQ(order.size(), 1600u);
  for (int i = 0; i < 1600; ++i) ASSERT_EQ(order[size_t(i)], i);
}

struct DestroyedFlag {
  explicit DestroyedFlag(std::atomic<bool>* flag) : flag_(flag) {}
  DestroyedFlag(DestroyedFlag&& other) noexcept : flag_(std::exchange(other.flag_, nullptr)) {}
  ~DestroyedFlag() {
    if (flag_) *flag_ = true;
  }
  void operator()() const {}
  std::atomic<bool>* flag_;
};

TEST(HostStream, WhatATaskHoldsIsGoneWhenItIsDone) {
  HostStream stream("test");
  std::atomic<bool> destroyed{false};
  stream.enqueue(DestroyedFlag(&destroyed));
  stream.synchronize();
  EXPECT_TRUE(destroyed);
}

TEST(HostStreamDeathTest, ATaskThatWaitsForItsOwnStreamAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        HostStream stream("test");
        stream.enqueue([&stream] { stream.synchronize(); });
        stream.synchronize();
      },
      "waits for its own stream");
}

TEST(HostEvent, NeverRecordedCountsAsReached) {
  HostEvent event;
  HostStream stream("test");
  EXPECT_TRUE(event.reached());
  event.synchronize();
  stream.wait(event);
  stream.synchronize();
}

TEST(HostEvent, IsReachedWhenTheWorkBeforeItIsDone) {
  Gate first, second;
  HostStream stream("test");
  HostEvent event;
  stream.enqueue(first.task());
  stream.record(event);
  stream.enqueue(second.task());
  first.wait_entered();
  EXPECT_FALSE(event.reached());
  first.open();
  event.synchronize();  // returns although the stream stands at the second gate
  EXPECT_TRUE(event.reached());
  second.open();
  stream.synchronize();
}

TEST(HostEvent, RecordingAgainMovesItToTheNewPlace) {
  Gate gate;
  HostStream stream("test");
  HostEvent event;
  stream.record(event);
  EXPECT_TRUE(event.reached());
  stream.enqueue(gate.task());
  stream.record(event);
  EXPECT_FALSE(event.reached());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.reached());
}

TEST(HostEvent, RecordingAgainMayMoveItToAnotherStream) {
  Gate gate;
  HostStream stuck("stuck"), free("free");
  HostEvent event;
  stuck.enqueue(gate.task());
  stuck.record(event);
  free.record(event);
  EXPECT_TRUE(event.reached());
  gate.open();
}

TEST(HostStream, WaitHoldsBackLaterWorkOnly) {
  Gate gate;
  HostStream source("source"), dependent("dependent");
  HostEvent event, before;
  std::atomic<int> value{0};
  int early = -1, late = -1;
  source.enqueue(gate.task());
  source.enqueue([&value] { value = 7; });
  source.record(event);
  dependent.enqueue([&] { early = value; });
  dependent.record(before);
  dependent.wait(event);
  dependent.enqueue([&] { late = value; });
  before.synchronize();
  gate.open();
  dependent.synchronize();
  EXPECT_EQ(early, 0);
  EXPECT_EQ(late, 7);
}

TEST(HostStream, WaitMeansTheEventAsRecordedAtTheCall) {
  Gate first, second;
  HostStream source("source"), dependent("dependent");
  HostEvent event;
  source.enqueue(first.task());
  source.record(event);
  dependent.wait(event);
  source.enqueue(second.task());
  source.record(event);  // later: must not hold `dependent` back
  first.open();
  dependent.synchronize();  // hangs if the wait followed the event to its new place
  EXPECT_FALSE(event.reached());
  second.open();
  source.synchronize();
}

TEST(HostStream, AnEventMayGoWhileAStreamWaitsForItsMark) {
  Gate gate;
  HostStream source("source"), dependent("dependent");
  bool ran = false;
  {
    HostEvent event;
    source.enqueue(gate.task());
    source.record(event);
    dependent.wait(event);
  }
  dependent.enqueue([&ran] { ran = true; });
  gate.open();
  dependent.synchronize();
  EXPECT_TRUE(ran);
}

TEST(HostEvent, MayBeWaitedForFromAnyThread) {
  HostStream stream("test");
  HostEvent event;
  std::array<std::atomic<int>, 50> done{};
  std::atomic<int> round{-1};
  {
    std::vector<std::jthread> waiters;
    for (int t = 0; t < 4; ++t)
      waiters.emplace_back([&] {
        for (int seen = -1; seen < 49;) {
          seen = round;
          event.synchronize();
          // The event may have moved on meanwhile, never back.
          if (seen >= 0) {
            EXPECT_EQ(done[size_t(seen)], 1);
          }
        }
      });
    for (int i = 0; i < 50; ++i) {
      stream.enqueue([&done, i] {
        std::this_thread::sleep_for(std::chrono::microseconds(i % 3 * 50));
        done[size_t(i)] = 1;
      });
      stream.record(event);
      round = i;
    }
  }
  stream.synchronize();
}

TEST(HostStream, APipelineOfThreeStreamsKeepsEverySlotToItself) {
  // In and out through two slots, as swapping does: a value must come out doubled, once, in order.
  HostStream in("in"), work("work"), out("out");
  std::array<HostEvent, 2> filled, worked, emptied;
  std::array<int, 2> slot{};
  constexpr int kItems = 5000;
  std::vector<int> results;
  results.reserve(kItems);
  for (int i = 0; i < kItems; ++i) {
    const size_t s = size_t(i % 2);
    in.wait(emptied[s]);
    in.enqueue([&slot, s, i] { slot[s] = i; });
    in.record(filled[s]);
    work.wait(filled[s]);
    work.enqueue([&slot, s] { slot[s] *= 2; });
    work.record(worked[s]);
    out.wait(worked[s]);
    out.enqueue([&, s] { results.push_back(slot[s]); });
    out.record(emptied[s]);
  }
  out.synchronize();
  ASSERT_EQ(results.size(), size_t(kItems));
  for (int i = 0; i < kItems; ++i) ASSERT_EQ(results[size_t(i)], 2 * i);
  for (HostStream* stream : {&in, &work, &out}) stream->drain();
}

}  // namespace
}  // namespace headrace
