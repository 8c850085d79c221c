// SPDX-License-Identifier: Apache-2.0
// Medians and quartiles of repeated measurements. On a machine whose speed drifts only ratios of what ran
// next to each other mean anything: they are taken within a round first, and their quartiles then. Pure
// functions.
#pragma once

#include <span>
#include <vector>

namespace headrace::bench {

struct Quartiles {
  double low = 0, median = 0, high = 0;
};

/// Linear between the two nearest of the sorted values (quantile q at index q (n - 1)); at least one value.
Quartiles quartiles_of(std::vector<double> values);

/// The quartiles of numerator[i] / denominator[i]; both have one value for each round.
Quartiles paired_ratio(std::span<const double> numerator, std::span<const double> denominator);

/// Whether the quartiles are further apart than a tenth of the median: then the machine was not quiet.
bool wide(const Quartiles& quartiles);

}  // namespace headrace::bench
