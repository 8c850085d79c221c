// SPDX-License-Identifier: Apache-2.0
// One configuration value: from a TOML node into its place in Config, and from there back to TOML text. Knows
// kinds of fields, not keys. Used by config_file.cpp and config_reference.cpp.
#pragma once

#include <toml++/toml.h>

#include <string>

#include "cli/config_key.h"

namespace headrace::cli {

/// Throws ConfigError{key.name} when the node has the wrong type or a value that the key does not take.
void read_value(const Key& key, const toml::node& node, Config& config);

/// The value as TOML; reading it back gives the same value.
std::string value_text(const Key& key, const Config& config);

/// What the key takes: "integer from 1", "\"cosine\" | \"linear\"", ...
std::string allowed_text(const Key& key);

}  // namespace headrace::cli
