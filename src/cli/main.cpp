// SPDX-License-Identifier: Apache-2.0
// The program: its command line, and the one place where errors end. Exit codes: 0 done, 1 failure, 2 usage
// (the command line or the configuration).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <climits>
#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>

#include "cli/commands.h"
#include "cli/failure_text.h"
#include "cli/output.h"
#include "cli/stop_signal.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  // One value for each --set, or it would swallow the arguments that follow.
  command.add_option("--set", sets, "Override a key: table.key=value (TOML; what is not TOML is a text)")
      ->allow_extra_args(false);
}

void add_train(CLI::App& app, TrainCommand& options, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("train", "Train a transformer as CONFIG.toml says");
  command->add_option("CONFIG", options.config_path, "Configuration (TOML)")->required();
  add_sets(*command, options.sets);
  command->add_flag("--resume", options.resume, "Continue from the newest saved run in checkpoint.dir");
  command->add_flag("--dry-run", options.dry_run, "Plan the memory, compare it with the budgets, and stop");
  command->add_flag("--print-config", options.print_config, "Print the resolved configuration and stop");
  command->callback([&] { run = [&] { return run_train(options); }; });
}

void add_plan(CLI::App& app, PlanCommand& options, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("plan", "Show what CONFIG.toml puts on which tier");
  command->add_option("CONFIG", options.config_path, "Configuration (TOML)")->required();
  add_sets(*command, options.sets);
  command->add_flag("--json", options.json, "Print JSON");
  command->callback([&] { run = [&] { return run_plan(options); }; });
}

/// CLI::Range lets "nan" pass, which is neither below nor above.
std::string check_temperature(const std::string& text) {
  double value = 0;
  const bool number = CLI::detail::lexical_cast(text, value);
  return number && value >= 0 && value <= 1e6 ? "" : "takes a number from 0 to 1e6, not " + text;
}

/// Read as unsigned, "-1" would be the largest number.
std::string check_unsigned(const std::string& text) {
  return text.starts_with('-') ? "takes an integer from 0, not " + text : "";
}

void add_generate(CLI::App& app, GenerateCommand& options, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("generate", "Continue a text with a saved run's model (bytes as tokens)");
  command->add_option("RUN_DIR", options.run_dir, "Folder of saved runs, or one saved run")->required();
  command->add_option("--prompt", options.prompt, "The text to continue")->required();
  command->add_option("--tokens", options.tokens, "Bytes to add")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 32));
  command->add_option("--temperature", options.temperature, "0: always the likeliest byte")
      ->capture_default_str()
      ->check(CLI::Validator(check_temperature, "FROM 0 TO 1e6"));
  command->add_option("--seed", options.seed, "Of the random choices")
      ->capture_default_str()
      ->check(CLI::Validator(check_unsigned, "FROM 0"));
  add_sets(*command, options.sets);
  command->callback([&] { run = [&] { return run_generate(options); }; });
}

void add_doctor(CLI::App& app, DoctorCommand& options, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("doctor", "Tell what this machine can do, and what to do about the rest");
  command->add_option("PATH", options.paths, "Folders meant for nvme.paths (default: the current one)");
  command->add_flag("--clean", options.clean, "Remove what dead runs left in them");
  command->callback([&] { run = [&] { return run_doctor(options); }; });
}

void add_bench_adam(CLI::App& bench, BenchAdamCommand& options, std::function<int()>& run) {
  CLI::App* command =
      bench.add_subcommand("adam", "The optimizer update in variants, beside what the memory allows");
  command->add_option("--json", options.json_path, "Write the results to this file");
  command->add_option("--params", options.params, "Parameters; rounded up to a multiple of 65536")
      ->capture_default_str()
      ->check(CLI::Validator(check_unsigned, "FROM 0"));
  command->add_option("--threads", options.threads, "Numbers of threads (default: 1 and all cores)");
  command->add_option("--variant", options.variants, "Names of variants (default: all)");
  command->callback([&] { run = [&] { return run_bench_adam(options); }; });
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("headrace trains models far larger than the accelerator's memory");
  app.name("headrace");
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) { return std::string(error.what()); });
  app.set_version_flag("--version", [] { return version_text(); });
  app.footer("Exit codes: 0 done, 1 failure, 2 usage (command line or configuration)");
  std::function<int()> run;
  TrainCommand train;
  add_train(app, train, run);
  PlanCommand plan;
  add_plan(app, plan, run);
  GenerateCommand generate;
  add_generate(app, generate, run);
  DoctorCommand doctor;
  add_doctor(app, doctor, run);
  CLI::App* bench = app.add_subcommand("bench", "Measure parts of headrace beside what this machine allows");
  bench->require_subcommand(1);
  BenchAdamCommand bench_adam;
  add_bench_adam(*bench, bench_adam, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_text) {
    std::ostringstream text, unused;
    app.exit(asked_for_text, text, unused);
    print("{}", text.str());
    check_output();
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    print_error("{}; see headrace --help", error.what());
    return kExitUsage;
  }
  return run();
}

/// libgomp reads OMP_WAIT_POLICY when it is loaded, before main. Idle OpenMP threads that spin take the cores
/// from I/O and optimizer threads, so the program starts itself once more with the policy set. A short spin,
/// a quarter of a millisecond, stays: without it each of a step's thousands of parallel regions wakes a
/// sleeping thread, which cost 5-15% of a GPT-2 124M step on 2 cores.
void make_openmp_wait_passively(char** argv) {
  constexpr const char* kGuard = "HEADRACE_OPENMP_SET";
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv(kGuard)) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", "5000", 0);
  setenv(kGuard, "1", 1);
  // The path itself: started as /proc/self/exe, the process would be named "exe".
  std::array<char, PATH_MAX> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) > 0) execv(path.data(), argv);
  // Without /proc the policy stays as it was, which costs speed only.
}

}  // namespace
}  // namespace headrace::cli

int main(int argc, char** argv) {
  using namespace headrace::cli;
  fill_standard_descriptors();
  make_openmp_wait_passively(argv);
  make_write_failures_errors();
  try {
    return parse_and_run(argc, argv);
  } catch (const headrace::ConfigError& error) {
    print_error("{}", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    print_error("{}", failure_text(error));
    return kExitFailure;
  }
}
