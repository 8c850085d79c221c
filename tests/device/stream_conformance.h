// SPDX-License-Identifier: Apache-2.0
// The order in which streams work, seen from outside, for every kind of device. An implementation
// instantiates the suite with a Kind type:
//   using Stream, Event;                 a Stream is made from a name
//   static constexpr bool kTasksRunSideBySide;   tasks of two streams may both be running
//   static bool available();             false: the machine has no such device
// What happens after an error: stream_error_conformance.h.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "gate.h"
#include "require_gpu.h"

namespace headrace {

struct DestroyedFlag {
  explicit DestroyedFlag(std::atomic<bool>* flag) : flag_(flag) {}
  DestroyedFlag(DestroyedFlag&& other) noexcept : flag_(std::exchange(other.flag_, nullptr)) {}
  ~DestroyedFlag() {
    if (flag_) *flag_ = true;
  }
  void operator()() const {}
  std::atomic<bool>* flag_;
};

template <class Kind>
class StreamConformance : public testing::Test {
 protected:
  void SetUp() override { HEADRACE_SKIP_UNLESS(Kind::available()); }
};

TYPED_TEST_SUITE_P(StreamConformance);

TYPED_TEST_P(StreamConformance, RunsTasksInTheOrderTheyWereEnqueued) {
  typename TypeParam::Stream stream("test");
  std::vector<int> order;
  order.reserve(2000);
  for (int i = 0; i < 2000; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  stream.synchronize();
  std::vector<int> expected(2000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TYPED_TEST_P(StreamConformance, ReturnsBeforeTheTaskHasRun) {
  Gate gate;
  typename TypeParam::Stream stream("test");
  bool ran = false;
  stream.enqueue(gate.task());
  stream.enqueue([&ran] { ran = true; });
  gate.wait_entered();
  EXPECT_FALSE(ran);
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(ran);
}

TYPED_TEST_P(StreamConformance, WakesFromSleepForEveryTask) {
  typename TypeParam::Stream stream("test");
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

TYPED_TEST_P(StreamConformance, AFullQueueBlocksUntilThereIsRoom) {
  Gate gate;
  typename TypeParam::Stream stream("test");
  std::atomic<size_t> enqueued{0};
  size_t ran = 0;
  stream.enqueue(gate.task());
  gate.wait_entered();
  constexpr size_t kTasks = 2 * TypeParam::Stream::kQueueEntries;
  std::jthread producer([&] {
    for (size_t i = 0; i < kTasks; ++i) {
      stream.enqueue([&ran] { ++ran; });
      ++enqueued;
    }
  });
  while (enqueued < TypeParam::Stream::kQueueEntries - 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // room for a wrong producer to go on
  EXPECT_EQ(enqueued, TypeParam::Stream::kQueueEntries - 1);   // the task at the gate has the other entry
  gate.open();
  producer.join();
  stream.synchronize();
  EXPECT_EQ(ran, kTasks);
}

TYPED_TEST_P(StreamConformance, DestroyingItFinishesTheWork) {
  int ran = 0;
  {
    typename TypeParam::Stream stream("test");
    for (int i = 0; i < 300; ++i) stream.enqueue([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 300);
}

TYPED_TEST_P(StreamConformance, ProducersMayTakeTurns) {
  typename TypeParam::Stream stream("test");
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

TYPED_TEST_P(StreamConformance, WhatATaskHoldsIsGoneWhenItIsDone) {
  typename TypeParam::Stream stream("test");
  std::atomic<bool> destroyed{false};
  stream.enqueue(DestroyedFlag(&destroyed));
  stream.synchronize();
  EXPECT_TRUE(destroyed);
}

TYPED_TEST_P(StreamConformance, AnEventNeverRecordedCountsAsReached) {
  typename TypeParam::Event event;
  typename TypeParam::Stream stream("test");
  EXPECT_TRUE(event.reached());
  event.synchronize();
  stream.wait(event);
  stream.synchronize();
}

TYPED_TEST_P(StreamConformance, AnEventIsReachedWhenTheWorkBeforeItIsDone) {
  Gate first, second;
  typename TypeParam::Stream stream("test");
  typename TypeParam::Event event;
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

TYPED_TEST_P(StreamConformance, AnEventRecordingAgainMovesItToTheNewPlace) {
  Gate gate;
  typename TypeParam::Stream stream("test");
  typename TypeParam::Event event;
  stream.record(event);
  event.synchronize();
  EXPECT_TRUE(event.reached());
  stream.enqueue(gate.task());
  stream.record(event);
  EXPECT_FALSE(event.reached());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.reached());
}

TYPED_TEST_P(StreamConformance, AnEventRecordingAgainMayMoveItToAnotherStream) {
  Gate gate;
  typename TypeParam::Stream stuck("stuck"), free("free");
  typename TypeParam::Event event;
  stuck.enqueue(gate.task());
  stuck.record(event);
  free.record(event);
  event.synchronize();  // returns although the other stream is stuck
  EXPECT_TRUE(event.reached());
  gate.open();
}

TYPED_TEST_P(StreamConformance, WaitHoldsBackLaterWorkOnly) {
  if (!TypeParam::kTasksRunSideBySide) GTEST_SKIP() << "tasks of different streams run one at a time here";
  Gate gate;
  typename TypeParam::Stream source("source"), dependent("dependent");
  typename TypeParam::Event event, before;
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

TYPED_TEST_P(StreamConformance, WaitMeansTheEventAsRecordedAtTheCall) {
  Gate first, second;
  typename TypeParam::Stream source("source"), dependent("dependent");
  typename TypeParam::Event event;
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

TYPED_TEST_P(StreamConformance, AnEventMayGoWhileAStreamWaitsForItsMark) {
  Gate gate;
  typename TypeParam::Stream source("source"), dependent("dependent");
  bool ran = false;
  {
    typename TypeParam::Event event;
    source.enqueue(gate.task());
    source.record(event);
    dependent.wait(event);
  }
  dependent.enqueue([&ran] { ran = true; });
  gate.open();
  dependent.synchronize();
  EXPECT_TRUE(ran);
}

TYPED_TEST_P(StreamConformance, AnEventMayBeWaitedForFromAnyThread) {
  typename TypeParam::Stream stream("test");
  typename TypeParam::Event event;
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

TYPED_TEST_P(StreamConformance, APipelineOfThreeStreamsKeepsEverySlotToItself) {
  // In and out through two slots, as swapping does: a value must come out doubled, once, in order.
  typename TypeParam::Stream in("in"), work("work"), out("out");
  std::array<typename TypeParam::Event, 2> filled, worked, emptied;
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
  for (typename TypeParam::Stream* stream : {&in, &work, &out}) stream->drain();
}

REGISTER_TYPED_TEST_SUITE_P(StreamConformance, RunsTasksInTheOrderTheyWereEnqueued,
                            ReturnsBeforeTheTaskHasRun, WakesFromSleepForEveryTask,
                            AFullQueueBlocksUntilThereIsRoom, DestroyingItFinishesTheWork,
                            ProducersMayTakeTurns, WhatATaskHoldsIsGoneWhenItIsDone,
                            AnEventNeverRecordedCountsAsReached, AnEventIsReachedWhenTheWorkBeforeItIsDone,
                            AnEventRecordingAgainMovesItToTheNewPlace,
                            AnEventRecordingAgainMayMoveItToAnotherStream, WaitHoldsBackLaterWorkOnly,
                            WaitMeansTheEventAsRecordedAtTheCall, AnEventMayGoWhileAStreamWaitsForItsMark,
                            AnEventMayBeWaitedForFromAnyThread,
                            APipelineOfThreeStreamsKeepsEverySlotToItself);

}  // namespace headrace
