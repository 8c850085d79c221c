// SPDX-License-Identifier: Apache-2.0
// The variants of the update that `headrace bench adam` knows: a name, a format, the gradient's format. A new
// one is one entry of the table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "headrace/adam.h"

namespace headrace::bench {

struct AdamVariant {
  const char* name;
  adam::Format format;
  DType gradient;
};

/// What time_vs_28b compares with.
constexpr const char* kReferenceVariant = "fp32_28b";

std::span<const AdamVariant> adam_variants();
/// nullptr when there is none of this name.
const AdamVariant* find_adam_variant(std::string_view name);
/// "fp32_28b, split_26b, ..."
std::string adam_variant_names();

}  // namespace headrace::bench
