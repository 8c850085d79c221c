// SPDX-License-Identifier: Apache-2.0
// `headrace bench`: what the machine gives and what headrace makes of it. Measures, prints a table, and with
// --json leaves a complete file or none.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "bench/adam_bench.h"
#include "bench/adam_report.h"
#include "checkpoint/file.h"
#include "cli/byte_text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

namespace fs = std::filesystem;

// Below, state that caches hold would answer for the memory.
constexpr uint64_t kFewestParams = uint64_t(1) << 20, kMostParams = uint64_t(1) << 40;

/// A file that appears under its name when it is complete.
class CompleteFile {
 public:
  /// Tells at once what would only be found out after the measurement.
  explicit CompleteFile(const std::string& path)
      : path_(path), unfinished_(path + ".unfinished." + std::to_string(getpid())) {
    std::error_code unknown;
    const fs::file_status status = fs::status(path, unknown);
    if (fs::exists(status) && !fs::is_regular_file(status)) {
      throw Error("--json " + path + ": not a regular file; name another one");
    }
    write_unfinished("");
  }
  ~CompleteFile() { remove_unfinished(); }
  CompleteFile(const CompleteFile&) = delete;
  CompleteFile& operator=(const CompleteFile&) = delete;

  void write(std::string_view text) {
    write_unfinished(text);
    std::error_code unknown, error;
    // Where a link leads, so that the link stays.
    const fs::path target = fs::exists(path_, unknown) ? fs::canonical(path_, unknown) : fs::path(path_);
    fs::rename(unfinished_, target, error);
    if (error) throw IoError("write", path_, error.value());
  }

 private:
  /// Nothing stays behind that a signal could leave lying about during the measurement.
  void write_unfinished(std::string_view text) {
    try {
      saved::write_file(unfinished_, text);
    } catch (const IoError& error) {
      remove_unfinished();
      throw IoError("write", path_, error.error_code);
    }
    if (text.empty()) remove_unfinished();
  }
  void remove_unfinished() const {
    std::error_code ignored;
    fs::remove(unfinished_, ignored);
  }

  std::string path_, unfinished_;
};

size_t checked_params(uint64_t params) {
  if (params < kFewestParams || params > kMostParams) {
    throw ConfigError("--params", fmt::format("takes {} to {}, not {}: fewer fit into caches, whose speed is "
                                              "not the memory's",
                                              kFewestParams, kMostParams, params));
  }
  return (params + adam::kTileElems - 1) / adam::kTileElems * adam::kTileElems;
}

std::vector<int> checked_threads(const std::vector<int>& wanted) {
  const int cores = adam::Workers().threads();
  std::vector<int> threads;
  for (const int count : wanted.empty() ? std::vector<int>{1, cores} : wanted) {
    if (count < 1 || count > cores) {
      throw ConfigError("--threads", fmt::format("takes 1 to {}, the cores there are, not {}", cores, count));
    }
    if (std::ranges::count(threads, count) == 0) threads.push_back(count);
  }
  return threads;
}

std::vector<const bench::AdamVariant*> checked_variants(const std::vector<std::string>& wanted) {
  std::vector<const bench::AdamVariant*> variants;
  for (const std::string& name : wanted) {
    const bench::AdamVariant* variant = bench::find_adam_variant(name);
    if (!variant) {
      throw ConfigError("--variant", fmt::format("\"{}\" is none of: {}", name, bench::adam_variant_names()));
    }
    if (std::ranges::count(variants, variant) == 0) variants.push_back(variant);
  }
  if (wanted.empty()) {
    for (const bench::AdamVariant& variant : bench::adam_variants()) variants.push_back(&variant);
  }
  return variants;
}

void print_estimate(const bench::AdamBenchOptions& options, int done, double seconds) {
  if (done != 1) return;
  print("{} rounds, {} left\n\n", options.rounds, readable_seconds(seconds * (options.rounds - 1)));
  flush(stdout);
}

}  // namespace

int run_bench_adam(const BenchAdamCommand& command) {
  bench::AdamBenchOptions options{.params = checked_params(command.params),
                                  .threads = checked_threads(command.threads),
                                  .variants = checked_variants(command.variants)};
  options.after_round = [&](int done, double seconds) { print_estimate(options, done, seconds); };
  std::optional<CompleteFile> json;
  if (!command.json_path.empty()) json.emplace(command.json_path);
  const bench::AdamBench measured = bench::measure_adam(options);
  print("{}", bench::adam_table(measured));
  if (json) json->write(bench::adam_json(measured));
  check_output();
  return kExitOk;
}

}  // namespace headrace::cli
