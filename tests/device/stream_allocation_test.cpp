// SPDX-License-Identifier: Apache-2.0
// Streams and events allocate nothing once they are made. Every operator new of this test program is counted.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "device/device.h"

namespace {
std::atomic<size_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const size_t multiple = size_t(alignment);
  if (void* const memory = std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace headrace {
namespace {

TEST(StreamAllocation, IsCountedByThisProgram) {
  const size_t before = allocations.load();
  auto* volatile number = new int;  // volatile: the compiler may otherwise leave out the pair
  delete number;
  EXPECT_EQ(allocations.load(), before + 1);
}

TEST(StreamAllocation, AHundredThousandTasksAllocateNothing) {
  const auto device = make_device({.kind = DeviceOptions::Kind::host, .memory_bytes = 4096});
  const auto copied = device->make_event(), used = device->make_event();
  std::array<std::byte, 256> source{}, target{};
  size_t ran = 0;
  const size_t before = allocations.load();
  for (int i = 0; i < 25'000; ++i) {
    device->h2d().wait(*used);
    device->h2d().copy(target.data(), source.data(), source.size());
    device->h2d().record(*copied);
    device->compute().wait(*copied);
    device->compute().enqueue([&ran] { ++ran; });
    device->compute().record(*used);
    device->d2h().enqueue([] {});
    device->d2h().zero(source.data(), 0);
    device->d2h().enqueue([] {});
    if (i % 1000 == 0) used->synchronize();
  }
  device->compute().synchronize();
  device->d2h().synchronize();
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(ran, 25'000u);
}

}  // namespace
}  // namespace headrace
