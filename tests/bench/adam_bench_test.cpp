// SPDX-License-Identifier: Apache-2.0
// The measurement's output is a contract: names, keys and what the numbers are of. Speeds are not asserted.
#include "bench/adam_bench.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "bench/adam_report.h"
#include "bench/adam_state.h"

namespace headrace::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

AdamBenchOptions small(std::vector<int> threads) {
  AdamBenchOptions options{.params = 2 * adam::kTileElems, .threads = std::move(threads), .rounds = 3};
  for (const AdamVariant& variant : adam_variants()) options.variants.push_back(&variant);
  return options;
}

TEST(AdamVariants, HaveTheirNamesAndTheirBytes) {
  const std::pair<const char*, double> expected[] = {
      {"fp32_28b", 28},
      {"split_26b", 26},
      {"bf16m_24b", 24},
      {"split_bf16mv_18b", 18},
      {"q8", 2 + 2 * (3 + 2) + 2 * 8 / 64.0},  // gradient, 24-bit weight, two codes, two scales a block
      {"fp32_flat_28b", 28}};
  ASSERT_EQ(adam_variants().size(), std::size(expected));
  for (const auto& [name, bytes] : expected) {
    const AdamVariant* variant = find_adam_variant(name);
    ASSERT_NE(variant, nullptr) << name;
    EXPECT_TRUE(adam::offered(variant->format)) << name;
    EXPECT_DOUBLE_EQ(adam::bytes_moved(variant->format, variant->gradient), bytes) << name;
    EXPECT_THAT(adam_variant_names(), HasSubstr(name));
  }
  EXPECT_EQ(find_adam_variant("fp32"), nullptr);
}

void expect_numbers(const json& row) {
  for (const char* key : {"params_per_s", "useful_gb_per_s", "roofline_share", "time_vs_28b"}) {
    EXPECT_GT(row[key].get<double>(), 0) << key;
    EXPECT_LE(row["quartiles"][key][0], row[key]) << key;
    EXPECT_GE(row["quartiles"][key][1], row[key]) << key;
  }
  EXPECT_GE(row["share_of_each_mix"].size(), 3u);
  EXPECT_TRUE(row["share_of_each_mix"].contains(row["roofline_mix"])) << row["roofline_mix"];
  for (const json& share : row["share_of_each_mix"]) EXPECT_GE(share, row["roofline_share"]);
  EXPECT_EQ(row["small_list"].size(), 3u);
  for (const char* elems : {"4096", "16384", "65536"}) {
    EXPECT_GT(row["small_list"][elems].get<double>(), 0) << elems;
    EXPECT_LE(row["quartiles"]["small_list"][elems][0], row["small_list"][elems]) << elems;
  }
  EXPECT_NEAR(row["useful_gb_per_s"].get<double>() * 1e9,
              row["params_per_s"].get<double>() * row["bytes_per_param"].get<double>(), 1e3);
}

TEST(AdamBench, JsonHasARowForEachVariantAndNumberOfThreads) {
  int rounds = 0;
  AdamBenchOptions options = small({1, 2});
  options.after_round = [&](int done, double) { rounds = done; };
  const json result = json::parse(adam_json(measure_adam(options)));
  EXPECT_EQ(rounds, 3);
  for (const char* key : {"cpu", "isa", "cores", "pages", "huge_page_share", "ping_pong_ns", "rounds"}) {
    EXPECT_TRUE(result["machine"].contains(key)) << key;
  }
  ASSERT_EQ(result["rows"].size(), 2 * adam_variants().size());
  size_t at = 0;
  for (const AdamVariant& variant : adam_variants()) {
    for (const int threads : {1, 2}) {
      const json& row = result["rows"][at++];
      EXPECT_EQ(row["variant"], variant.name);
      EXPECT_EQ(row["threads"], threads);
      EXPECT_EQ(row["params"], options.params);
      EXPECT_DOUBLE_EQ(row["bytes_per_param"], adam::bytes_moved(variant.format, variant.gradient));
      expect_numbers(row);
    }
  }
}

TEST(AdamBench, TheReferenceIsMeasuredWhenOnlyOthersAreAsked) {
  AdamBenchOptions options = small({1});
  options.variants = {find_adam_variant("q8")};
  // The reference has w 4, copy 2, m 4, v 4, gradient 2; q8 has 2, 1, 1, 1, 2 and 8 for 64 elements.
  EXPECT_EQ(adam_bench_bytes(options), options.params / 64 * (64 * (16 + 7) + 8));
  const AdamBench bench = measure_adam(options);
  ASSERT_EQ(bench.rows.size(), 1u);
  EXPECT_GT(bench.rows[0].time_vs_28b.median, 0);
  EXPECT_FALSE(bench.machine.ping_pong_ns) << "one thread has no partner";
}

TEST(AdamBench, TheReferenceTakesExactlyItsOwnTime) {
  AdamBenchOptions options = small({1});
  options.variants = {find_adam_variant(kReferenceVariant)};
  EXPECT_EQ(measure_adam(options).rows[0].time_vs_28b.median, 1.0);
}

TEST(AdamBench, MoreMemoryThanThereIsNamesTheOption) {
  AdamBenchOptions options = small({1});
  options.params = size_t(1) << 40;
  try {
    measure_adam(options);
    FAIL() << "77 TiB were granted";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("--params"));
  }
}

AdamBench made_up(const Quartiles& share) {
  AdamRow row{.variant = find_adam_variant("split_26b"),
              .threads = 2,
              .bytes_per_param = 26,
              .params_per_s = {1.9e9, 2e9, 2.05e9},
              .useful_bytes_per_s = {49.4e9, 52e9, 53.3e9},
              .roof_bytes_per_s = {52e9, 53e9, 54e9},
              .roof_mix = "avx2 lines",
              .roofline_share = share,
              .time_vs_28b = {0.92, 0.93, 0.94}};
  for (Quartiles& list : row.small_list) list = {0.97, 0.98, 0.99};
  return {.machine = {.cpu = "Made-up CPU", .isa = "avx2", .cores = 2, .huge_share = 1.0},
          .params = 1 << 20,
          .rounds = 15,
          .rows = {row}};
}

TEST(AdamTable, WarnsWhereQuartilesAreWide) {
  EXPECT_THAT(adam_table(made_up({0.96, 0.98, 0.99})), Not(HasSubstr("warning")));
  const std::string unsteady = adam_table(made_up({0.85, 0.98, 0.99}));
  EXPECT_THAT(unsteady, HasSubstr("warning"));
  EXPECT_THAT(unsteady, HasSubstr("split_26b on 2 threads: roof\n"));
}

TEST(AdamTable, ShowsTheMachineAndTheMedians) {
  const std::string table = adam_table(made_up({0.96, 0.98, 0.99}));
  for (const char* part : {"Made-up CPU, 2 cores, avx2", "huge (100% in huge pages)", "split_26b", "26.00",
                           "2.000", "52.0", "0.98 (0.96-0.99)", "0.93"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
}

TEST(AdamState, TensorsCoverTheSpanInOrderAndAreAligned) {
  const AdamVariant& q8 = *find_adam_variant("q8");
  constexpr size_t kParams = adam::kTileElems;
  std::vector<std::byte> memory(AdamState::bytes(q8, kParams) + 64);
  std::byte* const aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  adam::Workers workers(1);
  const AdamState state(q8, kParams, aligned, workers);
  const adam::StepScalars scalars = adam::make_scalars({}, 1, 1);
  const std::vector<adam::ScaledSpan> list = state.tensors(4096, scalars);
  ASSERT_EQ(list.size(), kParams / 4096);
  for (size_t k = 0; k < list.size(); ++k) {
    const adam::Span& span = list[k].span;
    EXPECT_EQ(span.count, 4096u);
    EXPECT_EQ(span.first, k * 4096);
    EXPECT_EQ(span.lo8, state.flat().lo8 + k * 4096);
    EXPECT_EQ(span.v_scale, state.flat().v_scale + k * 64);
    const void* const arrays[] = {span.hi, span.lo8, span.m, span.v, span.m_scale, span.grad.data};
    for (const void* array : arrays) EXPECT_EQ(reinterpret_cast<uintptr_t>(array) % 64, 0u);
  }
}

}  // namespace
}  // namespace headrace::bench
