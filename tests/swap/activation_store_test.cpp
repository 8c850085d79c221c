// SPDX-License-Identifier: Apache-2.0
#include "swap/activation_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/temp_dir.h"

namespace headrace {
namespace {

/// One area on each tier. Sizes are odd on purpose.
class ActivationTiers : public testing::TestWithParam<Tier> {
 protected:
  static constexpr uint64_t kBytes = (200u << 10) + 36;
  static constexpr uint32_t kCount = 9, kDeviceSlots = 3;

  ActivationTiers()
      : device(make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = 8u << 20})),
        memory(8u << 20),
        host("host", "raise it", memory.bytes()),
        store({.path = dir.path()}),
        slots(*device, clock, host.take(4 * (128u << 10), 4096, "slots"), 4, 128u << 10),
        area(ActivationStore::Parts{*device, clock, place(), kBytes, kCount, kDeviceSlots, &slots},
             device->memory()) {}

  Place place() {
    const uint64_t total = kCount * ActivationStore::stride(kBytes, GetParam());
    Place place{.tier = GetParam()};
    if (GetParam() == Tier::device) place.memory = device->memory().take(total, 4096, "all");
    if (GetParam() == Tier::host) place.memory = host.take(total, 4096, "all");
    if (GetParam() == Tier::nvme) {
      place.store = &store;
      place.extent = store.create("activations", total);
    }
    return place;
  }

  void write(uint32_t index, int value) {
    std::byte* y = area.create(index);
    device->compute().enqueue([=] { std::memset(y, value, kBytes); });
    area.keep(index);
    area.done(index);
  }

  /// First and last byte as the compute stream sees them.
  std::pair<int, int> read(uint32_t index) {
    const std::byte* x = area.fetch(index);
    std::pair<int, int> seen;
    device->compute().enqueue([x, &seen] { seen = {int(x[0]), int(x[kBytes - 1])}; });
    device->compute().synchronize();
    area.done(index);
    return seen;
  }

  test::TempDir dir;
  std::unique_ptr<Device> device;
  HostMemory memory;
  Arena host;
  nvme::Store store;
  WaitClock clock;
  SlotPool slots;
  ActivationStore area;
};

TEST_P(ActivationTiers, ComeBackInReverseOrder) {
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) write(i, int(i) + 10 * round + 1);
    for (uint32_t i = kCount; i-- > 0;) {
      const int value = int(i) + 10 * round + 1;
      ASSERT_EQ(read(i), std::pair(value, value)) << "checkpoint " << i << ", round " << round;
      area.drop(i);
    }
  }
}

TEST_P(ActivationTiers, ComeBackInTheOrderOfForward) {
  for (uint32_t i = 0; i < kCount; ++i) write(i, int(i) + 1);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(read(i), std::pair(int(i) + 1, int(i) + 1));
}

TEST_P(ActivationTiers, OverwritingBeforeDropShowsTheNewContents) {
  write(4, 1);
  write(4, 2);
  for (uint32_t i = 5; i < kCount; ++i) write(i, 9);
  EXPECT_EQ(read(4), std::pair(2, 2));
}

INSTANTIATE_TEST_SUITE_P(Every, ActivationTiers, testing::Values(Tier::device, Tier::host, Tier::nvme),
                         [](const auto& test) { return tier_name(test.param); });

}  // namespace
}  // namespace headrace
