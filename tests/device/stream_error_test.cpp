// SPDX-License-Identifier: Apache-2.0
// An exception in a task: who hears of it, and that nobody hangs.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "device/host_stream.h"
#include "gate.h"
#include "headrace/error.h"

namespace headrace {
namespace {

Task throws(const char* message) {
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

TEST(StreamError, IsRethrownBySynchronizeEveryTime) {
  HostStream stream("test");
  stream.enqueue(throws("bad"));
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "bad");
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "bad");
}

TEST(StreamError, SkipsLaterTasksAndKeepsTheFirstError) {
  HostStream stream("test");
  int ran = 0;
  stream.enqueue([&ran] { ++ran; });
  stream.enqueue(throws("first"));
  stream.enqueue([&ran] { ++ran; });
  stream.enqueue(throws("second"));
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "first");
  EXPECT_EQ(ran, 1);
}

TEST(StreamError, ReachesEventsRecordedAfterItAndNotThoseBefore) {
  HostStream stream("test");
  HostEvent before, after, reused;
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

TEST(StreamError, PassesToStreamsThatWaitForIt) {
  Gate gate;
  HostStream first("first"), second("second"), third("third");
  HostEvent a, b, c;
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

TEST(StreamError, PassesToAStreamThatWaitsAfterItHappened) {
  HostStream failed("failed"), later("later");
  HostEvent event;
  failed.enqueue(throws("bad"));
  failed.record(event);
  EXPECT_EQ(error_of([&] { event.synchronize(); }), "bad");
  later.wait(event);
  EXPECT_EQ(error_of([&] { later.synchronize(); }), "bad");
}

TEST(StreamError, DoesNotPassThroughAnEventRecordedBeforeIt) {
  HostStream failed("failed"), other("other");
  HostEvent event;
  int ran = 0;
  failed.record(event);
  failed.enqueue(throws("bad"));
  EXPECT_EQ(error_of([&] { failed.synchronize(); }), "bad");
  other.wait(event);
  other.enqueue([&ran] { ++ran; });
  EXPECT_EQ(error_of([&] { other.synchronize(); }), "none");
  EXPECT_EQ(ran, 1);
}

TEST(StreamError, AFailedStreamStillWaitsForOthers) {
  // Its events must not be reached while a stream that it waits for is still at work on shared memory.
  Gate gate;
  HostStream source("source"), failed("failed");
  HostEvent event, end;
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

TEST(StreamError, DoesNotBlockAFullQueueOrTheDestructor) {
  HostStream stream("test");
  stream.enqueue(throws("bad"));
  int ran = 0;
  for (size_t i = 0; i < 3 * HostStream::kQueueEntries; ++i) stream.enqueue([&ran] { ++ran; });
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "bad");
  EXPECT_EQ(ran, 0);
  stream.enqueue([&ran] { ++ran; });
}

TEST(StreamError, KeepsItsType) {
  HostStream stream("test");
  stream.enqueue([] { throw OutOfMemory("host", 5, 3, "buy more"); });
  EXPECT_THROW(stream.synchronize(), OutOfMemory);
  HostStream other("other");
  other.enqueue([] { throw 42; });
  EXPECT_THROW(other.synchronize(), int);
}

}  // namespace
}  // namespace headrace
