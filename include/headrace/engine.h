// SPDX-License-Identifier: Apache-2.0
// The engine: partitioned weights, gradients, optimizer state and activation checkpoints that live on device,
// host or NVMe and are swapped in and out while a program computes. The program declares its units once;
// then, each step:
//
//   engine.expect(order);         the order in which it will gather; prefetch follows it
//   forward   w = engine.gather(u); ... kernels on engine.compute() ...; engine.release(u);
//   backward  w = engine.gather(u); g = engine.gradient(u); ... g += ...;
//             engine.release(u); engine.reduce_scatter(u);
//   engine.step(options);         norm, clip, AdamW on every unit, wherever its state lives
//
// Everything between gather and release is enqueued on engine.compute(); gather, release, gradient,
// reduce_scatter and the activation calls return before the bytes have moved and order the stream themselves,
// so that the calling thread runs ahead of the device. Where state lives never changes a result: same bits
// for every Placement.
//
// Thread safety: one thread drives an engine. Errors: OutOfMemory and ConfigError at construction; IoError
// and CorruptData from the call that first needs the bytes (or a later one); after one, the engine can only
// be destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/adam.h"
#include "headrace/dtype.h"
#include "headrace/nvme.h"
#include "headrace/stats.h"
#include "headrace/stream.h"

namespace headrace {

// What moves.

/// One tensor of a unit. Row-major; biases, norms and embeddings say weight_decay = false.
struct Segment {
  std::string name;  ///< "attn.qkv.weight"
  std::vector<int64_t> shape;
  bool weight_decay = true;
};

/// What moves together: a layer, the embedding, the head. One flat buffer, one gather, one optimizer pass.
struct UnitSpec {
  std::string name;  ///< a file name: letters, digits, '.', '-', '_'; unique
  std::vector<Segment> segments;
  /// Gathered beside other units, or its gradient stays open while theirs come and go (a tied embedding): it
  /// gets device memory of its own instead of sharing with units of the same size.
  bool shared = false;
};

/// Position of a unit in the declaration.
enum class UnitId : uint32_t {};

/// Where a segment lies in its unit's flat buffer. Offsets are multiples of kSegmentAlignElems.
struct SegmentLayout {
  int64_t offset;  ///< elements
  int64_t elems;
  bool weight_decay;
};
constexpr int64_t kSegmentAlignElems = 64;

struct UnitLayout {
  std::vector<SegmentLayout> segments;
  int64_t elems;        ///< of the flat buffer, gaps included
  int64_t param_count;  ///< elements of all segments, gaps excluded
};
UnitLayout layout_of(const UnitSpec& spec);

/// A gathered unit in device memory; valid from gather() to release().
struct WeightView {
  const std::byte* data;
  const UnitLayout* layout;
  DType dtype;
  [[nodiscard]] const void* segment(size_t i) const {
    return data + size_t(layout->segments[i].offset) * dtype_bytes(dtype);
  }
};

/// A unit's fp32 gradient accumulator in device memory; valid from gradient() to reduce_scatter().
struct GradientView {
  float* data;
  const UnitLayout* layout;
  [[nodiscard]] float* segment(size_t i) const { return data + layout->segments[i].offset; }
};

// Options and plan.

struct Placement {
  Tier weights = Tier::device;
  Tier optimizer = Tier::device;  ///< lo, m, v (bf16) or m, v (fp32)
  Tier activations = Tier::device;
  /// Gradient shards between backward and step. Empty: device when the optimizer is there, else host if the
  /// host budget holds them, else nvme.
  std::optional<Tier> gradients;
};

enum class DeviceChoice : uint8_t { automatic, cuda, host };

/// Where an engine with this choice computes: `automatic` is cuda where a GPU is visible that this build has
/// kernels for. `cuda` is cuda on a machine without a GPU too (a plan can be made there, an Engine cannot);
/// in a build without kernels for GPUs it throws DeviceError.
DeviceKind resolve_device(DeviceChoice choice);
/// Throws DeviceError when an Engine with this choice would find no device here; takes no memory.
void check_device(DeviceChoice choice);

struct NvmeOptions {
  std::vector<std::string> paths;  ///< units are dealt to them in turn
  size_t chunk_bytes = 2u << 20;
  unsigned queue_depth = 16;
  nvme::EngineKind engine = nvme::EngineKind::automatic;
  bool direct = true;
  bool verify = true;
  std::string run_id;  ///< names the swap folders; empty: made up
};

struct EngineOptions {
  DType precision = DType::bf16;  ///< of weights, activations and gradient shards; masters are fp32
  DeviceChoice device = DeviceChoice::automatic;
  uint64_t device_memory = 512u << 20;  ///< bytes
  uint64_t host_memory = 1u << 30;      ///< bytes, pinned: state on host, slots and windows
  Placement placement;
  unsigned prefetch_units = 2;  ///< units gathered ahead of need
  NvmeOptions nvme;
  /// Others than AdamW and fp32 moments are updated by the CPU only: on an accelerator the optimizer's state
  /// is then on the host or on NVMe.
  adam::Rule rule = adam::Rule::adamw;
  adam::MomentFormat moments = adam::MomentFormat::fp32;
  unsigned optimizer_threads = 0;  ///< 0: all cores
  bool pin_optimizer = false;      ///< its threads to CPUs of their own
  // The program's own device memory:
  uint64_t workspace_bytes = 0;   ///< one block, see Engine::workspace()
  uint64_t activation_bytes = 0;  ///< of one activation checkpoint
  uint32_t activation_count = 0;  ///< indices 0 .. count-1
  uint32_t activation_slots = 4;  ///< of them on the device at a time when they live elsewhere (>= 3)
};

struct PlanItem {
  Tier tier;
  std::string what;
  uint64_t bytes;
  std::string key;  ///< the configuration key that changes it
};

/// Bytes per tier, computed from the declaration before anything is allocated. The engine allocates exactly
/// this.
struct Plan {
  std::vector<PlanItem> items;
  Placement placement;  ///< with `gradients` decided
  uint64_t device_budget, host_budget;
  uint64_t param_count = 0;
  std::vector<uint64_t> nvme_path_bytes;  ///< per NvmeOptions::paths
  [[nodiscard]] uint64_t total(Tier tier) const;
};
/// Pure; throws ConfigError for impossible combinations. Does not compare with the budgets.
Plan make_plan(const EngineOptions& options, std::span<const UnitSpec> units);
/// Throws OutOfMemory{tier, wanted, available, key} when the plan exceeds a budget or a drive's free space.
void check_plan(const Plan& plan, const EngineOptions& options);

// Activation checkpoints.

/// Inputs of units kept from forward to backward, each of EngineOptions::activation_bytes, addressed by
/// index. create -> (kernels write it) -> keep -> ... fetch -> (kernels read it) -> done ... -> drop.
class ActivationArea {
 public:
  virtual ~ActivationArea() = default;
  /// Device memory to write checkpoint `index` into.
  virtual std::byte* create(uint32_t index) = 0;
  /// It is written (on the compute stream): goes to its tier; stays readable until done().
  virtual void keep(uint32_t index) = 0;
  /// Device memory that holds it again. A kept, still resident one costs nothing.
  virtual std::byte* fetch(uint32_t index) = 0;
  /// Its device memory may be reused; its contents remain on its tier.
  virtual void done(uint32_t index) = 0;
  /// Not needed any more.
  virtual void drop(uint32_t index) = 0;
};

// The engine.

struct StepOptions {
  adam::Options adam;  ///< weight_decay applies to segments that ask for it; the rule is EngineOptions::rule
  double grad_clip = 0;  ///< maximum global L2 norm; 0: off
  uint64_t t = 1;        ///< optimizer step for the bias correction, counts from 1
};

struct StepResult {
  double grad_norm;  ///< before clipping; non-finite when a gradient is
  bool skipped;      ///< a non-finite norm: weights, m and v are untouched
};

/// What state is kept in (headrace/adam.h): bf16 runs split their masters.
constexpr adam::Format state_format(DType precision, adam::Rule rule = adam::Rule::adamw,
                                    adam::MomentFormat moments = adam::MomentFormat::fp32) {
  using adam::WeightFormat;
  const bool blocks = moments == adam::MomentFormat::q8;
  const WeightFormat weights = precision == DType::f32 ? WeightFormat::fp32
                               : blocks                ? WeightFormat::split24
                                                       : WeightFormat::split;
  return {rule, weights, moments};
}

constexpr adam::Format state_format(const EngineOptions& options) {
  return state_format(options.precision, options.rule, options.moments);
}

/// A run of a unit's state in host memory: `elems` elements of UnitLayout's flat buffer from `first` on. The
/// gaps between segments are in it; they are zero and must stay so.
struct StateTile {
  int64_t first, elems;
  std::byte* weights;  ///< bf16 (hi) or fp32
  adam::Span arrays;   ///< the same weights as w or hi, and all that the optimizer keeps
};

/// How visit_state() treats what is there: shows it; shows it and writes back what the visitor changed; or
/// shows zeros and writes what the visitor made of them.
enum class StateAccess : uint8_t { read, modify, overwrite };

class Engine {
 public:
  /// Plans, checks the plan, allocates everything. State has no value until visit_state(..., overwrite) gives
  /// it one; reading it before is an error (CorruptData on NVMe).
  Engine(const EngineOptions& options, std::vector<UnitSpec> units);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] std::span<const UnitSpec> units() const;
  [[nodiscard]] const UnitLayout& layout(UnitId unit) const;
  [[nodiscard]] adam::Format format() const;      ///< which arrays a StateTile has
  [[nodiscard]] std::string description() const;  ///< device, NVMe engine and notes: one line each

  /// The stream that the program's kernels go on.
  Stream& compute();
  /// options.workspace_bytes of device memory for the program's own use, 4 KiB aligned.
  std::byte* workspace();

  /// The order of the gathers to come; the span must stay valid until the next call. A gather out of this
  /// order is served correctly, without prefetch.
  void expect(std::span<const UnitId> order);
  WeightView gather(UnitId unit);
  void release(UnitId unit);

  /// The accumulator, zero at its first use in a step.
  GradientView gradient(UnitId unit);
  /// The gradient is complete: it is rounded to the gradient format, summed over ranks and leaves for its
  /// tier.
  void reduce_scatter(UnitId unit);

  ActivationArea& activations();

  /// Norm over all gradients handed over since the last step, clip, update every unit that has a gradient.
  /// Returns when the new state is in place. A non-finite norm updates nothing.
  StepResult step(const StepOptions& options);
  /// Drops the gradients handed over since the last step.
  void discard_gradients();

  /// Calls `visit` with the unit's state, tile after tile (of at most adam::kTileElems elements) in ascending
  /// order, over UnitLayout::elems. Not while a unit is gathered or a gradient is open.
  void visit_state(UnitId unit, StateAccess access, const std::function<void(const StateTile&)>& visit);

  [[nodiscard]] Stats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
