// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "headrace/error.h"
#include "kernels/adamw.h"

namespace headrace {
namespace {

/// Elements are numbered by unit, so that their numbers do not depend on how a unit is padded.
constexpr uint64_t kNumbersOfAUnit = uint64_t(1) << 40;

constexpr StateKind kKinds[] = {StateKind::weights, StateKind::optimizer, StateKind::gradients};

}  // namespace

uint64_t Optimizer::window_bytes(std::span<const StateLayout> layouts, const Placement& placement,
                                 int64_t tiles) {
  int64_t elems = 0;
  for (const StateLayout& layout : layouts)
    elems = std::max(elems, std::min(layout.elems(), tiles * kTileElems));
  if (layouts.empty()) return 0;
  uint64_t bytes = 0;
  if (placement.weights != Tier::host) bytes += round_up(layouts[0].bytes(StateKind::weights, elems));
  if (placement.optimizer != Tier::host) bytes += round_up(layouts[0].bytes(StateKind::optimizer, elems));
  if (placement.gradients != Tier::host) bytes += round_up(layouts[0].bytes(StateKind::gradients, elems));
  return bytes;
}

Optimizer::Optimizer(const Parts& parts, Arena& host_memory) : parts_(parts), windows_(parts.shape.count) {
  int64_t window_elems = 0;
  size_t longest = 1;
  for (size_t unit = 0; unit < parts.layouts.size(); ++unit) {
    const int64_t elems = parts.layouts[unit].elems();
    window_elems = std::max(window_elems, std::min(elems, parts.shape.tiles * kTileElems));
    ranges_.push_back(decay_ranges(parts.unit_layouts[unit], elems));
    longest = std::max(longest, ranges_.back().size());
  }
  jobs_.reserve(size_t(parts.shape.tiles) + longest);
  spans_.reserve(jobs_.capacity());
  for (Window& window : windows_) {
    for (StateKind kind : kKinds) {
      Staged& staged = window.kinds[size_t(kind)];
      staged.copied = parts.device.make_event();
      if (parts.layouts.empty() || parts.residency.of(UnitId{0}, kind).tier == Tier::host) continue;
      staged.buffer =
          host_memory.take(parts.layouts[0].bytes(kind, window_elems), kPlanAlignment, "optimizer window");
    }
  }
}

Optimizer::Extent Optimizer::extent_of(const Window& window, StateKind kind) const {
  const StateLayout& layout = parts_.layouts[window.unit];
  const int64_t first = window.first_tile * kTileElems;
  const int64_t elems = std::min(window.tiles * kTileElems, layout.elems() - first);
  return {layout.bytes(kind, first), size_t(layout.bytes(kind, elems))};
}

void Optimizer::start_read(Window& window, StateKind kind) {
  const Place& place = parts_.residency.of(UnitId{uint32_t(window.unit)}, kind);
  const auto [offset, bytes] = extent_of(window, kind);
  Staged& staged = window.kinds[size_t(kind)];
  staged.data = place.tier == Tier::host ? place.memory + offset : staged.buffer;
  if (place.tier == Tier::nvme)
    staged.request = place.store->read(place.extent, offset, {staged.data, bytes});
  if (place.tier == Tier::device) {
    parts_.device.d2h().copy(staged.data, place.memory + offset, bytes);
    parts_.device.d2h().record(*staged.copied);
    staged.copying = true;
  }
}

void Optimizer::clear(Window& window, StateKind kind) {
  const Place& place = parts_.residency.of(UnitId{uint32_t(window.unit)}, kind);
  const auto [offset, bytes] = extent_of(window, kind);
  Staged& staged = window.kinds[size_t(kind)];
  staged.data = place.tier == Tier::host ? place.memory + offset : staged.buffer;
  std::memset(staged.data, 0, bytes);
}

void Optimizer::start_write(Window& window, StateKind kind) {
  const Place& place = parts_.residency.of(UnitId{uint32_t(window.unit)}, kind);
  const auto [offset, bytes] = extent_of(window, kind);
  Staged& staged = window.kinds[size_t(kind)];
  if (place.tier == Tier::nvme) {
    staged.request = place.store->write(place.extent, offset, std::span<const std::byte>{staged.data, bytes});
  }
  if (place.tier == Tier::device) {
    parts_.device.h2d().copy(place.memory + offset, staged.data, bytes);
    parts_.device.h2d().record(*staged.copied);
    staged.copying = true;
  }
}

void Optimizer::start_reads(Window& window, Pass pass) {
  for (StateKind kind : {StateKind::weights, StateKind::optimizer}) {
    if (pass == Pass::overwrite) {
      clear(window, kind);
    } else {
      start_read(window, kind);
    }
  }
  if (pass == Pass::update) start_read(window, StateKind::gradients);
}

void Optimizer::start_writes(Window& window) {
  start_write(window, StateKind::weights);
  start_write(window, StateKind::optimizer);
}

void Optimizer::finish_transfers(Window& window) {
  for (StateKind kind : kKinds) {
    Staged& staged = window.kinds[size_t(kind)];
    const Place& place = parts_.residency.of(UnitId{uint32_t(window.unit)}, kind);
    if (staged.request.value) {
      const nvme::Request request = std::exchange(staged.request, {});
      parts_.clock.book(WaitCause::nvme, [&] { place.store->wait(request); });
    }
    if (std::exchange(staged.copying, false)) {
      parts_.clock.book(WaitCause::copy, [&] { staged.copied->synchronize(); });
    }
  }
}

/// Windows of all units in order through the ring: while `work` runs on one, the next ones are being read and
/// the last ones written.
template <class Work>
void Optimizer::sweep(std::span<const UnitId> units, Pass pass, Work&& work) {
  size_t read_unit = 0, read_count = 0, work_count = 0;
  int64_t read_tile = 0;
  const auto read_ahead = [&] {
    while (read_unit < units.size() && read_count < work_count + windows_.size()) {
      const auto unit = size_t(units[read_unit]);
      const int64_t tiles = parts_.layouts[unit].tiles();
      if (read_tile == tiles) {
        ++read_unit;
        read_tile = 0;
        continue;
      }
      Window& window = windows_[read_count++ % windows_.size()];
      finish_transfers(window);  // its last write
      window.unit = unit;
      window.first_tile = read_tile;
      window.tiles = std::min(parts_.shape.tiles, tiles - read_tile);
      read_tile += window.tiles;
      start_reads(window, pass);
    }
  };
  for (read_ahead(); work_count < read_count; read_ahead()) {
    Window& window = windows_[work_count % windows_.size()];
    finish_transfers(window);
    work(window);
    if (pass != Pass::read) start_writes(window);
    ++work_count;
  }
  for (Window& window : windows_) finish_transfers(window);
}

void Optimizer::add_jobs(size_t unit, StateTile tile, const std::byte* gradient,
                         const UpdateScalars& scalars) {
  const StateLayout& layout = parts_.layouts[unit];
  tile.arrays.grad = {gradient, layout.precision()};
  tile.arrays.first = uint64_t(unit) * kNumbersOfAUnit + uint64_t(tile.first);
  for (const DecayRange& range : ranges_[unit]) {
    const int64_t begin = std::max<int64_t>(range.begin - tile.first, 0);
    const int64_t end = std::min(range.end - tile.first, tile.elems);
    if (begin >= end) continue;
    jobs_.push_back({tile.arrays.part(layout.format(), size_t(begin), size_t(end - begin)),
                     range.decay ? &scalars.with_decay : &scalars.without_decay});
  }
}

void Optimizer::run_jobs() {
  parts_.workers.update(parts_.layouts[0].format(), jobs_);
  jobs_.clear();
}

void Optimizer::update_window(Window& window, const UpdateScalars& scalars) {
  const StateLayout& layout = parts_.layouts[window.unit];
  std::byte* weights = window.kinds[size_t(StateKind::weights)].data;
  std::byte* state = window.kinds[size_t(StateKind::optimizer)].data;
  const std::byte* gradient = window.kinds[size_t(StateKind::gradients)].data;
  for (int64_t i = 0; i < window.tiles; ++i) {
    const int64_t before = i * kTileElems;
    const StateTile tile =
        layout.tile_view(window.first_tile + i, weights + layout.bytes(StateKind::weights, before),
                         state + layout.bytes(StateKind::optimizer, before));
    add_jobs(window.unit, tile, gradient + layout.bytes(StateKind::gradients, before), scalars);
  }
  const auto start = std::chrono::steady_clock::now();
  run_jobs();
  adam_ns_ += uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
}

bool Optimizer::all_on_device(size_t unit) const {
  return std::all_of(std::begin(kKinds), std::end(kKinds), [&](StateKind kind) {
    return parts_.residency.of(UnitId{uint32_t(unit)}, kind).tier == Tier::device;
  });
}

/// On the compute stream. The host device's memory is within the workers' reach, on that stream's thread;
/// they are waited for, so that jobs_ is free again.
void Optimizer::start_jobs_on_device() {
  Stream& compute = parts_.device.compute();
  if (compute.kind() == DeviceKind::host) {
    compute.enqueue([this] { run_jobs(); });
    parts_.clock.book(WaitCause::optimizer, [&] { compute.synchronize(); });
    return;
  }
  const DType precision = parts_.layouts[0].precision();
  spans_.clear();
  for (const auto& [span, scalars] : jobs_) {
    spans_.push_back({.count = int64_t(span.count),
                      .dtype = precision,
                      .weights = precision == DType::f32 ? static_cast<void*>(span.w) : span.hi,
                      .lo = span.lo,
                      .m = static_cast<float*>(span.m),
                      .v = static_cast<float*>(span.v),
                      .gradient = span.grad.data,
                      .scalars = *scalars});
  }
  kernels::adamw(compute, spans_);
  jobs_.clear();
}

void Optimizer::update_on_device(size_t unit, const UpdateScalars& scalars) {
  const StateLayout& layout = parts_.layouts[unit];
  const auto memory = [&](StateKind kind) {
    return parts_.residency.of(UnitId{uint32_t(unit)}, kind).memory;
  };
  for (int64_t first = 0; first < layout.tiles(); first += parts_.shape.tiles) {
    const int64_t last = std::min(first + parts_.shape.tiles, layout.tiles());
    for (int64_t t = first; t < last; ++t) {
      const int64_t before = t * kTileElems;
      const StateTile tile =
          layout.tile_view(t, memory(StateKind::weights) + layout.bytes(StateKind::weights, before),
                           memory(StateKind::optimizer) + layout.bytes(StateKind::optimizer, before));
      add_jobs(unit, tile, memory(StateKind::gradients) + layout.bytes(StateKind::gradients, before),
               scalars);
    }
    start_jobs_on_device();
  }
}

void Optimizer::update(std::span<const UnitId> units, const UpdateScalars& scalars) {
  if (!units.empty() && all_on_device(size_t(units[0]))) {
    const uint64_t before = parts_.device.compute_ns();
    for (UnitId unit : units) update_on_device(size_t(unit), scalars);
    parts_.clock.book(WaitCause::optimizer, [&] { parts_.device.compute().synchronize(); });
    adam_ns_ += parts_.device.compute_ns() - before;  // the stream had nothing else to do
    return;
  }
  sweep(units, Pass::update, [&](Window& window) {
    parts_.clock.book(WaitCause::optimizer, [&] { update_window(window, scalars); });
  });
}

void Optimizer::visit(UnitId unit, StateAccess access, const std::function<void(const StateTile&)>& visit) {
  const StateLayout& layout = parts_.layouts[size_t(unit)];
  const int64_t existing = parts_.unit_layouts[size_t(unit)].elems;
  const Pass pass = access == StateAccess::read     ? Pass::read
                    : access == StateAccess::modify ? Pass::modify
                                                    : Pass::overwrite;
  sweep(std::span(&unit, 1), pass, [&](Window& window) {
    std::byte* weights = window.kinds[size_t(StateKind::weights)].data;
    std::byte* state = window.kinds[size_t(StateKind::optimizer)].data;
    for (int64_t i = 0; i < window.tiles; ++i) {
      const int64_t before = i * kTileElems;
      StateTile tile =
          layout.tile_view(window.first_tile + i, weights + layout.bytes(StateKind::weights, before),
                           state + layout.bytes(StateKind::optimizer, before));
      tile.elems = std::min(tile.elems, existing - tile.first);
      tile.arrays.count = size_t(std::max<int64_t>(tile.elems, 0));
      if (tile.elems > 0) visit(tile);
    }
  });
}

}  // namespace headrace
