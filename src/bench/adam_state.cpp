// SPDX-License-Identifier: Apache-2.0
#include "bench/adam_state.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "headrace/error.h"

namespace headrace::bench {
namespace {

using adam::kBlockElems, adam::kTileElems;

constexpr float kWeight = 0.02f, kM = 1e-5f, kV = 1e-8f;
constexpr unsigned kGradPeriod = 1000;

/// What an element of an array starts as; its low bytes count.
uint32_t start_value(const adam::ArrayInfo& info) {
  const SplitMaster split = split_master(kWeight);
  const auto number = [&](float x) {
    return info.bytes == 2 ? uint32_t(to_bf16(x)) : std::bit_cast<uint32_t>(x);
  };
  switch (info.array) {
    case adam::Array::w:
    case adam::Array::copy:
      return number(kWeight);
    case adam::Array::hi:
      return uint32_t(split.hi);
    case adam::Array::lo:
      return split.lo;
    case adam::Array::lo8:
      return uint32_t(split.lo) >> 8;
    case adam::Array::m:
      return info.bytes == 1 ? 127 : number(kM);
    case adam::Array::v:
      return info.bytes == 1 ? 255 : number(kV);
    case adam::Array::m_scale:
      return number(kM);
    case adam::Array::v_scale:
      return number(kV);
  }
  return 0;
}

void fill(std::byte* array, const adam::ArrayInfo& info, size_t count, adam::Workers& workers) {
  const size_t items = info.bytes_for(count) / info.bytes, parts = size_t(workers.threads());
  const uint32_t value = start_value(info);
  workers.for_each(parts, [&](size_t k) {
    for (size_t i = items * k / parts; i < items * (k + 1) / parts; ++i)
      std::memcpy(array + i * info.bytes, &value, info.bytes);
  });
}

void fill_gradient(DType dtype, std::byte* array, size_t count, adam::Workers& workers) {
  workers.for_each(count / kTileElems, [&](size_t tile) {
    for (size_t i = tile * kTileElems; i < (tile + 1) * kTileElems; ++i) {
      const float g = (float(i % kGradPeriod) - 499.5f) * 1e-6f;
      const bf16 narrow = to_bf16(g);
      if (dtype == DType::f32) std::memcpy(array + i * sizeof g, &g, sizeof g);
      if (dtype == DType::bf16) std::memcpy(array + i * sizeof narrow, &narrow, sizeof narrow);
    }
  });
}

}  // namespace

size_t AdamState::bytes(const AdamVariant& variant, size_t params) {
  size_t bytes = params * dtype_bytes(variant.gradient);
  for (const adam::ArrayInfo& info : adam::ArrayList(variant.format)) bytes += info.bytes_for(params);
  return bytes;
}

AdamState::AdamState(const AdamVariant& variant, size_t params, std::byte* memory, adam::Workers& workers)
    : variant_(&variant) {
  static_assert(std::endian::native == std::endian::little, "fill() copies the low bytes");
  HEADRACE_CHECK(params % kTileElems == 0, "states have whole tiles");
  span_.count = params;
  for (const adam::ArrayInfo& info : adam::ArrayList(variant.format)) {
    span_.set_array(info.array, memory);
    fill(memory, info, params, workers);
    memory += info.bytes_for(params);
  }
  span_.grad = {memory, variant.gradient};
  fill_gradient(variant.gradient, memory, params, workers);
}

std::vector<adam::ScaledSpan> AdamState::tensors(size_t tensor_elems,
                                                 const adam::StepScalars& scalars) const {
  // 64 elements of 8-bit arrays and 16 blocks' scales are 64 bytes: consecutive parts are aligned as they
  // are.
  HEADRACE_CHECK(tensor_elems % (16 * kBlockElems) == 0, "tensors begin at multiples of 64 bytes");
  std::vector<adam::ScaledSpan> list;
  list.reserve(span_.count / tensor_elems + 1);
  for (size_t i = 0; i < span_.count; i += tensor_elems) {
    const size_t elems = std::min(tensor_elems, span_.count - i);
    list.push_back({span_.part(variant_->format, i, elems), &scalars});
  }
  return list;
}

}  // namespace headrace::bench
