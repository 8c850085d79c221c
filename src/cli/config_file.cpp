// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
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

[[noreturn]] void refuse_unknown(const std::string& place, const std::string& name) {
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

bool is_table(std::string_view name) {
  return std::ranges::any_of(config_keys(), [&](const Key& key) { return key.table() == name; });
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
    if (!table) refuse_unknown(place_of(file, table_name.source()), name);
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
    values.add(trimmed(std::string_view(set).substr(0, equals)), *overrides.back().get("value"), "--set");
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
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("open", path, errno);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad() || (text.empty() && !file.eof())) throw IoError("read", path, errno ? errno : EIO);
  return parse_config(text, path, sets);
}

}  // namespace headrace::cli
