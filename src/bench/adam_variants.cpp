// SPDX-License-Identifier: Apache-2.0
#include "bench/adam_variants.h"

namespace headrace::bench {
namespace {

using adam::MomentFormat, adam::WeightFormat, adam::Rule;

constexpr AdamVariant kVariants[] = {
    {kReferenceVariant, {Rule::adamw, WeightFormat::fp32_copy, MomentFormat::fp32}, DType::bf16},
    {"split_26b", {Rule::adamw, WeightFormat::split, MomentFormat::fp32}, DType::bf16},
    {"bf16m_24b", {Rule::adamw, WeightFormat::fp32_copy, MomentFormat::bf16_m}, DType::bf16},
    {"split_bf16mv_18b", {Rule::adamw, WeightFormat::split, MomentFormat::bf16}, DType::bf16},
    {"q8", {Rule::adamw, WeightFormat::split24, MomentFormat::q8}, DType::bf16},
    // What optimizers of other libraries update in one pass: fp32 throughout, without a copy.
    {"fp32_flat_28b", {Rule::adamw, WeightFormat::fp32, MomentFormat::fp32}, DType::f32},
};

}  // namespace

std::span<const AdamVariant> adam_variants() {
  return kVariants;
}

const AdamVariant* find_adam_variant(std::string_view name) {
  for (const AdamVariant& variant : kVariants)
    if (name == variant.name) return &variant;
  return nullptr;
}

std::string adam_variant_names() {
  std::string names;
  for (const AdamVariant& variant : kVariants)
    names += (names.empty() ? "" : ", ") + std::string(variant.name);
  return names;
}

}  // namespace headrace::bench
