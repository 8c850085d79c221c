// SPDX-License-Identifier: Apache-2.0
#include "bench/adam_state.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "headrace/error.h"

namespace headrace::bench {
namespace {

using adam::Format, adam::kBlockElems, adam::kTileElems, adam::MomentFormat, adam::WeightFormat;

constexpr float kWeight = 0.02f, kM = 1e-5f, kV = 1e-8f;
constexpr unsigned kGradPeriod = 1000;

/// One array: where the span keeps its address, and what each element starts as.
struct Stream {
  void** address;
  size_t elems, elem_bytes;
  uint32_t value;
};

template <class T>
void** slot(T*& pointer) {
  static_assert(sizeof(void*) == sizeof(T*));
  return reinterpret_cast<void**>(&pointer);
}

uint32_t bits32(float x) {
  return std::bit_cast<uint32_t>(x);
}

void add_weights(std::vector<Stream>& streams, const Format& format, adam::Span& span) {
  const size_t n = span.count;
  const SplitMaster split = split_master(kWeight);
  switch (format.weights) {
    case WeightFormat::fp32_copy:
      streams.push_back({slot(span.copy), n, 2, uint32_t(to_bf16(kWeight))});
      [[fallthrough]];
    case WeightFormat::fp32:
      streams.push_back({slot(span.w), n, 4, bits32(kWeight)});
      return;
    case WeightFormat::split:
      streams.push_back({slot(span.hi), n, 2, uint32_t(split.hi)});
      streams.push_back({slot(span.lo), n, 2, split.lo});
      return;
    case WeightFormat::split24:
      streams.push_back({slot(span.hi), n, 2, uint32_t(split.hi)});
      streams.push_back({slot(span.lo8), n, 1, uint32_t(split.lo) >> 8});
  }
}

void add_moments(std::vector<Stream>& streams, const Format& format, adam::Span& span) {
  const size_t n = span.count;
  if (format.moments == MomentFormat::q8) {
    streams.push_back({&span.m, n, 1, 127});
    streams.push_back({&span.v, n, 1, 255});
    streams.push_back({slot(span.m_scale), n / kBlockElems, 4, bits32(kM)});
    streams.push_back({slot(span.v_scale), n / kBlockElems, 4, bits32(kV)});
    return;
  }
  const auto add = [&](void** address, bool narrow, float value) {
    if (narrow) streams.push_back({address, n, 2, uint32_t(to_bf16(value))});
    if (!narrow) streams.push_back({address, n, 4, bits32(value)});
  };
  add(&span.m, format.moments != MomentFormat::fp32, kM);
  add(&span.v, format.moments == MomentFormat::bf16, kV);
}

/// All arrays but the gradient's.
std::vector<Stream> streams_of(const Format& format, adam::Span& span) {
  std::vector<Stream> streams;
  add_weights(streams, format, span);
  add_moments(streams, format, span);
  return streams;
}

void fill(const Stream& stream, adam::Workers& workers) {
  auto* const array = static_cast<std::byte*>(*stream.address);
  workers.for_each(size_t(workers.threads()), [&](size_t k) {
    const size_t parts = size_t(workers.threads());
    const size_t begin = stream.elems * k / parts, end = stream.elems * (k + 1) / parts;
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(array + i * stream.elem_bytes, &stream.value, stream.elem_bytes);
    }
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
  adam::Span span{.count = params};
  size_t bytes = params * dtype_bytes(variant.gradient);
  for (const Stream& stream : streams_of(variant.format, span)) bytes += stream.elems * stream.elem_bytes;
  return bytes;
}

AdamState::AdamState(const AdamVariant& variant, size_t params, std::byte* memory, adam::Workers& workers)
    : variant_(&variant) {
  static_assert(std::endian::native == std::endian::little, "fill() copies the low bytes");
  HEADRACE_CHECK(params % kTileElems == 0, "states have whole tiles");
  span_.count = params;
  for (const Stream& stream : streams_of(variant.format, span_)) {
    *stream.address = memory;
    fill(stream, workers);
    memory += stream.elems * stream.elem_bytes;
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
