// SPDX-License-Identifier: Apache-2.0
// `headrace train`: runs the trainer and shows, records and sums up what it tells.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <optional>

#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/metrics_file.h"
#include "cli/metrics_line.h"
#include "cli/output.h"
#include "cli/output_folders.h"
#include "cli/progress.h"
#include "cli/rehearsal.h"
#include "cli/report.h"
#include "cli/stop_signal.h"
#include "data/token_source.h"

namespace headrace::cli {
namespace {

/// Takes the trainer's events to the terminal and to metrics.jsonl.
class RunLog {
 public:
  explicit RunLog(const Config& config)
      : progress_(stdout, config.train.steps, config.train.log_every), log_dir_(config.log_dir) {
    spdlog::set_default_logger(spdlog::stderr_color_st("headrace"));
    spdlog::set_pattern("headrace: %^%l%$: %v");
  }

  TrainerEvents events() {
    return {.on_step = [this](const StepMetrics& metrics) { on_step(metrics); },
            .on_eval = [this](const EvalMetrics& metrics) { on_eval(metrics); },
            .on_saved = [this](const std::string& folder, uint64_t step) { on_saved(folder, step); },
            .on_notice = [this](const std::string& line) { progress_.print(line); },
            .on_warning =
                [this](const std::string& line) {
                  progress_.finish();
                  spdlog::warn("{}", line);
                },
            .stop_requested = [] { return stop_requested(); }};
  }

  void open(bool resumed) {
    metrics_.emplace(log_dir_, resumed);
    resumed_ = resumed;
  }
  void print(const std::string& line) { progress_.print(line); }
  void finish() { progress_.finish(); }
  [[nodiscard]] uint64_t peak_rss_bytes() const { return peak_rss_bytes_; }
  [[nodiscard]] const std::string& metrics_path() const { return metrics_->path(); }

 private:
  void on_step(const StepMetrics& metrics) {
    record_resume(metrics.step - 1);
    metrics_->append(train_line(metrics));
    peak_rss_bytes_ = metrics.peak_rss_bytes;
    progress_.step(metrics);
  }
  void on_eval(const EvalMetrics& metrics) {
    record_resume(metrics.step);
    metrics_->append(eval_line(metrics));
    progress_.print(fmt::format("step {} | validation loss {:.4f} over {} tokens", metrics.step, metrics.loss,
                                metrics.tokens));
  }
  void on_saved(const std::string& folder, uint64_t step) {
    record_resume(step);
    metrics_->append(saved_line(step, folder));
    progress_.print(fmt::format("step {} | saved {}", step, folder));
  }
  /// The step that a run was resumed at is known with its first event.
  void record_resume(uint64_t step) {
    if (!resumed_) return;
    resumed_ = false;
    metrics_->append(resume_line(step));
  }

  Progress progress_;
  std::string log_dir_;
  std::optional<MetricsFile> metrics_;
  bool resumed_ = false;
  uint64_t peak_rss_bytes_ = 0;
};

void check_names_data(const Config& config) {
  if (config.train_data.paths.empty()) throw ConfigError("data.train", "names no file to train on");
}

/// The plan, and whether drives, data and device are what it takes; makes nothing.
int dry_run(const Config& config) {
  const Plan plan = plan_run(config);
  print("{}", plan_table(plan));
  flush(stdout);
  check_plan(plan, engine_options_for(config));
  check_names_data(config);
  for (const DataFiles* files : {&config.train_data, &config.valid_data}) {
    if (!files->paths.empty()) (void)TokenSource::open(*files, config.seq_len, config.model.vocab);
  }
  check_device(config.engine.device);
  check_output();
  return kExitOk;
}

/// Everything that can be known to fail before the first step fails here.
void check_before_training(const Config& config) {
  check_names_data(config);
  const Plan plan = plan_run(config);
  check_plan(plan, engine_options_for(config));
  rehearse(needs_of(plan, config));
  prepare_folder("checkpoint.dir", config.checkpoint_dir);
  prepare_folder("log.dir", config.log_dir);
  check_room_for_saved_run(plan, config);
}

void print_result(const TrainCommand& command, const Config& config, const RunSummary& summary,
                  const RunLog& log) {
  print("\n{}{:<16}{}\n", run_report(summary, config, log.peak_rss_bytes()), "metrics", log.metrics_path());
  if (stop_requested() && summary.step < config.train.steps) {
    print("\nstopped after step {} of {}; continue with: headrace train {} --resume (and the same --set)\n",
          summary.step, config.train.steps, command.config_path);
  }
  if (const int code = output_error()) {
    print_error("standard output could not be written ({}); the run went on, its result is {}",
                std::strerror(code), summary.saved_folder);
  }
}

int train(const TrainCommand& command, const Config& config) {
  check_before_training(config);
  // Planning ends at once on a signal; from here on there is swapped state to clean up and work to save.
  catch_stop_signals();
  RunLog log(config);
  Trainer trainer(config, print_config(config), log.events());
  log.print(trainer.engine_description());
  bool resumed = false;
  if (command.resume) {
    resumed = trainer.resume();
    if (!resumed) {
      log.print(fmt::format("nothing to resume in {}: starting from the beginning", config.checkpoint_dir));
    }
  }
  if (stop_requested()) {
    log.print("stopped before the first step");
    return kExitOk;
  }
  log.open(resumed);
  const RunSummary summary = trainer.run();
  log.finish();
  print_result(command, config, summary, log);
  return kExitOk;
}

}  // namespace

int run_train(const TrainCommand& command) {
  const LoadedConfig loaded = load_config(command.config_path, command.sets);
  if (command.print_config) {
    print("{}", print_config(loaded.config));
    check_output();
    return kExitOk;
  }
  try {
    return command.dry_run ? dry_run(loaded.config) : train(command, loaded.config);
  } catch (const ConfigError& error) {
    loaded.rethrow(error);
  }
}

}  // namespace headrace::cli
