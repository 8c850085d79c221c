// SPDX-License-Identifier: Apache-2.0
// Every mix reads and writes what it says: no loop that skips bytes may pass for the memory's roof.
#include "bench/stream_mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "bench/adam_state.h"

namespace headrace::bench {
namespace {

constexpr size_t kParams = adam::kTileElems * 3;

/// An array of the span, and the size of its elements.
struct Array {
  const char* name;
  const void* data;
  size_t elems, elem_bytes;

  /// How many elements are the same in another array of this shape.
  [[nodiscard]] size_t same_as(const std::byte* other) const {
    const auto* here = static_cast<const std::byte*>(data);
    size_t same = 0;
    for (size_t i = 0; i < elems * elem_bytes; i += elem_bytes) {
      same += std::memcmp(here + i, other + i, elem_bytes) == 0;
    }
    return same;
  }
};

/// The arrays that the variant's update writes; weights first.
std::vector<Array> written(const AdamVariant& variant, const adam::Span& s) {
  constexpr size_t kM[] = {4, 2, 2, 1}, kV[] = {4, 4, 2, 1};
  const auto moments = size_t(variant.format.moments);
  const Array all[] = {{"w", s.w, kParams, 4},
                       {"hi", s.hi, kParams, 2},
                       {"copy", s.copy, kParams, 2},
                       {"lo", s.lo, kParams, 2},
                       {"lo8", s.lo8, kParams, 1},
                       {"m", s.m, kParams, kM[moments]},
                       {"v", s.v, kParams, kV[moments]},
                       {"m_scale", s.m_scale, kParams / 64, 4},
                       {"v_scale", s.v_scale, kParams / 64, 4}};
  std::vector<Array> arrays;
  for (const Array& array : all)
    if (array.data) arrays.push_back(array);
  return arrays;
}

/// The state of a variant in memory that can be looked at as bytes.
struct Tested {
  explicit Tested(const AdamVariant& v)
      : memory(AdamState::bytes(v, kParams) + 64), state(v, kParams, begin(), workers) {}
  std::byte* begin() { return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64; }
  /// How far into the memory an array of the state is.
  [[nodiscard]] ptrdiff_t offset(const void* array) { return static_cast<const std::byte*>(array) - begin(); }

  std::vector<std::byte> memory;
  adam::Workers workers{2};
  AdamState state;
};

std::vector<StreamMix> all_mixes(const AdamVariant& variant) {
  std::vector<StreamMix> mixes;
  for (const adam::Isa isa : {adam::Isa::scalar, adam::Isa::avx2, adam::Isa::avx512}) {
    if (!adam::supported(isa)) continue;
    for (const StreamMix& mix : stream_mixes(isa, variant.format, variant.gradient)) mixes.push_back(mix);
  }
  return mixes;
}

class OfVariant : public ::testing::TestWithParam<AdamVariant> {};

TEST_P(OfVariant, EachMixChangesEveryElementThatTheUpdateWrites) {
  Tested tested(GetParam());
  const adam::Span& span = tested.state.flat();
  for (const StreamMix& mix : all_mixes(GetParam())) {
    // Else the copy would already be what a mix before this one made of the same weights.
    if (span.copy) std::memset(static_cast<void*>(span.copy), 0x55, kParams * sizeof(bf16));
    const std::vector<std::byte> old(tested.begin(), tested.memory.data() + tested.memory.size());
    run_mix(mix.run, GetParam().format, span, tested.workers);
    for (const Array& array : written(GetParam(), span)) {
      EXPECT_EQ(array.same_as(old.data() + tested.offset(array.data)), 0u) << mix.name << ": " << array.name;
    }
  }
}

TEST_P(OfVariant, EachMixReadsTheWholeGradientAndKeepsIt) {
  const size_t bytes = kParams * dtype_bytes(GetParam().gradient);
  Tested zeros(GetParam()), ones(GetParam());
  void* const gradient = zeros.begin() + zeros.offset(zeros.state.flat().grad.data);
  std::byte* const other = ones.begin() + zeros.offset(gradient);
  std::memset(gradient, 0x00, bytes);
  std::memset(other, 0xff, bytes);
  for (const StreamMix& mix : all_mixes(GetParam())) {
    std::memcpy(ones.begin(), zeros.begin(), size_t(zeros.offset(gradient)));
    run_mix(mix.run, GetParam().format, zeros.state.flat(), zeros.workers);
    run_mix(mix.run, GetParam().format, ones.state.flat(), ones.workers);
    const Array weights = written(GetParam(), zeros.state.flat())[0];
    EXPECT_EQ(weights.same_as(ones.begin() + zeros.offset(weights.data)), 0u) << mix.name;
    EXPECT_EQ(std::count(other, other + bytes, std::byte{0xff}), ptrdiff_t(bytes)) << mix.name;
  }
}

TEST_P(OfVariant, EachMixClaimsTheBytesOfTheUpdate) {
  const double bytes = adam::bytes_moved(GetParam().format, GetParam().gradient);
  for (const StreamMix& mix : all_mixes(GetParam())) EXPECT_DOUBLE_EQ(mix.bytes, bytes) << mix.name;
  EXPECT_GE(stream_mixes(GetParam().format, GetParam().gradient).size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Mixes, OfVariant,
                         ::testing::ValuesIn(adam_variants().begin(), adam_variants().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace headrace::bench
