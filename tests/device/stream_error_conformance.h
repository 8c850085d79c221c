// SPDX-License-Identifier: Apache-2.0
// An exception in a task, on every kind of device: who hears of it, and that nobody hangs. Instantiated like
// StreamConformance.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "gate.h"
#include "headrace/error.h"
#include "require_gpu.h"

namespace headrace {

inline Task throws(const char* message) {
  return [message] { throw DeviceError(message); };
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "none";
}

template <class Kind>
class StreamErrorConformance : public testing::Test {
 protected:
  void SetUp() override { HEADRACE_SKIP_UNLESS(Kind::available()); }
};

TYPED_TEST_SUITE_P(StreamErrorConformance);

TYPED_TEST_P(StreamErrorConformance, IsRethrownBySynchronizeEveryTime) {
  typename TypeParam::Stream stream("test");
  stream.enqueue(throws("bad"));
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "bad");
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "bad");
}

TYPED_TEST_P(StreamErrorConformance, SkipsLaterTasksAndKeepsTheFirstError) {
  typename TypeParam::Stream stream("test");
  int ran = 0;
  stream.enqueue([&ran] { ++ran; });
  stream.enqueue(throws("first"));
  stream.enqueue([&ran] { ++ran; });
  stream.enqueue(throws("second"));
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "first");
  EXPECT_EQ(ran, 1);
}

TYPED_TEST_P(StreamErrorConformance, ReachesEventsRecordedAfterItAndNotThoseBefore) {
  typename TypeParam::Stream stream("test");
  typename TypeParam::Event before, after, reused;
  stream.record(reused);
  stream.enqueue([] {});
  stream.record(before);
  stream.enqueue(throws("bad"));
  stream.enqueue([] {});
  stream.record(after);
  stream.record(reused);
  EXPECT_EQ(error_of([&] { after.synchronize(); }), "bad");
  EXPECT_TRUE(after.reached());
  EXPECT_EQ(error_of([&] { before.synchronize(); }), "none");
  EXPECT_EQ(error_of([&] { reused.synchronize(); }), "bad");
}

TYPED_TEST_P(StreamErrorConformance, PassesToStreamsThatWaitForIt) {
  Gate gate;
  typename TypeParam::Stream first("first"), second("second"), third("third");
  typename TypeParam::Event a, b, c;
  int ran = 0;
  first.enqueue(gate.task());
  first.enqueue(throws("bad"));
  first.record(a);
  second.wait(a);
  second.enqueue([&ran] { ++ran; });
  second.record(b);
  third.wait(b);
  third.enqueue([&ran] { ++ran; });
  third.record(c);
  gate.open();
  EXPECT_EQ(error_of([&] { c.synchronize(); }), "bad");
  EXPECT_EQ(error_of([&] { second.synchronize(); }), "bad");
  EXPECT_EQ(ran, 0);
}

TYPED_TEST_P(StreamErrorConformance, PassesToAStreamThatWaitsAfterItHappened) {
  typename TypeParam::Stream failed("failed"), later("later");
  typename TypeParam::Event event;
  failed.enqueue(throws("bad"));
  failed.record(event);
  EXPECT_EQ(error_of([&] { event.synchronize(); }), "bad");
  later.wait(event);
  EXPECT_EQ(error_of([&] { later.synchronize(); }), "bad");
}

TYPED_TEST_P(StreamErrorConformance, DoesNotPassThroughAnEventRecordedBeforeIt) {
  typename TypeParam::Stream failed("failed"), other("other");
  typename TypeParam::Event event;
  int ran = 0;
  failed.record(event);
  failed.enqueue(throws("bad"));
  EXPECT_EQ(error_of([&] { failed.synchronize(); }), "bad");
  other.wait(event);
  other.enqueue([&ran] { ++ran; });
  EXPECT_EQ(error_of([&] { other.synchronize(); }), "none");
  EXPECT_EQ(ran, 1);
}

TYPED_TEST_P(StreamErrorConformance, AFailedStreamStillWaitsForOthers) {
  // Its events must not be reached while a stream that it waits for is still at work on shared memory.
  Gate gate;
  typename TypeParam::Stream source("source"), failed("failed");
  typename TypeParam::Event event, end;
  source.enqueue(gate.task());
  source.record(event);
  failed.enqueue(throws("bad"));
  EXPECT_EQ(error_of([&] { failed.synchronize(); }), "bad");
  failed.wait(event);
  failed.record(end);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for a wrong stream to go on
  EXPECT_FALSE(end.reached());
  gate.open();
  EXPECT_EQ(error_of([&] { end.synchronize(); }), "bad");
}

TYPED_TEST_P(StreamErrorConformance, DoesNotBlockAFullQueueOrTheDestructor) {
  typename TypeParam::Stream stream("test");
  stream.enqueue(throws("bad"));
  int ran = 0;
  for (size_t i = 0; i < 3 * TypeParam::Stream::kQueueEntries; ++i) stream.enqueue([&ran] { ++ran; });
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "bad");
  EXPECT_EQ(ran, 0);
  stream.enqueue([&ran] { ++ran; });
}

TYPED_TEST_P(StreamErrorConformance, KeepsItsType) {
  typename TypeParam::Stream stream("test");
  stream.enqueue([] { throw OutOfMemory("host", 5, 3, "buy more"); });
  EXPECT_THROW(stream.synchronize(), OutOfMemory);
  typename TypeParam::Stream other("other");
  other.enqueue([] { throw 42; });
  EXPECT_THROW(other.synchronize(), int);
}

REGISTER_TYPED_TEST_SUITE_P(StreamErrorConformance, IsRethrownBySynchronizeEveryTime,
                            SkipsLaterTasksAndKeepsTheFirstError,
                            ReachesEventsRecordedAfterItAndNotThoseBefore, PassesToStreamsThatWaitForIt,
                            PassesToAStreamThatWaitsAfterItHappened,
                            DoesNotPassThroughAnEventRecordedBeforeIt, AFailedStreamStillWaitsForOthers,
                            DoesNotBlockAFullQueueOrTheDestructor, KeepsItsType);

}  // namespace headrace
