// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "checkpoint/directory_lock.h"
#include "checkpoint/saved_run.h"
#include "headrace/error.h"
#include "train/measurement.h"
#include "train/saving.h"
#include "train/schedule.h"
#include "train/sizing.h"
#include "train/step.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A saved run below a saved run would not be found by --resume.
const std::string& checked_checkpoint_dir(const Config& config) {
  if (is_saved_run(config.checkpoint_dir)) {
    throw ConfigError("checkpoint.dir",
                      fmt::format("{} is a saved run; name its parent folder", config.checkpoint_dir));
  }
  return config.checkpoint_dir;
}

std::vector<Batch> make_batches(const StepShape& shape) {
  std::vector<Batch> batches(size_t(shape.grad_accum));
  for (Batch& batch : batches) batch.resize(shape.micro_batch, shape.seq_len);
  return batches;
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(Config config_in, std::string config_toml_in, TrainerEvents events_in);
  bool resume();
  RunSummary run();
  const Engine& engine() const { return engine_; }

 private:
  StepContext context() { return {engine_, *model_, memory_, order_}; }
  std::span<const Batch> next_micro_batches();
  void one_step();
  void after_step(const StepOutcome& outcome, StepMetrics& metrics);
  void train_to_the_end();
  void evaluate_now();
  void save();
  void save_now();
  /// Inside a handler: throws what was caught, nested in an Error that tells what became of the state.
  [[noreturn]] void end_with(const std::exception& failure);
  void ensure_state();
  void set_earlier_runs_aside();
  void tell_of_earlier_runs() const;
  bool stopped() const { return events_.stop_requested && events_.stop_requested(); }
  bool finished() const { return state_.attempted_steps >= config_.train.steps; }
  bool due(uint64_t every) const { return every > 0 && state_.attempted_steps % every == 0; }
  void tell(const std::function<void(const std::string&)>& to, const std::string& line) const {
    if (to) to(line);
  }

  Config config_;
  std::string config_toml_;
  TrainerEvents events_;
  saved::DirectoryLock lock_;
  std::unique_ptr<TokenSource> train_source_, valid_source_;
  std::unique_ptr<Model> model_;
  RunSizing sizing_;
  StepMemory memory_;
  GatherOrder order_;
  Engine engine_;
  WindowLoader loader_;
  std::vector<Batch> batches_;
  RunState state_;
  bool has_state_ = false;
  /// The engine holds what state_ counts, which is worth keeping and may be tried to save.
  bool can_save_ = true;
  std::optional<uint64_t> saved_at_;
  RunSummary summary_;
};

Trainer::Impl::Impl(Config config, std::string config_toml, TrainerEvents events)
    : config_(std::move(config)),
      config_toml_(std::move(config_toml)),
      events_(std::move(events)),
      lock_(checked_checkpoint_dir(config_)),
      train_source_(TokenSource::open(config_.train_data, config_.seq_len, config_.model.vocab)),
      valid_source_(config_.valid_data.paths.empty()
                        ? nullptr
                        : TokenSource::open(config_.valid_data, config_.seq_len, config_.model.vocab)),
      model_(make_model(config_.model, config_.engine.precision, device_kind(config_))),
      sizing_(size_run(config_, *model_)),
      memory_(*model_, sizing_.shape),
      order_(*model_),
      engine_(sizing_.engine, {model_->units().begin(), model_->units().end()}),
      loader_(*train_source_, config_.train.seed, 0, 1),
      batches_(make_batches(sizing_.shape)) {
  if (!lock_.held()) {
    tell(events_.on_warning, fmt::format("{} is on a file system without locks: see to it that no other "
                                         "training has it as checkpoint.dir",
                                         config_.checkpoint_dir));
  }
  memory_.place(engine_.workspace());
  state_.seed = config_.train.seed;
  // A saved position counts windows, so their length belongs to what it is a position in.
  state_.model = model_text(config_.model);
  state_.data_fingerprint = fmt::format("{}; windows of {}", train_source_->fingerprint(), config_.seq_len);
}

bool Trainer::Impl::resume() {
  auto run = SavedRun::newest(config_.checkpoint_dir,
                              [&](const std::string& line) { tell(events_.on_warning, line); });
  if (!run) {
    tell_of_earlier_runs();
    return false;
  }
  check_same_model(*run, config_.model);
  if (run->state().data_fingerprint != state_.data_fingerprint) {
    throw ConfigError("data.train",
                      fmt::format("the saved run {} was trained on other data ({} instead of {})",
                                  run->folder(), run->state().data_fingerprint, state_.data_fingerprint));
  }
  if (run->state().seed != config_.train.seed) {
    throw ConfigError("train.seed",
                      fmt::format("the saved run {} has seed {}", run->folder(), run->state().seed));
  }
  try {
    load_run(engine_, *run);
  } catch (const CorruptData& error) {
    throw Error(
        fmt::format("{}; to resume from the saved run before it, remove {}", error.what(), run->folder()));
  }
  state_ = run->state();
  loader_.seek({state_.data_epoch, state_.data_window});
  has_state_ = true;
  saved_at_ = state_.attempted_steps;
  summary_.saved_folder = run->folder();
  tell(events_.on_notice, fmt::format("resumed from {} at step {}", run->folder(), state_.attempted_steps));
  return true;
}

void Trainer::Impl::ensure_state() {
  if (has_state_) return;
  initialize_run(engine_, *model_, config_.train.seed);
  has_state_ = true;
}

/// Up to grad_accum micro-batches; fewer at the end of an epoch, whose last step divides by its own token
/// count.
std::span<const Batch> Trainer::Impl::next_micro_batches() {
  size_t count = 0;
  while (count < batches_.size() && loader_.next(batches_[count], count > 0)) ++count;
  return {batches_.data(), count};
}

void Trainer::Impl::one_step() {
  const auto start = Clock::now();
  const Stats before = engine_.stats();
  StepMetrics metrics;
  const std::span<const Batch> micro_batches = next_micro_batches();
  StepOptions options{
      .adam = config_.optimizer.adam, .grad_clip = config_.optimizer.grad_clip, .t = state_.step + 1};
  options.adam.lr = learning_rate(config_.optimizer, state_.step, config_.train.steps);
  options.adam.seed = config_.train.seed;
  metrics.lr = options.adam.lr;

  can_save_ = false;  // until all units are updated and counted
  const StepOutcome outcome = train_step(context(), micro_batches, options);

  metrics.step_ms = seconds_since(start) * 1e3;
  metrics.delta = difference(engine_.stats(), before);
  after_step(outcome, metrics);
}

void Trainer::Impl::after_step(const StepOutcome& outcome, StepMetrics& metrics) {
  ++state_.attempted_steps;
  state_.tokens += uint64_t(outcome.counted);
  std::tie(state_.data_epoch, state_.data_window) =
      std::pair(loader_.position().epoch, loader_.position().window);
  if (outcome.skipped) {
    ++state_.skipped_steps;
    ++state_.skipped_in_a_row;
    tell(events_.on_warning,
         outcome.counted == 0
             ? fmt::format("step {}: no target counts, nothing was updated", state_.attempted_steps)
             : fmt::format("step {}: the gradient norm is {}, nothing was updated", state_.attempted_steps,
                           outcome.grad_norm));
  } else {
    ++state_.step;
    state_.skipped_in_a_row = 0;
  }
  can_save_ = true;
  metrics.step = state_.attempted_steps;
  metrics.tokens = state_.tokens;
  metrics.loss = outcome.loss;
  metrics.grad_norm = outcome.grad_norm;
  metrics.skipped = outcome.skipped;
  metrics.skipped_steps = state_.skipped_steps;
  metrics.tokens_per_s = metrics.step_ms > 0 ? double(outcome.counted) / metrics.step_ms * 1e3 : 0;
  metrics.peak_rss_bytes = peak_rss_bytes();
  summary_.train_loss = outcome.loss;
  summary_.trained_tokens += uint64_t(outcome.counted);
  if (events_.on_step) events_.on_step(metrics);
  if (config_.optimizer.max_skipped_steps > 0 &&
      state_.skipped_in_a_row >= config_.optimizer.max_skipped_steps) {
    can_save_ = false;  // it would push out saved runs of before the divergence
    throw Error(fmt::format(
        "{} steps in a row were skipped (optimizer.max_skipped_steps): the training has diverged; "
        "lower optimizer.lr or look at the data near step {}",
        state_.skipped_in_a_row, state_.attempted_steps));
  }
}

void Trainer::Impl::evaluate_now() {
  if (!valid_source_) return;
  WindowLoader loader(*valid_source_, config_.train.seed, 0, 1);
  EvalMetrics metrics{.step = state_.attempted_steps};
  double loss_sum = 0;
  std::vector<Batch> batches = make_batches(sizing_.shape);
  for (uint64_t left = config_.train.eval_batches; left > 0;) {
    size_t count = 0;
    while (count < std::min<uint64_t>(batches.size(), left) && loader.next(batches[count], true)) ++count;
    if (count == 0) break;
    if (stopped()) return;  // a loss over a part would be mistaken for one over all
    left -= count;
    loss_sum += evaluate(context(), {batches.data(), count});
    for (size_t i = 0; i < count; ++i) metrics.tokens += uint64_t(batches[i].counted());
  }
  if (metrics.tokens == 0) return;
  metrics.loss = loss_sum / double(metrics.tokens);
  summary_.valid_loss = metrics.loss;
  if (events_.on_eval) events_.on_eval(metrics);
}

/// Before the first saved run of a training that did not resume gets its name.
void Trainer::Impl::set_earlier_runs_aside() {
  if (const auto folder = set_aside_saved_runs(config_.checkpoint_dir)) {
    tell(events_.on_notice,
         fmt::format("{} held saved runs of an earlier training; they are in {} now (--resume "
                     "would have continued it)",
                     config_.checkpoint_dir, *folder));
  }
}

void Trainer::Impl::tell_of_earlier_runs() const {
  const std::vector<std::string> folders = folders_set_aside(config_.checkpoint_dir);
  if (folders.empty()) return;
  tell(events_.on_notice,
       fmt::format("saved runs of earlier trainings are in {}; to go on with one, name its "
                   "folder as checkpoint.dir",
                   fmt::join(folders, ", ")));
}

void Trainer::Impl::save() {
  can_save_ = false;  // what fails once is not tried again
  SavedRunWriter writer(config_.checkpoint_dir, state_, engine_.format(), config_toml_);
  add_units(writer, engine_);
  summary_.saved_folder = writer.finish([this] {
    if (!saved_at_) set_earlier_runs_aside();
  });
  saved_at_ = state_.attempted_steps;
  can_save_ = true;
}

void Trainer::Impl::save_now() {
  if (saved_at_ == state_.attempted_steps || state_.attempted_steps == 0) return;
  save();
  retain_newest(config_.checkpoint_dir, config_.checkpoint_keep);
  if (events_.on_saved) events_.on_saved(summary_.saved_folder, state_.attempted_steps);
}

void Trainer::Impl::end_with(const std::exception& failure) {
  if (state_.attempted_steps == 0 || !can_save_) throw;
  std::string outcome;
  try {
    if (saved_at_ != state_.attempted_steps) save();
    outcome = fmt::format("all {} steps are saved in {}, --resume continues from there",
                          state_.attempted_steps, summary_.saved_folder);
  } catch (const std::exception& error) {
    outcome = fmt::format("the steps since the last saved run are lost: {}", error.what());
  }
  std::throw_with_nested(Error(fmt::format("{}; {}", failure.what(), outcome)));
}

void Trainer::Impl::train_to_the_end() {
  const auto start = Clock::now();
  const Stats before = engine_.stats();
  while (!finished() && !stopped()) {
    one_step();
    if (due(config_.checkpoint_every)) save_now();
    if (due(config_.train.eval_every) && !finished()) evaluate_now();
  }
  summary_.seconds = seconds_since(start);
  summary_.stats = difference(engine_.stats(), before);
  save_now();
  if (finished()) evaluate_now();
}

RunSummary Trainer::Impl::run() {
  ensure_state();
  try {
    train_to_the_end();
  } catch (const std::exception& failure) {
    end_with(failure);
  }
  summary_.step = state_.attempted_steps;
  return summary_;
}

Trainer::Trainer(Config config, std::string config_toml, TrainerEvents events)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(config_toml), std::move(events))) {}
Trainer::~Trainer() = default;
bool Trainer::resume() {
  return impl_->resume();
}
RunSummary Trainer::run() {
  return impl_->run();
}
const Plan& Trainer::plan() const {
  return impl_->engine().plan();
}
std::string Trainer::engine_description() const {
  return impl_->engine().description();
}

}  // namespace headrace
