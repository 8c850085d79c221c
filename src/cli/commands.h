// SPDX-License-Identifier: Apache-2.0
// The commands of the program. Each takes its parsed command line and returns the exit code; what goes wrong
// is thrown and becomes one line in main(). kExitUsage is for a command line or a configuration that cannot
// be meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::cli {

constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct TrainCommand {
  std::string config_path;
  std::vector<std::string> sets;
  bool resume = false, dry_run = false, print_config = false;
};
int run_train(const TrainCommand& command);

struct PlanCommand {
  std::string config_path;
  std::vector<std::string> sets;
  bool json = false;
};
int run_plan(const PlanCommand& command);

struct GenerateCommand {
  std::string run_dir, prompt;
  std::vector<std::string> sets;
  int64_t tokens = 200;
  double temperature = 0.8;
  uint64_t seed = 1;
};
int run_generate(const GenerateCommand& command);

struct DoctorCommand {
  std::vector<std::string> paths;
  bool clean = false;
};
int run_doctor(const DoctorCommand& command);

struct BenchAdamCommand {
  std::string json_path;  ///< empty: no file
  uint64_t params = uint64_t(32) << 20;
  std::vector<int> threads;           ///< empty: one, and all cores
  std::vector<std::string> variants;  ///< empty: all
};
int run_bench_adam(const BenchAdamCommand& command);

/// Several lines: version, compiler, instruction sets, libraries, CUDA.
std::string version_text();

}  // namespace headrace::cli
