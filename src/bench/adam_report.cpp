// SPDX-License-Identifier: Apache-2.0
#include "bench/adam_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace headrace::bench {
namespace {

using nlohmann::ordered_json;

ordered_json range(const Quartiles& quartiles, double unit = 1) {
  return {quartiles.low / unit, quartiles.high / unit};
}

ordered_json machine_json(const AdamBench& bench) {
  const Machine& machine = bench.machine;
  ordered_json json = {{"cpu", machine.cpu},
                       {"isa", machine.isa},
                       {"cores", machine.cores},
                       {"pages", pages_text(machine)},
                       {"huge_page_share", nullptr},
                       {"ping_pong_ns", nullptr},
                       {"ping_pong_ns_quartiles", nullptr},
                       {"rounds", bench.rounds}};
  if (machine.huge_share) json["huge_page_share"] = *machine.huge_share;
  if (machine.ping_pong_ns) {
    json["ping_pong_ns"] = machine.ping_pong_ns->median;
    json["ping_pong_ns_quartiles"] = range(*machine.ping_pong_ns);
  }
  return json;
}

ordered_json row_json(const AdamRow& row, size_t params) {
  ordered_json lists = ordered_json::object(), list_ranges = ordered_json::object();
  for (size_t k = 0; k < std::size(kTensorElems); ++k) {
    lists[std::to_string(kTensorElems[k])] = row.small_list[k].median;
    list_ranges[std::to_string(kTensorElems[k])] = range(row.small_list[k]);
  }
  ordered_json mixes = ordered_json::object();
  for (const auto& [name, share] : row.mixes) mixes[name] = share.median;
  return {{"variant", row.variant->name},
          {"bytes_per_param", row.bytes_per_param},
          {"threads", row.threads},
          {"params", params},
          {"params_per_s", row.params_per_s.median},
          {"useful_gb_per_s", row.useful_bytes_per_s.median / 1e9},
          {"roofline_share", row.roofline_share.median},
          {"time_vs_28b", row.time_vs_28b.median},
          {"small_list", lists},
          {"roofline_gb_per_s", row.roof_bytes_per_s.median / 1e9},
          {"roofline_mix", row.roof_mix},
          {"share_of_each_mix", mixes},
          {"quartiles",
           {{"params_per_s", range(row.params_per_s)},
            {"useful_gb_per_s", range(row.useful_bytes_per_s, 1e9)},
            {"roofline_share", range(row.roofline_share)},
            {"time_vs_28b", range(row.time_vs_28b)},
            {"roofline_gb_per_s", range(row.roof_bytes_per_s, 1e9)},
            {"small_list", list_ranges}}}};
}

std::string machine_text(const AdamBench& bench) {
  const Machine& machine = bench.machine;
  std::string text =
      fmt::format("machine      {}, {} cores, {}\n", machine.cpu.empty() ? "CPU without a name" : machine.cpu,
                  machine.cores, machine.isa);
  text += fmt::format("pages        {}", pages_text(machine));
  if (machine.huge_share) text += fmt::format(" ({:.0f}% in huge pages)", 100 * *machine.huge_share);
  text += "\n";
  if (const auto& ping = machine.ping_pong_ns) {
    text += fmt::format("cache line   {:.0f} ns one way between two cores ({:.0f} to {:.0f})\n", ping->median,
                        ping->low, ping->high);
  }
  return text +
         fmt::format("measured     {} rounds of {} parameters; medians\n\n", bench.rounds, bench.params);
}

std::string row_text(const AdamRow& row) {
  std::string text =
      fmt::format("{:<18}{:>7.2f}{:>9}{:>10.3f}{:>8.1f}", row.variant->name, row.bytes_per_param, row.threads,
                  row.params_per_s.median / 1e9, row.useful_bytes_per_s.median / 1e9);
  text += fmt::format("{:>8.2f} ({:.2f}-{:.2f}){:>8.2f}", row.roofline_share.median, row.roofline_share.low,
                      row.roofline_share.high, row.time_vs_28b.median);
  for (const Quartiles& list : row.small_list) text += fmt::format("{:>7.2f}", list.median);
  return text + "\n";
}

/// What of the row has wide quartiles, or nothing.
std::string wide_text(const AdamRow& row) {
  std::string names;
  const auto add = [&](const Quartiles& quartiles, const char* name) {
    if (wide(quartiles)) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(row.params_per_s, "speed");
  add(row.roofline_share, "roof");
  add(row.time_vs_28b, "vs 28b");
  for (size_t k = 0; k < std::size(kTensorElems); ++k) {
    add(row.small_list[k], fmt::format("lists of {}", kTensorElems[k]).c_str());
  }
  return names.empty() ? names
                       : fmt::format("  {} on {} thread{}: {}\n", row.variant->name, row.threads,
                                     row.threads == 1 ? "" : "s", names);
}

}  // namespace

std::string adam_json(const AdamBench& bench) {
  ordered_json rows = ordered_json::array();
  for (const AdamRow& row : bench.rows) rows.push_back(row_json(row, bench.params));
  return ordered_json{{"machine", machine_json(bench)}, {"rows", rows}}.dump(1) + "\n";
}

std::string adam_table(const AdamBench& bench) {
  std::string text = machine_text(bench);
  text += fmt::format("{:<18}{:>7}{:>9}{:>10}{:>8}{:>20}{:>8}{:>7}{:>7}{:>7}\n", "variant", "bytes",
                      "threads", "Gparam/s", "GB/s", "of the roof", "vs 28b", "4Ki", "16Ki", "64Ki");
  std::string unsteady;
  for (const AdamRow& row : bench.rows) {
    text += row_text(row);
    unsteady += wide_text(row);
  }
  if (!unsteady.empty()) {
    text +=
        "\nwarning: quartiles further apart than 10% of the median; the machine was not quiet:\n" + unsteady;
  }
  return text;
}

}  // namespace headrace::bench
