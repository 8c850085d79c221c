// SPDX-License-Identifier: Apache-2.0
#include "cli/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace headrace::cli {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table are enough: a swap looks two rows back.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitute, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates) {
  size_t best = word.size() <= 4 ? 1 : 2;
  std::optional<std::string_view> found;
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best || (distance == best && !found)) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const auto found = nearest(word, candidates);
  return found ? fmt::format("; did you mean '{}'?", *found) : std::string();
}

}  // namespace headrace::cli
