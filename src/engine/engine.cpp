// SPDX-License-Identifier: Apache-2.0
// The engine assembled from its parts. What it owns, in order of construction; everything that moves bytes is
// destroyed before the memory it moves them in.
#include "headrace/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/communicator.h"
#include "device/cuda_info.h"
#include "device/device.h"
#include "device/range.h"
#include "engine/sizing.h"
#include "headrace/error.h"
#include "swap/activation_store.h"
#include "zero/gradients.h"
#include "zero/weights.h"

namespace headrace {
namespace {

DeviceOptions::Kind kind_of(DeviceChoice choice) {
  return choice == DeviceChoice::cuda   ? DeviceOptions::Kind::cuda
         : choice == DeviceChoice::host ? DeviceOptions::Kind::host
                                        : DeviceOptions::Kind::automatic;
}

Sizing checked_sizing(const EngineOptions& options, std::span<const UnitSpec> units) {
  Sizing sizing = size_engine(options, units, 1);
  check_plan(sizing.plan, options);
  return sizing;
}

}  // namespace

DeviceKind resolve_device(DeviceChoice choice) {
  return resolve_device(kind_of(choice));
}

void check_device(DeviceChoice choice) {
  (void)make_device({.kind = kind_of(choice), .memory_bytes = 0});
}

class Engine::Impl {
 public:
  Impl(const EngineOptions& options_in, std::vector<UnitSpec> units_in);
  ~Impl();

  const EngineOptions options;
  const std::vector<UnitSpec> units;
  const Sizing sizing;
  HostMemory host_memory;
  Arena host;
  std::unique_ptr<Device> device;
  WaitClock clock;
  std::unique_ptr<Communicator> comm;
  std::vector<std::unique_ptr<nvme::Store>> stores;
  Residency residency;
  std::byte* workspace = nullptr;
  std::unique_ptr<SlotPool> weight_slots, gradient_slots, activation_slots;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<Gradients> gradients;
  std::unique_ptr<ActivationStore> activations;
  adam::Workers workers;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<bool> gathered;  ///< by unit: the rules of use are the same on every tier

  void check_unit(UnitId unit) const { HEADRACE_CHECK(size_t(unit) < units.size(), "no such unit"); }
  void check_nothing_gathered() const {
    HEADRACE_CHECK(std::find(gathered.begin(), gathered.end(), true) == gathered.end(),
                   "state is used while a unit is gathered");
  }

 private:
  void open_stores();
  void place_state();
  Place place(Tier tier, size_t unit, const std::string& name, uint64_t bytes);
  std::unique_ptr<SlotPool> make_slots(size_t count);
  void assemble();
};

Engine::Impl::Impl(const EngineOptions& options_in, std::vector<UnitSpec> units_in)
    : options(options_in),
      units(std::move(units_in)),
      sizing(checked_sizing(options, units)),
      host_memory(sizing.plan.total(Tier::host)),
      host("host", "raise offload.host_memory", host_memory.bytes()),
      device(make_device({.kind = kind_of(options.device), .memory_bytes = sizing.plan.total(Tier::device)})),
      clock(device.get()),
      comm(make_single_communicator()),
      residency(units.size()),
      workers(int(options.optimizer_threads), options.pin_optimizer),
      gathered(units.size(), false) {
  device->pin(host_memory.bytes());
  open_stores();
  place_state();
  assemble();
  HEADRACE_CHECK(round_up(host.used()) == sizing.plan.total(Tier::host), "host memory differs from the plan");
  HEADRACE_CHECK(round_up(device->memory().used()) == sizing.plan.total(Tier::device),
                 "device memory differs from the plan");
}

Engine::Impl::~Impl() {
  for (Stream* stream : {&device->h2d(), &device->compute(), &device->d2h()}) {
    try {
      stream->synchronize();
    } catch (const std::exception&) {
      // Whoever waited for the failed work has been told; here only the memory's users must be gone.
    }
  }
}

void Engine::Impl::open_stores() {
  for (size_t i = 0; i < options.nvme.paths.size(); ++i) {
    if (sizing.plan.nvme_path_bytes[i] == 0) {
      stores.push_back(nullptr);
      continue;
    }
    stores.push_back(std::make_unique<nvme::Store>(nvme::Options{.path = options.nvme.paths[i],
                                                                 .run_id = options.nvme.run_id,
                                                                 .chunk_bytes = options.nvme.chunk_bytes,
                                                                 .queue_depth = options.nvme.queue_depth,
                                                                 .engine = options.nvme.engine,
                                                                 .direct = options.nvme.direct,
                                                                 .verify = options.nvme.verify}));
    stores.back()->register_memory(host_memory.bytes());
  }
}

Place Engine::Impl::place(Tier tier, size_t unit, const std::string& name, uint64_t bytes) {
  Place place{.tier = tier};
  if (bytes == 0) return place;
  if (tier == Tier::device) place.memory = device->memory().take(bytes, kPlanAlignment, name);
  if (tier == Tier::host) place.memory = host.take(bytes, kPlanAlignment, name);
  if (tier == Tier::nvme) {
    place.store = stores[unit % stores.size()].get();
    place.extent = place.store->create(name, bytes);
  }
  return place;
}

void Engine::Impl::place_state() {
  const Placement& tiers = sizing.placement;
  const std::pair<StateKind, Tier> kinds[] = {{StateKind::weights, tiers.weights},
                                              {StateKind::optimizer, tiers.optimizer},
                                              {StateKind::gradients, *tiers.gradients}};
  for (const auto& [kind, tier] : kinds) {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const std::string name = fmt::format("{}.{}", units[unit].name, state_kind_name(kind));
      residency.set(UnitId{uint32_t(unit)}, kind, place(tier, unit, name, sizing.layouts[unit].bytes(kind)));
    }
  }
}

std::unique_ptr<SlotPool> Engine::Impl::make_slots(size_t count) {
  if (count == 0) return nullptr;
  std::byte* memory = host.take(count * sizing.staging.slot_bytes, kPlanAlignment, "pinned slots");
  return std::make_unique<SlotPool>(*device, clock, memory, count, sizing.staging.slot_bytes);
}

void Engine::Impl::assemble() {
  const Staging& staging = sizing.staging;
  weight_slots = make_slots(staging.weight_slots);
  gradient_slots = make_slots(staging.gradient_slots);
  activation_slots = make_slots(staging.activation_slots);
  Arena& memory = device->memory();
  weights = std::make_unique<Weights>(Weights::Parts{*device, *comm, residency, sizing.layouts, clock,
                                                     weight_slots.get(), options.prefetch_units},
                                      memory);
  gradients = std::make_unique<Gradients>(
      Gradients::Parts{*device, *comm, residency, sizing.layouts, clock, gradient_slots.get()}, memory, host);
  if (options.activation_count > 0) {
    const uint64_t total = uint64_t(options.activation_count) *
                           ActivationStore::stride(options.activation_bytes, sizing.placement.activations);
    activations = std::make_unique<ActivationStore>(
        ActivationStore::Parts{*device, clock, place(sizing.placement.activations, 0, "activations", total),
                               options.activation_bytes, options.activation_count, options.activation_slots,
                               activation_slots.get()},
        memory);
  }
  if (options.workspace_bytes > 0)
    workspace = memory.take(options.workspace_bytes, kPlanAlignment, "workspace");
  optimizer =
      std::make_unique<Optimizer>(Optimizer::Parts{*device, residency, sizing.layouts, sizing.unit_layouts,
                                                   clock, workers, staging.windows},
                                  host);
}

Engine::Engine(const EngineOptions& options, std::vector<UnitSpec> units)
    : impl_(std::make_unique<Impl>(options, std::move(units))) {}
Engine::~Engine() = default;

const Plan& Engine::plan() const {
  return impl_->sizing.plan;
}
std::span<const UnitSpec> Engine::units() const {
  return impl_->units;
}
adam::Format Engine::format() const {
  return state_format(impl_->options);
}
const UnitLayout& Engine::layout(UnitId unit) const {
  impl_->check_unit(unit);
  return impl_->sizing.unit_layouts[size_t(unit)];
}

std::string Engine::description() const {
  std::string text = impl_->device->description();
  if (impl_->options.device == DeviceChoice::automatic &&
      impl_->device->compute().kind() == DeviceKind::host) {
    if (const std::string why = why_gpu_is_not_used(); !why.empty()) text += "\nno GPU is used: " + why;
  }
  for (const auto& store : impl_->stores) {
    if (!store) continue;
    text += fmt::format("\nnvme {}: {}", store->folder(),
                        store->engine() == nvme::EngineKind::io_uring ? "io_uring" : "posix");
    if (!store->engine_note().empty()) text += " (" + store->engine_note() + ")";
  }
  return text;
}

Stream& Engine::compute() {
  return impl_->device->compute();
}
std::byte* Engine::workspace() {
  return impl_->workspace;
}

void Engine::expect(std::span<const UnitId> order) {
  impl_->weights->expect(order);
}

WeightView Engine::gather(UnitId unit) {
  const Range range("gather");
  impl_->check_unit(unit);
  HEADRACE_CHECK(!impl_->gathered[size_t(unit)], "gathered twice without release");
  impl_->gathered[size_t(unit)] = true;
  return {impl_->weights->gather(unit), &layout(unit), impl_->options.precision};
}

void Engine::release(UnitId unit) {
  const Range range("release");
  impl_->check_unit(unit);
  HEADRACE_CHECK(impl_->gathered[size_t(unit)], "released without gather");
  impl_->gathered[size_t(unit)] = false;
  impl_->weights->release(unit);
}

GradientView Engine::gradient(UnitId unit) {
  impl_->check_unit(unit);
  return {impl_->gradients->accumulator(unit), &layout(unit)};
}
void Engine::reduce_scatter(UnitId unit) {
  const Range range("reduce_scatter");
  impl_->check_unit(unit);
  impl_->gradients->hand_over(unit);
}

ActivationArea& Engine::activations() {
  HEADRACE_CHECK(impl_->activations, "no activation checkpoints were declared");
  return *impl_->activations;
}

StepResult Engine::step(const StepOptions& options) {
  const Range range("step");
  impl_->check_nothing_gathered();
  double sum_squares = impl_->gradients->finish();
  impl_->comm->all_reduce({&sum_squares, 1});
  const double norm = std::sqrt(sum_squares);
  const bool skipped = !std::isfinite(norm);
  if (!skipped) {
    const double scale = adam::clip_coefficient(norm, options.grad_clip);
    adam::Options decaying = options.adam;
    decaying.rule = impl_->options.rule;
    adam::Options plain = decaying;
    plain.weight_decay = 0;
    const UpdateScalars scalars{adam::make_scalars(decaying, options.t, scale),
                                adam::make_scalars(plain, options.t, scale)};
    impl_->weights->invalidate();
    impl_->optimizer->update(impl_->gradients->handed_over(), scalars);
  }
  impl_->gradients->clear();
  return {norm, skipped};
}

void Engine::discard_gradients() {
  (void)impl_->gradients->finish();
  impl_->gradients->clear();
}

void Engine::visit_state(UnitId unit, StateAccess access,
                         const std::function<void(const StateTile&)>& visit) {
  impl_->check_unit(unit);
  impl_->check_nothing_gathered();
  if (access != StateAccess::read) impl_->weights->invalidate();
  impl_->optimizer->visit(unit, access, visit);
}

Stats Engine::stats() const {
  Stats stats;
  for (const auto& store : impl_->stores) {
    if (!store) continue;
    const LinkStats read = store->read_stats(), write = store->write_stats();
    for (auto [link, from] : {std::pair{Link::nvme_read, read}, std::pair{Link::nvme_write, write}}) {
      stats.link[size_t(link)].bytes += from.bytes;
      stats.link[size_t(link)].busy_ns = std::max(stats.link[size_t(link)].busy_ns, from.busy_ns);
    }
    stats.peak_nvme_bytes += store->reserved_bytes();
  }
  for (Link link : {Link::h2d, Link::d2h}) stats.link[size_t(link)] = impl_->device->link_stats(link);
  stats.wait_ns = impl_->clock.ns();
  stats.adam_ns = impl_->optimizer->adam_ns();
  stats.peak_device_bytes = round_up(impl_->device->memory().used());
  stats.peak_pinned_bytes = round_up(impl_->host.used());
  return stats;
}

}  // namespace headrace
