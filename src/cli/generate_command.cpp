// SPDX-License-Identifier: Apache-2.0
// `headrace generate`: continues a text with a saved run's model, byte by byte.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/saved_run.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/output.h"
#include "cli/rehearsal.h"
#include "cli/stop_signal.h"
#include "headrace/error.h"
#include "train/trainer.h"

namespace headrace::cli {

namespace {

/// A terminal would obey control bytes; a file or pipe gets every byte as it is.
int shown(int32_t byte) {
  static const bool kTerminal = isatty(STDOUT_FILENO) == 1;
  const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
  return kTerminal && control ? '?' : byte;
}

/// A saved run names the drives of the machine that it was trained on.
[[noreturn]] void rethrow_with_other_places(const Error& error) {
  throw Error(
      fmt::format("{}; to generate without those drives: --set 'nvme.paths=[\"FOLDER\"]', or --set "
                  "offload.weights=host --set offload.optimizer=host --set offload.activations=host",
                  error.what()));
}

bool is_about_drives(const IoError& error, const Config& config) {
  const auto& paths = config.engine.nvme.paths;
  return std::any_of(paths.begin(), paths.end(),
                     [&](const std::string& path) { return error.path.starts_with(path); });
}

/// Generation takes one window at a time, whatever the training took.
Config one_row(Config config) {
  config.train.micro_batch = config.train.grad_accum = 1;
  return config;
}

void write_continuation(const GenerateCommand& command, const SavedRun& saved, const Config& config) {
  std::vector<int32_t> prompt;
  for (const char c : command.prompt) prompt.push_back(static_cast<unsigned char>(c));
  rehearse(needs_of(plan_run(one_row(config)), config));
  catch_stop_signals();
  bool first = true;
  generate(config, saved.folder(), prompt, command.tokens, command.temperature, command.seed,
           [&](int32_t token) {
             if (first) print("{}", command.prompt);
             first = false;
             // Ids beyond the bytes exist when model.vocab was given larger; they have no text.
             if (token < 256) print("{:c}", char(shown(token)));
             return output_error() == 0 && !stop_requested();
           });
  if (!first) print("\n");
}

}  // namespace

int run_generate(const GenerateCommand& command) {
  const auto saved =
      SavedRun::newest(command.run_dir, [](const std::string& line) { print_error("{}", line); });
  if (!saved) throw Error(fmt::format("{} holds no complete saved run", command.run_dir));
  const LoadedConfig loaded =
      parse_config(saved->config_toml(), saved->folder() + "/config.toml", command.sets);
  if (loaded.config.train_data.format != TokenFormat::text) {
    throw Error(
        fmt::format("{} was trained on token ids, not on bytes (data.format): its tokens have no text here",
                    saved->folder()));
  }
  if (command.prompt.empty()) throw ConfigError("--prompt", "is empty");
  try {
    write_continuation(command, *saved, loaded.config);
  } catch (const ConfigError& error) {
    if (error.key == "nvme.paths") rethrow_with_other_places(error);
    loaded.rethrow(error);
  } catch (const IoError& error) {
    if (is_about_drives(error, loaded.config)) rethrow_with_other_places(error);
    throw;
  } catch (const OutOfMemory& error) {
    if (error.tier == tier_name(Tier::nvme)) rethrow_with_other_places(error);
    throw;
  }
  check_output();
  return kExitOk;
}

}  // namespace headrace::cli
