// SPDX-License-Identifier: Apache-2.0
// The host link: copies through a device's streams from and to memory that it pinned, in pieces of a unit's
// size, beside one long copy from memory of cudaHostAlloc (what the link can do) and from pageable memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <vector>

#include "kernels/cuda/check.h"
#include "measure.h"

namespace headrace::bench {
namespace {

using cuda::check;
constexpr size_t kBytes = size_t(1) << 30, kPieceBytes = size_t(32) << 20;

/// Median GB/s of `bytes` moved by a call that returns when they have.
double gb_per_s(size_t bytes, const std::function<void()>& call) {
  std::array<double, 5> rates{};
  call();
  for (double& rate : rates) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    rate = 1e-9 * double(bytes) /
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

void copy_pieces(Stream& stream, void* to, const void* from) {
  for (size_t at = 0; at < kBytes; at += kPieceBytes)
    stream.copy(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at, kPieceBytes);
}

/// Page-locked memory the usual way.
class LockedMemory {
 public:
  LockedMemory() { check(cudaHostAlloc(&data_, kBytes, cudaHostAllocDefault), "page-locked memory"); }
  ~LockedMemory() { cudaFreeHost(data_); }
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace

Json bench_copies(Bench&) {
  const Operand down(DType::bf16, int64_t(kBytes / 2)), up(DType::bf16, int64_t(kBytes / 2));
  HostMemory pinned_down(kBytes), pinned_up(kBytes);
  // A device of this section's own, which lets go of the memory before that goes.
  const auto own = make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = 1u << 20});
  Device& device = *own;
  device.pin(pinned_down.bytes());
  device.pin(pinned_up.bytes());
  const LockedMemory locked;
  std::vector<std::byte> pageable(kBytes, std::byte{1});
  const auto raw = [](void* to, const void* from, cudaMemcpyKind kind) {
    return [=] { check(cudaMemcpy(to, from, kBytes, kind), "a copy"); };
  };
  const auto h2d = [&] { copy_pieces(device.h2d(), down.data(), pinned_down.bytes().data()); };
  const auto d2h = [&] { copy_pieces(device.d2h(), pinned_up.bytes().data(), up.data()); };

  Json results = Json::array();
  const auto add = [&](const char* what, double rate, double link) {
    Json row = {{"what", what}, {"gb_per_s", rate}};
    if (link > 0) row["of_link"] = rate / link;
    results.push_back(row);
  };
  const double link_h2d = gb_per_s(kBytes, raw(down.data(), locked.data(), cudaMemcpyHostToDevice));
  const double link_d2h = gb_per_s(kBytes, raw(locked.data(), up.data(), cudaMemcpyDeviceToHost));
  add("link h2d (one cudaMemcpy)", link_h2d, 0);
  add("link d2h (one cudaMemcpy)", link_d2h, 0);
  add("copy_h2d", gb_per_s(kBytes, [&] { h2d(), device.h2d().synchronize(); }), link_h2d);
  add("copy_d2h", gb_per_s(kBytes, [&] { d2h(), device.d2h().synchronize(); }), link_d2h);
  const double both = gb_per_s(2 * kBytes, [&] {
    h2d(), d2h();
    device.h2d().synchronize(), device.d2h().synchronize();
  });
  add("copy_h2d and copy_d2h at once, together", both, 0);
  add("pageable h2d", gb_per_s(kBytes, raw(down.data(), pageable.data(), cudaMemcpyHostToDevice)), 0);
  add("pageable d2h", gb_per_s(kBytes, raw(pageable.data(), up.data(), cudaMemcpyDeviceToHost)), 0);
  return results;
}

}  // namespace headrace::bench
