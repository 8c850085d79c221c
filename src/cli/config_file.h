// SPDX-License-Identifier: Apache-2.0
// Reads a run's configuration: TOML text, then --set overrides, then derived defaults and the checks that
// need no model or engine. Every error names file:line:column (or the --set) and the key. Also prints a
// configuration so that reading it back gives the same one.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "headrace/error.h"
#include "train/config.h"

namespace headrace::cli {

/// A ConfigError that knows where the value was given; what() starts with the place.
class PlacedConfigError : public ConfigError {
 public:
  PlacedConfigError(const std::string& place, const std::string& key, const std::string& message);
  [[nodiscard]] const char* what() const noexcept override { return line_.c_str(); }

 private:
  std::string line_;
};

struct LoadedConfig {
  Config config;
  std::string name;                           ///< of the file
  std::map<std::string, std::string> places;  ///< key -> "file:line:column" or "--set"

  /// Throws `error` again with the place of its key in front, when that is known.
  [[noreturn]] void rethrow(const ConfigError& error) const;
};

/// `sets` are "table.key=value": the value is TOML, and what is not TOML is a text. Throws ConfigError,
/// also when the file cannot be read.
LoadedConfig load_config(const std::string& path, std::span<const std::string> sets);
LoadedConfig parse_config(std::string_view text, const std::string& name, std::span<const std::string> sets);

/// Combinations of keys that cannot work. Throws ConfigError naming one of them.
void check_config(const Config& config);

/// Every key with its documentation as valid TOML.
std::string print_config(const Config& config);

/// The tables of docs/configuration.md, made from the list of keys.
std::string configuration_reference();

}  // namespace headrace::cli
