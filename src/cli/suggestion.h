// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the nearest known word to one that was mistyped. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headrace::cli {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
/// alignment, Damerau 1964).
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate at most two edits away (one for words of up to four letters), the first of the nearest.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates);

/// "; did you mean 'layers'?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace headrace::cli
