// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "cli/config_value.h"
#include "cli/suggestion.h"

namespace headrace::cli {
namespace {

std::string place_of(const std::string& name, const toml::source_region& region) {
  return fmt::format("{}:{}:{}", name, region.begin.line, region.begin.column);
}

const Key* find_key(std::string_view name) {
  const auto keys = config_keys();
  const auto found = std::ranges::find(keys, name, &Key::name);
  return found == keys.end() ? nullptr : &*found;
}

bool is_table(std::string_view name) {
  return std::ranges::any_of(config_keys(), [&](const Key& key) { return key.table() == name; });
}

[[noreturn]] void refuse_unknown(const std::string& place, const std::string& name, bool is_list = false) {
  if (is_table(name)) {
    throw PlacedConfigError(place, name,
                            is_list ? fmt::format("is a table, not a list: write [{}], once", name)
                                    : fmt::format("is a table: give its keys values, as {}.KEY", name));
  }
  std::vector<std::string_view> known;
  const std::string_view leaf = std::string_view(name).substr(name.rfind('.') + 1);
  for (const Key& key : config_keys()) {
    known.push_back(key.name);
    if (key.leaf() == leaf) {
      throw PlacedConfigError(place, name, fmt::format("unknown key; did you mean '{}'?", key.name));
    }
  }
  throw PlacedConfigError(place, name, "unknown key" + did_you_mean(name, known));
}

[[noreturn]] void refuse_unknown_table(const std::string& place, const std::string& name) {
  std::vector<std::string_view> tables;
  for (const Key& key : config_keys()) tables.push_back(key.table());
  throw PlacedConfigError(place, name, "unknown table" + did_you_mean(name, tables));
}

/// Values by key, in the order of the list of keys, which puts the preset before what overrides it.
class Values {
 public:
  explicit Values(LoadedConfig& loaded) : loaded_(loaded), nodes_(config_keys().size(), nullptr) {}

  void add(const std::string& name, const toml::node& node, const std::string& place) {
    const Key* key = find_key(name);
    if (!key) refuse_unknown(place, name);
    nodes_[size_t(key - config_keys().data())] = &node;
    loaded_.places[name] = place;
  }

  /// As add(), over what was added before: a preset is the whole shape, so it takes the place of its keys.
  void override(const std::string& name, const toml::node& node) {
    const Key* key = find_key(name);
    if (key && std::holds_alternative<PresetField>(key->field) &&
        node.value_or("") != preset_names().front()) {
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (config_keys()[i].table() == key->table()) nodes_[i] = nullptr;
      }
    }
    add(name, node, "--set");
  }

  void read() const {
    const auto keys = config_keys();
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!nodes_[i]) continue;
      try {
        read_value(keys[i], *nodes_[i], loaded_.config);
      } catch (const ConfigError& error) {
        loaded_.rethrow(error);
      }
    }
  }

 private:
  LoadedConfig& loaded_;
  std::vector<const toml::node*> nodes_;
};

void add_document(const toml::table& document, const std::string& file, Values& values) {
  for (const auto& [table_name, node] : document) {
    const std::string name(table_name.str());
    const toml::table* table = node.as_table();
    if (!table) refuse_unknown(place_of(file, table_name.source()), name, node.is_array());
    if (!is_table(name)) refuse_unknown_table(place_of(file, table_name.source()), name);
    for (const auto& [leaf, value] : *table) {
      values.add(fmt::format("{}.{}", name, leaf.str()), value, place_of(file, leaf.source()));
    }
  }
}

/// The value of a --set as a document with the one key "value".
toml::table parse_set_value(const std::string& set, const std::string& value) {
  try {
    toml::table parsed = toml::parse("value = " + value);
    if (parsed.size() == 1) return parsed;
  } catch (const toml::parse_error& error) {
    // What opens like TOML is meant as TOML: its error is worth more than a text nobody wanted.
    if (!value.empty() && std::string_view("[{\"'").find(value.front()) != std::string_view::npos) {
      throw PlacedConfigError("--set", set.substr(0, set.find('=')), std::string(error.description()));
    }
  }
  toml::table text;
  text.insert("value", value);
  return text;
}

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

/// A configuration that cannot be read is a mistake of the command line, hence no IoError.
std::string read_regular_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // Asked before it is opened: a pipe would keep the program waiting for a writer.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw ConfigError("",
                      fmt::format("{} is {}, not a configuration file", path,
                                  std::filesystem::is_directory(status) ? "a folder" : "a pipe or device"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("", IoError("open", path, errno).what());
  std::ostringstream text;
  // An empty file sets failbit on `text` and is a configuration of defaults.
  text << file.rdbuf();
  if (file.bad()) throw ConfigError("", IoError("read", path, errno ? errno : EIO).what());
  return text.str();
}

}  // namespace

PlacedConfigError::PlacedConfigError(const std::string& place, const std::string& key_name,
                                     const std::string& message)
    : ConfigError(key_name, message), line_(fmt::format("{}: {}", place, ConfigError::what())) {}

void LoadedConfig::rethrow(const ConfigError& error) const {
  const auto place = places.find(error.key);
  // what() already starts with "key: "; the message is what follows.
  const std::string line = error.what();
  const std::string message = error.key.empty() ? line : line.substr(error.key.size() + 2);
  throw PlacedConfigError(place == places.end() ? name : place->second, error.key, message);
}

LoadedConfig parse_config(std::string_view text, const std::string& name, std::span<const std::string> sets) {
  LoadedConfig loaded{unset_config(), name, {}};
  Values values(loaded);
  toml::table document;
  try {
    document = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw PlacedConfigError(place_of(name, error.source()), "", std::string(error.description()));
  }
  add_document(document, name, values);

  std::vector<toml::table> overrides;
  overrides.reserve(sets.size());  // Values keeps pointers into the elements
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      throw PlacedConfigError("--set", set, "has no '='; write --set table.key=value");
    }
    overrides.push_back(parse_set_value(set, trimmed(std::string_view(set).substr(equals + 1))));
    values.override(trimmed(std::string_view(set).substr(0, equals)), *overrides.back().get("value"));
  }

  values.read();
  resolve_derived(loaded.config);
  try {
    check_config(loaded.config);
  } catch (const ConfigError& error) {
    loaded.rethrow(error);
  }
  return loaded;
}

LoadedConfig load_config(const std::string& path, std::span<const std::string> sets) {
  return parse_config(read_regular_file(path), path, sets);
}

}  // namespace headrace::cli
