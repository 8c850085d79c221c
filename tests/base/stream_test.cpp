// SPDX-License-Identifier: Apache-2.0
#include "headrace/stream.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

struct CountsLife {
  explicit CountsLife(int* alive) : alive_(alive) { ++*alive_; }
  CountsLife(CountsLife&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  ~CountsLife() { --*alive_; }
  void operator()() const {}
  int* alive_;
};

TEST(Task, DestroysItsCapturesOnce) {
  int alive = 0;
  {
    Task a{CountsLife(&alive)};
    EXPECT_EQ(alive, 1);
    Task b = std::move(a);
    EXPECT_FALSE(a);  // NOLINT: the moved-from state is part of the contract
    EXPECT_TRUE(b);
    Task c;
    c = std::move(b);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Task, CallsWhatItHolds) {
  int calls = 0;
  Task task = [&calls] { ++calls; };
  task();
  task();
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace headrace
