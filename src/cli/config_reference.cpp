// SPDX-License-Identifier: Apache-2.0
// The list of keys as text: the resolved file of --print-config and the tables of docs/configuration.md.
#include <fmt/format.h>

#include "cli/config_file.h"
#include "cli/config_value.h"

namespace headrace::cli {
namespace {

std::string default_text(const Key& key, const Config& defaults) {
  return key.derived.empty() ? fmt::format("`{}`", value_text(key, defaults)) : std::string(key.derived);
}

/// '|' ends a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string print_config(const Config& config) {
  std::string text;
  std::string_view table;
  for (const Key& key : config_keys()) {
    if (key.table() != table) {
      table = key.table();
      text += fmt::format("{}[{}]  # {}\n", text.empty() ? "" : "\n", table, table_doc(table));
    }
    text += fmt::format("# {}\n{} = {}\n", key.doc, key.leaf(), value_text(key, config));
  }
  return text;
}

std::string configuration_reference() {
  const Config defaults = unset_config();
  std::string text;
  std::string_view table;
  for (const Key& key : config_keys()) {
    if (key.table() != table) {
      table = key.table();
      text += fmt::format("{}## [{}]\n\n{}\n\n| key | default | takes | meaning |\n|---|---|---|---|\n",
                          text.empty() ? "" : "\n", table, table_doc(table));
    }
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.leaf(), cell(default_text(key, defaults)),
                        cell(allowed_text(key)), cell(key.doc));
  }
  return text;
}

}  // namespace headrace::cli
