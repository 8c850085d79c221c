// SPDX-License-Identifier: Apache-2.0
// One kernel call on two devices: buffers with the same contents on the host device and on the one under
// test, and comparisons of what came out. Every buffer ends in a fence, which each comparison checks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/device.h"
#include "headrace/dtype.h"
#include "kernels/gemm.h"
#include "tests/test_device.h"

namespace headrace::test {

enum class Format : uint8_t { f32, bf16, i32, u16, f64 };

constexpr Format format_of(DType dtype) {
  return dtype == DType::f32 ? Format::f32 : Format::bf16;
}
constexpr size_t format_bytes(Format format) {
  return std::array<size_t, 5>{4, 2, 4, 2, 8}[size_t(format)];
}

/// A buffer that both sides have.
enum class Buffer : size_t {};

constexpr DeviceOptions::Kind kUnderTest =
    kTestDeviceKind == DeviceKind::cuda ? DeviceOptions::Kind::cuda : DeviceOptions::Kind::host;

/// One device and its copies of the buffers.
class Side {
 public:
  Side(DeviceOptions::Kind kind, size_t bytes)
      : device_(make_device({.kind = kind, .memory_bytes = bytes})) {}

  Stream& stream() { return device_->compute(); }
  [[nodiscard]] DeviceKind kind() const { return device_->kind(); }
  template <class T = void>
  T* at(Buffer buffer) {
    return reinterpret_cast<T*>(places_[size_t(buffer)]);
  }
  kernels::Scratch scratch(size_t bytes) {
    return {device_->memory().take(std::max<size_t>(bytes, 1), 256, "scratch"), bytes};
  }
  void take(const std::vector<std::byte>& contents) {
    places_.push_back(device_->memory().take(contents.size(), 256, "a buffer"));
    write(Buffer(places_.size() - 1), contents);
  }
  void write(Buffer buffer, const std::vector<std::byte>& contents) {
    stream().copy(places_[size_t(buffer)], contents.data(), contents.size());
    stream().synchronize();
  }
  std::vector<std::byte> read(Buffer buffer, size_t bytes) {
    std::vector<std::byte> contents(bytes);
    stream().copy(contents.data(), places_[size_t(buffer)], bytes);
    stream().synchronize();
    return contents;
  }

 private:
  std::unique_ptr<Device> device_;
  std::vector<std::byte*> places_;
};

/// How near two results must be. `group`: elements (a row, a head) whose root mean square is the scale of the
/// error of each of them, because sums cancel; at least a tenth of the root mean square of everything.
struct Near {
  double tolerance;
  int64_t group;
};

class Twins {
 public:
  explicit Twins(size_t device_bytes)
      : host_(DeviceOptions::Kind::host, device_bytes), gpu_(kUnderTest, device_bytes) {}

  /// Even numbers around `centre` with this standard deviation, a function of position and order of calls.
  Buffer noise(DType dtype, int64_t elems, double spread = 1.0, double centre = 0.0) {
    std::vector<std::byte> contents(fenced(format_of(dtype), elems));
    const uint64_t key = mix(++seed_);
    for (int64_t i = 0; i < elems; ++i) {
      const double unit = double(mix(key + uint64_t(i)) >> 11) * 0x1p-52 - 1.0;
      const float value = float(centre + spread * std::sqrt(3.0) * unit);
      const bf16 half = to_bf16(value);
      if (dtype == DType::f32) std::memcpy(&contents[size_t(i) * 4], &value, 4);
      if (dtype == DType::bf16) std::memcpy(&contents[size_t(i) * 2], &half, 2);
    }
    return add(format_of(dtype), elems, contents);
  }
  Buffer zeros(Format format, int64_t elems) {
    return add(format, elems, std::vector<std::byte>(fenced(format, elems)));
  }
  Buffer zeros(DType dtype, int64_t elems) { return zeros(format_of(dtype), elems); }
  template <class T>
  Buffer values(Format format, const std::vector<T>& from) {
    std::vector<std::byte> contents(fenced(format, int64_t(from.size())));
    if (!from.empty()) std::memcpy(contents.data(), from.data(), from.size() * sizeof(T));
    return add(format, int64_t(from.size()), contents);
  }
  /// Integers in [0, limit).
  std::vector<int32_t> indices(int64_t elems, int64_t limit) {
    std::vector<int32_t> all(static_cast<size_t>(elems));
    const uint64_t key = mix(++seed_);
    for (size_t i = 0; i < all.size(); ++i) all[i] = int32_t(mix(key + i) % uint64_t(limit));
    return all;
  }

  /// kernel(Side&) on both; a side is done when the next starts.
  template <class Kernel>
  void run(const Kernel& kernel) {
    for (Side* side : {&host_, &gpu_}) {
      kernel(*side);
      side->stream().synchronize();
    }
  }
  /// Gives the device under test the host's result, so that what comes next is judged alone.
  void take_from_host(Buffer buffer) { gpu_.write(buffer, bytes_of(host_, buffer)); }

  void expect_same(Buffer buffer, const char* what) {
    const std::vector<std::byte> want = bytes_of(host_, buffer), got = bytes_of(gpu_, buffer);
    const size_t at = size_t(std::ranges::mismatch(want, got).in1 - want.begin());
    EXPECT_EQ(at, want.size()) << what << ": element " << at / format_bytes(formats_[size_t(buffer)])
                               << " of " << elems_[size_t(buffer)] << " has other bits";
  }
  void expect_near(Buffer buffer, const char* what, Near near) {
    const std::vector<double> want = numbers(host_, buffer), got = numbers(gpu_, buffer);
    const bool rounded = formats_[size_t(buffer)] == Format::bf16;
    const double floor = 0.1 * root_mean_square(want, 0, want.size());
    double worst = 0;
    size_t worst_at = 0;
    for (size_t first = 0; first < want.size(); first += size_t(near.group)) {
      const size_t end = std::min(want.size(), first + size_t(near.group));
      const double scale = std::max(floor, root_mean_square(want, first, end));
      for (size_t i = first; i < end; ++i) {
        // Two values that nearly agree may round to neighbours, which are up to 2^-7 apart.
        const double allowed = near.tolerance * std::max(scale, std::fabs(want[i])) +
                               (rounded ? 0x1p-7 * std::fabs(want[i]) : 0.0);
        const double error = std::fabs(got[i] - want[i]) / std::max(allowed, 1e-300);
        if (error > worst || std::isnan(error)) worst = std::isnan(error) ? INFINITY : error, worst_at = i;
      }
    }
    EXPECT_LE(worst, 1.0) << what << ": element " << worst_at << " of " << want.size() << " is "
                          << (want.empty() ? 0 : got[worst_at]) << ", the host has "
                          << (want.empty() ? 0 : want[worst_at]) << " (error over tolerance)";
  }

 private:
  static constexpr size_t kFenceBytes = 256;
  static constexpr std::byte kFence{0x5a};

  /// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
  static constexpr uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  static size_t fenced(Format format, int64_t elems) { return size_t(elems) * format_bytes(format); }
  static double root_mean_square(const std::vector<double>& x, size_t first, size_t end) {
    double sum = 0;
    for (size_t i = first; i < end; ++i) sum += x[i] * x[i];
    return end > first ? std::sqrt(sum / double(end - first)) : 0.0;
  }

  Buffer add(Format format, int64_t elems, std::vector<std::byte> contents) {
    contents.resize(contents.size() + kFenceBytes, kFence);
    host_.take(contents);
    gpu_.take(contents);
    formats_.push_back(format);
    elems_.push_back(elems);
    return Buffer(formats_.size() - 1);
  }
  std::vector<std::byte> bytes_of(Side& side, Buffer buffer) {
    const size_t bytes = size_t(elems_[size_t(buffer)]) * format_bytes(formats_[size_t(buffer)]);
    std::vector<std::byte> contents = side.read(buffer, bytes + kFenceBytes);
    const bool whole = std::all_of(contents.begin() + ptrdiff_t(bytes), contents.end(),
                                   [](std::byte b) { return b == kFence; });
    EXPECT_TRUE(whole) << "written beyond the end of a buffer of " << bytes << " bytes";
    return contents;
  }
  std::vector<double> numbers(Side& side, Buffer buffer) {
    const std::vector<std::byte> bytes = bytes_of(side, buffer);
    std::vector<double> all(static_cast<size_t>(elems_[size_t(buffer)]));
    const auto read = [&]<class T>(T zero, auto widen) {
      for (size_t i = 0; i < all.size(); ++i) {
        std::memcpy(&zero, &bytes[i * sizeof(T)], sizeof(T));
        all[i] = double(widen(zero));
      }
    };
    const auto same = [](auto x) { return x; };
    switch (formats_[size_t(buffer)]) {
      case Format::f32:
        read(0.0f, same);
        break;
      case Format::bf16:
        read(bf16{}, [](bf16 x) { return to_float(x); });
        break;
      case Format::i32:
        read(int32_t{}, same);
        break;
      case Format::u16:
        read(uint16_t{}, same);
        break;
      case Format::f64:
        read(0.0, same);
        break;
    }
    return all;
  }

  Side host_, gpu_;
  std::vector<Format> formats_;
  std::vector<int64_t> elems_;
  uint64_t seed_ = 0;
};

/// "small_bf16": what a parameter is called; compute-sanitizer runs the small ones only.
template <class Case>
std::string case_name(const testing::TestParamInfo<std::tuple<Case, DType>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + dtype_name(std::get<1>(info.param));
}
template <class Case>
using CaseInDType = testing::TestWithParam<std::tuple<Case, DType>>;

inline auto both_dtypes() {
  return testing::Values(DType::bf16, DType::f32);
}
constexpr size_t kMiB = size_t(1) << 20;

}  // namespace headrace::test
