// SPDX-License-Identifier: Apache-2.0
// What a configuration key is: its dotted name, its one line of documentation, and a typed way to its place
// in Config with what it may hold. config_keys.cpp lists all of them; reading, printing, checking and the
// reference page are made from that one list.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/config.h"

namespace headrace::cli {

/// Whole numbers in [min, max].
struct IntegerField {
  int64_t (*get)(const Config&);
  void (*set)(Config&, int64_t);
  int64_t min, max;
};

/// Numbers in [min, max].
struct RealField {
  double (*get)(const Config&);
  void (*set)(Config&, double);
  double min, max;
};

/// beta1 and beta2, each in [0, 1).
struct BetasField {};

struct BoolField {
  bool (*get)(const Config&);
  void (*set)(Config&, bool);
};

struct TextField {
  std::string& (*at)(Config&);
};

struct TextListField {
  std::vector<std::string> (*get)(const Config&);
  void (*set)(Config&, std::vector<std::string>);
};

/// Bytes: an integer, or a text such as "512MiB".
struct BytesField {
  uint64_t (*get)(const Config&);
  void (*set)(Config&, uint64_t);
  uint64_t min, max, multiple_of;
};

/// One word of a list; get and set speak in positions in `words`.
struct WordField {
  size_t (*get)(const Config&);
  void (*set)(Config&, size_t);
  std::span<const std::string_view> words;
};

/// model.preset: a word that stands for several model keys and has no place of its own in Config.
struct PresetField {};

using Field = std::variant<IntegerField, RealField, BetasField, BoolField, TextField, TextListField,
                           BytesField, WordField, PresetField>;

struct Key {
  std::string_view name;  ///< "table.key"
  std::string_view doc;   ///< one line
  Field field;
  /// In place of a default value: "derived" defaults depend on other keys and are written as 0 in a file.
  std::string_view derived = {};

  [[nodiscard]] std::string_view table() const { return name.substr(0, name.find('.')); }
  [[nodiscard]] std::string_view leaf() const { return name.substr(name.find('.') + 1); }
};

/// All keys, grouped by table, in the order in which they are shown.
std::span<const Key> config_keys();
/// One line about each table.
std::string_view table_doc(std::string_view table);

/// The configuration before anything is read: derived keys are 0.
Config unset_config();
/// Gives every derived key that is still 0 its value.
void resolve_derived(Config& config);

/// Names of the presets, "none" first.
std::span<const std::string_view> preset_names();
/// Replaces the whole shape; "none" leaves it.
void apply_preset(std::string_view name, Config& config);

}  // namespace headrace::cli
