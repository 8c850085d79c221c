// SPDX-License-Identifier: Apache-2.0
// The optimizer pass over units whose weights, state and gradients live anywhere. A shard is worked on in
// windows of whole tiles; whatever does not live in host memory is staged in a ring of window buffers, so
// that the read of the next window, the arithmetic of this one and the write of the last one overlap. State
// on the device is updated in place on the compute stream, by the device's own kernel or the host's workers.
// Window sizes never change a result. One thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "headrace/adam.h"
#include "kernels/adamw.h"
#include "optim/decay_ranges.h"
#include "swap/residency.h"
#include "swap/wait_clock.h"

namespace headrace {

/// Scalars of this step for segments with and without weight decay.
struct UpdateScalars {
  adam::StepScalars with_decay, without_decay;
};

/// The ring: `count` buffers for `tiles` tiles each. Bytes depend on which kinds must be staged.
struct WindowShape {
  int64_t tiles = 8;
  size_t count = 3;
};

class Optimizer {
 public:
  struct Parts {
    Device& device;
    const Residency& residency;
    std::span<const StateLayout> layouts;
    std::span<const UnitLayout> unit_layouts;
    WaitClock& clock;
    adam::Workers& workers;
    WindowShape shape;
  };
  /// Takes the ring from `host_memory`.
  Optimizer(const Parts& parts, Arena& host_memory);

  /// AdamW on the shards of `units`; returns when the new state is in place on its tier.
  void update(std::span<const UnitId> units, const UpdateScalars& scalars);
  /// Engine::visit_state.
  void visit(UnitId unit, StateAccess access, const std::function<void(const StateTile&)>& visit);

  /// Nanoseconds inside the arithmetic so far.
  [[nodiscard]] uint64_t adam_ns() const { return adam_ns_; }

  /// Bytes of one window buffer for this placement.
  static uint64_t window_bytes(std::span<const StateLayout> layouts, const Placement& placement,
                               int64_t tiles);

 private:
  struct Staged {               // one kind of one window
    std::byte* data = nullptr;  ///< where the window's bytes are (to be) in host memory
    nvme::Request request;
    bool copying = false;  ///< `copied` stands for a copy in flight
    std::unique_ptr<Event> copied;
    std::byte* buffer = nullptr;
  };
  struct Window {
    size_t unit = 0;
    int64_t first_tile = 0, tiles = 0;
    std::array<Staged, kStateKinds> kinds;
  };
  struct Extent {  // of a window in a plane
    uint64_t offset;
    size_t bytes;
  };
  enum class Pass : uint8_t { update, read, modify, overwrite };
  template <class Work>
  void sweep(std::span<const UnitId> units, Pass pass, Work&& work);
  void start_reads(Window& window, Pass pass);
  void finish_transfers(Window& window);
  void start_writes(Window& window);
  void start_read(Window& window, StateKind kind);
  void clear(Window& window, StateKind kind);
  void start_write(Window& window, StateKind kind);
  [[nodiscard]] Extent extent_of(const Window& window, StateKind kind) const;
  void update_window(Window& window, const UpdateScalars& scalars);
  void add_jobs(size_t unit, StateTile tile, const std::byte* gradient, const UpdateScalars& scalars);
  void run_jobs();
  void update_on_device(size_t unit, const UpdateScalars& scalars);
  void start_jobs_on_device();
  bool all_on_device(size_t unit) const;

  Parts parts_;
  std::vector<Window> windows_;
  std::vector<std::vector<DecayRange>> ranges_;
  std::vector<adam::ScaledSpan> jobs_;     ///< spans inside one tile with one kind of decay
  std::vector<kernels::AdamwSpan> spans_;  ///< jobs_ for an accelerator
  uint64_t adam_ns_ = 0;
};

}  // namespace headrace
