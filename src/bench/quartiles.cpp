// SPDX-License-Identifier: Apache-2.0
#include "bench/quartiles.h"

#include <algorithm>

#include "headrace/error.h"

namespace headrace::bench {

Quartiles quartiles_of(std::vector<double> values) {
  HEADRACE_CHECK(!values.empty(), "quartiles of nothing");
  std::ranges::sort(values);
  const auto quantile = [&](double q) {
    const double at = q * double(values.size() - 1);
    const auto below = size_t(at);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (at - double(below)) * (values[above] - values[below]);
  };
  return {.low = quantile(0.25), .median = quantile(0.5), .high = quantile(0.75)};
}

Quartiles paired_ratio(std::span<const double> numerator, std::span<const double> denominator) {
  HEADRACE_CHECK(numerator.size() == denominator.size(), "one value for each round");
  std::vector<double> ratios(numerator.size());
  for (size_t i = 0; i < ratios.size(); ++i) ratios[i] = numerator[i] / denominator[i];
  return quartiles_of(std::move(ratios));
}

bool wide(const Quartiles& quartiles) {
  return quartiles.high - quartiles.low > 0.1 * quartiles.median;
}

}  // namespace headrace::bench
