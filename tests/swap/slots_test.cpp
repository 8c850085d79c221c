// SPDX-License-Identifier: Apache-2.0
#include "swap/slots.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "headrace/error.h"
#include "tests/temp_dir.h"

namespace headrace {
namespace {

constexpr size_t kSlotBytes = size_t{1} << 20;

struct SlotPoolTest : testing::Test {
  SlotPoolTest()
      : device(make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = 1 << 20})),
        memory(2 * kSlotBytes),
        store({.path = dir.path()}),
        pool(*device, clock, memory.bytes().data(), 2, kSlotBytes) {
    store.register_memory(memory.bytes());
  }
  test::TempDir dir;
  std::unique_ptr<Device> device;
  HostMemory memory;
  WaitClock clock;
  nvme::Store store;
  SlotPool pool;
};

TEST_F(SlotPoolTest, A64MiBTensorPassesThroughTwo1MiBSlots) {
  constexpr size_t kBytes = size_t{64} << 20;
  const Place place{.tier = Tier::nvme, .store = &store, .extent = store.create("tensor", kBytes)};
  std::vector<uint32_t> out(kBytes / 4), back(kBytes / 4);
  std::iota(out.begin(), out.end(), 7u);

  for (size_t at = 0; at < kBytes; at += kSlotBytes) {
    const size_t slot = pool.acquire();
    device->d2h().copy(pool.data(slot), reinterpret_cast<std::byte*>(out.data()) + at, kSlotBytes);
    pool.write_back_after(slot, device->d2h(), place, at, kSlotBytes);
  }
  pool.drain();
  for (size_t at = kBytes; at > 0;) {  // any order: here from the end
    at -= kSlotBytes;
    const size_t slot = pool.acquire();
    store.wait(store.read(place.extent, at, {pool.data(slot), kSlotBytes}));
    device->h2d().copy(reinterpret_cast<std::byte*>(back.data()) + at, pool.data(slot), kSlotBytes);
    pool.give_back_after(slot, device->h2d());
  }
  pool.drain();
  EXPECT_EQ(std::memcmp(out.data(), back.data(), kBytes), 0);
}

TEST_F(SlotPoolTest, TryAcquireSaysNoWhenAllAreHeld) {
  size_t slot = 0;
  (void)pool.acquire();
  (void)pool.acquire();
  EXPECT_FALSE(pool.try_acquire(slot));
}

TEST_F(SlotPoolTest, ASlotIsNotHandedOutBeforeItsCopyHasRun) {
  const size_t slot = pool.acquire();
  std::atomic<bool> go = false;
  device->h2d().enqueue([&go] { go.wait(false); });
  pool.give_back_after(slot, device->h2d());
  size_t other = 0, third = 0;
  ASSERT_TRUE(pool.try_acquire(other));
  EXPECT_NE(other, slot);
  EXPECT_FALSE(pool.try_acquire(third));
  go = true;
  go.notify_all();
  EXPECT_EQ(pool.acquire(), slot);
}

TEST_F(SlotPoolTest, AFailedWriteReachesTheCallerAndFreesTheSlot) {
  const Place place{.tier = Tier::nvme, .store = &store, .extent = store.create("short", kSlotBytes)};
  const size_t slot = pool.acquire();
  device->d2h().enqueue([] { throw Error("the copy failed"); });
  pool.write_back_after(slot, device->d2h(), place, 0, kSlotBytes);
  EXPECT_THROW(pool.drain(), Error);
  pool.drain();  // nothing is left in flight
  EXPECT_EQ(pool.acquire(), slot);
}

TEST_F(SlotPoolTest, DrainWithNothingInFlightReturnsAtOnce) {
  pool.drain();
}

}  // namespace
}  // namespace headrace
