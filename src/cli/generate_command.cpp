// SPDX-License-Identifier: Apache-2.0
// `headrace generate`: continues a text with a saved run's model, byte by byte.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "checkpoint/saved_run.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "train/trainer.h"

namespace headrace::cli {

namespace {

/// A terminal would obey control bytes; a file or pipe gets every byte as it is.
int shown(int32_t byte) {
  static const bool kTerminal = isatty(STDOUT_FILENO) == 1;
  const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
  return kTerminal && control ? '?' : byte;
}

}  // namespace

int run_generate(const GenerateCommand& command) {
  const auto saved = SavedRun::newest(
      command.run_dir, [](const std::string& line) { fmt::print(stderr, "headrace: {}\n", line); });
  if (!saved) throw Error(fmt::format("{} holds no complete saved run", command.run_dir));
  const LoadedConfig loaded =
      parse_config(saved->config_toml(), saved->folder() + "/config.toml", command.sets);
  if (loaded.config.train_data.format != TokenFormat::text) {
    throw Error(
        fmt::format("{} was trained on token ids, not on bytes (data.format): its tokens have no text here",
                    saved->folder()));
  }
  if (command.prompt.empty()) throw ConfigError("--prompt", "is empty");

  std::vector<int32_t> prompt;
  for (const char c : command.prompt) prompt.push_back(static_cast<unsigned char>(c));
  fmt::print("{}", command.prompt);
  try {
    generate(loaded.config, saved->folder(), prompt, command.tokens, command.temperature, command.seed,
             [](int32_t token) {
               // Ids beyond the bytes exist when model.vocab was given larger; they have no text.
               if (token < 256) std::putchar(shown(token));
               std::fflush(stdout);
             });
  } catch (const ConfigError& error) {
    loaded.rethrow(error);
  }
  fmt::print("\n");
  return kExitOk;
}

}  // namespace headrace::cli
