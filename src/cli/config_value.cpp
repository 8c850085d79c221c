// SPDX-License-Identifier: Apache-2.0
#include "cli/config_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/byte_text.h"
#include "cli/suggestion.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

[[noreturn]] void refuse(const Key& key, const std::string& message) {
  throw ConfigError(std::string(key.name), message);
}

std::string list_text(const toml::array& list) {
  if (list.empty()) return "an empty list";
  const auto all = [&](const auto& is) { return std::all_of(list.begin(), list.end(), is); };
  const char* const plural = list.size() == 1 ? "" : "s";
  if (all([](const toml::node& node) { return node.is_number(); })) {
    return fmt::format("a list of {} number{}", list.size(), plural);
  }
  if (all([](const toml::node& node) { return node.is_string(); })) {
    return fmt::format("a list of {} text{}", list.size(), plural);
  }
  if (all([](const toml::node& node) { return node.is_table(); })) return "a list of tables";
  return "a list of other values";
}

std::string type_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return list_text(*node.as_array());
    case toml::node_type::string:
      return fmt::format("the text \"{}\"", node.ref<std::string>());
    case toml::node_type::integer:
      return fmt::format("the integer {}", node.ref<int64_t>());
    case toml::node_type::floating_point:
      return fmt::format("the number {}", node.ref<double>());
    case toml::node_type::boolean:
      return node.ref<bool>() ? "true" : "false";
    default:
      return "a date or time";
  }
}

[[noreturn]] void refuse_type(const Key& key, const toml::node& node) {
  refuse(key, fmt::format("takes {}, not {}", allowed_text(key), type_text(node)));
}

std::string toml_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// As a person writes it: 1e6, not 1000000.
std::string short_real(double value) {
  const int power = value >= 1e4 ? int(std::lround(std::log10(value))) : 0;
  const bool is_power = power > 0 && std::abs(value / std::pow(10.0, power) - 1) < 1e-12;
  return is_power ? fmt::format("1e{}", power) : fmt::format("{}", value);
}

std::string words_text(std::span<const std::string_view> words) {
  return fmt::format("\"{}\"", fmt::join(words, "\" | \""));
}

size_t read_word(const Key& key, const toml::node& node, std::span<const std::string_view> words) {
  const auto text = node.value_exact<std::string>();
  if (!text) refuse_type(key, node);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == *text) return i;
  }
  refuse(key, fmt::format("\"{}\" is not one of {}{}", *text, words_text(words), did_you_mean(*text, words)));
}

double read_number(const Key& key, const toml::node& node) {
  if (!node.is_number()) refuse_type(key, node);
  return node.is_integer() ? double(node.ref<int64_t>()) : node.ref<double>();
}

std::vector<std::string> read_texts(const Key& key, const toml::node& node) {
  if (const auto one = node.value_exact<std::string>()) return {*one};
  const toml::array* array = node.as_array();
  if (!array) refuse_type(key, node);
  std::vector<std::string> texts;
  for (const toml::node& element : *array) {
    const auto text = element.value_exact<std::string>();
    if (!text) refuse_type(key, node);
    texts.push_back(*text);
  }
  return texts;
}

/// Asked of the JSON writer, which manifests of saved runs go through.
bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// All texts of a configuration are paths.
void check_path(const Key& key, const std::string& path) {
  if (path.find('\0') != std::string_view::npos)
    refuse(key, "holds the character NUL, which no path can have");
  if (!is_utf8(path)) {
    refuse(key, "is not UTF-8 text: rename the folder or file, or reach it by a link with such a name");
  }
}

/// Reads a node into the field of a key, or throws.
struct Reader {
  const Key& key;
  const toml::node& node;
  Config& config;

  void operator()(const IntegerField& field) const {
    const auto value = node.value_exact<int64_t>();
    if (!value) refuse_type(key, node);
    const bool derived_given = !key.derived.empty() && *value == 0;
    if ((*value < field.min && !derived_given) || *value > field.max) {
      refuse(key, fmt::format("takes {}, not {}", allowed_text(key), *value));
    }
    field.set(config, *value);
  }
  void operator()(const RealField& field) const {
    const double value = read_number(key, node);
    if (!(value >= field.min && value <= field.max))
      refuse(key, fmt::format("takes {}, not {}", allowed_text(key), value));
    field.set(config, value);
  }
  void operator()(const BetasField&) const {
    const toml::array* array = node.as_array();
    if (!array || array->size() != 2) refuse_type(key, node);
    double betas[2];
    for (size_t i = 0; i < 2; ++i) {
      betas[i] = read_number(key, (*array)[i]);
      if (!(betas[i] >= 0 && betas[i] < 1)) {
        refuse(key, fmt::format("takes {}, not {}", allowed_text(key), betas[i]));
      }
    }
    config.optimizer.adam.beta1 = betas[0];
    config.optimizer.adam.beta2 = betas[1];
  }
  void operator()(const BoolField& field) const {
    const auto value = node.value_exact<bool>();
    if (!value) refuse_type(key, node);
    field.set(config, *value);
  }
  void operator()(const TextField& field) const {
    const auto value = node.value_exact<std::string>();
    if (!value) refuse_type(key, node);
    if (value->empty()) refuse(key, "is empty");
    check_path(key, *value);
    field.at(config) = *value;
  }
  void operator()(const TextListField& field) const {
    std::vector<std::string> texts = read_texts(key, node);
    for (const std::string& text : texts) check_path(key, text);
    field.set(config, std::move(texts));
  }
  void operator()(const BytesField& field) const {
    const uint64_t value = read_bytes();
    if (value < field.min || value > field.max || value % field.multiple_of != 0) {
      refuse(key, fmt::format("takes {}, not {}", allowed_text(key), exact_bytes(value)));
    }
    field.set(config, value);
  }
  void operator()(const WordField& field) const { field.set(config, read_word(key, node, field.words)); }
  void operator()(const PresetField&) const {
    apply_preset(preset_names()[read_word(key, node, preset_names())], config);
  }

 private:
  [[nodiscard]] uint64_t read_bytes() const {
    if (const auto count = node.value_exact<int64_t>()) {
      if (*count < 0) refuse(key, fmt::format("takes {}, not {}", allowed_text(key), *count));
      return uint64_t(*count);
    }
    const auto text = node.value_exact<std::string>();
    if (!text) refuse_type(key, node);
    const auto bytes = parse_bytes(*text);
    if (!bytes) {
      refuse(key, fmt::format("\"{}\" is not a size; write bytes, or a number with KiB, MiB, GiB, TiB (1024) "
                              "or KB, MB, GB, TB (1000)",
                              *text));
    }
    return *bytes;
  }
};

struct Printer {
  const Config& config;

  std::string operator()(const IntegerField& field) const { return fmt::format("{}", field.get(config)); }
  std::string operator()(const RealField& field) const { return real_text(field.get(config)); }
  std::string operator()(const BetasField&) const {
    const adam::Options& adam = config.optimizer.adam;
    return fmt::format("[{}, {}]", real_text(adam.beta1), real_text(adam.beta2));
  }
  std::string operator()(const BoolField& field) const { return field.get(config) ? "true" : "false"; }
  std::string operator()(const TextField& field) const {
    // The accessor serves reading and printing; nothing is changed through it here.
    return toml_text(field.at(const_cast<Config&>(config)));
  }
  std::string operator()(const TextListField& field) const {
    std::vector<std::string> quoted;
    for (const std::string& text : field.get(config)) quoted.push_back(toml_text(text));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  }
  std::string operator()(const BytesField& field) const {
    const std::string text = exact_bytes(field.get(config));
    return text.back() == 'B' ? toml_text(text) : text;
  }
  std::string operator()(const WordField& field) const { return toml_text(field.words[field.get(config)]); }
  // A resolved configuration spells the shape out.
  std::string operator()(const PresetField&) const { return toml_text(preset_names().front()); }
};

struct Allowed {
  const Key& key;

  std::string operator()(const IntegerField& field) const {
    const int64_t min = key.derived.empty() ? field.min : field.min + 1;
    if (field.max == std::numeric_limits<int64_t>::max()) return fmt::format("an integer from {}", min);
    return fmt::format("an integer from {} to {}", min, field.max);
  }
  std::string operator()(const RealField& field) const {
    return fmt::format("a number from {} to {}", short_real(field.min), short_real(field.max));
  }
  std::string operator()(const BetasField&) const { return "two numbers in [0, 1), like [0.9, 0.95]"; }
  std::string operator()(const BoolField&) const { return "true or false"; }
  std::string operator()(const TextField&) const { return "a text"; }
  std::string operator()(const TextListField&) const { return "a list of texts"; }
  std::string operator()(const BytesField& field) const {
    std::string text = fmt::format("a size from {} to {}", exact_bytes(field.min), exact_bytes(field.max));
    if (field.multiple_of > 1) text += fmt::format(", a multiple of {}", exact_bytes(field.multiple_of));
    return text;
  }
  std::string operator()(const WordField& field) const { return words_text(field.words); }
  std::string operator()(const PresetField&) const { return words_text(preset_names()); }
};

}  // namespace

void read_value(const Key& key, const toml::node& node, Config& config) {
  std::visit(Reader{key, node, config}, key.field);
}

std::string value_text(const Key& key, const Config& config) {
  return std::visit(Printer{config}, key.field);
}

std::string allowed_text(const Key& key) {
  return std::visit(Allowed{key}, key.field);
}

}  // namespace headrace::cli
