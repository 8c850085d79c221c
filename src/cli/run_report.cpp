// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cli/byte_text.h"
#include "cli/rate.h"
#include "cli/report.h"

namespace headrace::cli {
namespace {

constexpr std::array<const char*, kLinkCount> kLinkTitles = {"nvme -> host", "host -> nvme", "host -> device",
                                                             "device -> host"};

std::string link_table(const Stats& stats, double seconds) {
  std::string text = fmt::format("{:<16}{:>12}{:>16}{:>16}{:>8}\n", "link", "bytes", "GB/s in flight",
                                 "GB/s overall", "busy");
  for (size_t i = 0; i < kLinkCount; ++i) {
    const LinkStats& link = stats.link[i];
    text += fmt::format("{:<16}{:>12}{:>16.2f}{:>16.2f}{:>7.0f}%\n", kLinkTitles[i],
                        readable_bytes(double(link.bytes)), gb_per_s(link),
                        double(link.bytes) * 1e-9 / seconds, 100.0 * double(link.busy_ns) * 1e-9 / seconds);
  }
  return text;
}

std::string wait_line(const Stats& stats, double seconds) {
  std::string text = fmt::format("{:<16}", "waited for");
  for (size_t i = 0; i < kWaitCauseCount; ++i) {
    const double waited = double(stats.wait_ns[i]) * 1e-9;
    text += fmt::format("{}{} {:.1f} s ({:.0f}%)", i == 0 ? "" : ", ", kWaitCauseNames[i], waited,
                        100.0 * waited / seconds);
  }
  return text + "\n";
}

std::string peak_line(const Stats& stats, const EngineOptions& engine, uint64_t peak_rss_bytes) {
  return fmt::format(
      "{:<16}device {} of {}, pinned {} of {}, nvme {}, process {}\n", "peak bytes",
      readable_bytes(double(stats.peak_device_bytes)), readable_bytes(double(engine.device_memory)),
      readable_bytes(double(stats.peak_pinned_bytes)), readable_bytes(double(engine.host_memory)),
      readable_bytes(double(stats.peak_nvme_bytes)), readable_bytes(double(peak_rss_bytes)));
}

std::string loss_line(const char* title, double loss, TokenFormat format) {
  return fmt::format("{:<16}{:.4f} nats per {}\n", title, loss,
                     format == TokenFormat::text ? "byte" : "token");
}

}  // namespace

std::string run_report(const RunSummary& summary, const Config& config, uint64_t peak_rss_bytes) {
  const double seconds = std::max(summary.seconds, 1e-9);
  std::string text = link_table(summary.stats, seconds);
  text += wait_line(summary.stats, seconds);
  text += peak_line(summary.stats, config.engine, peak_rss_bytes);
  text += fmt::format("{:<16}{} tokens in {}, {:.0f} tokens/s\n", "trained", summary.trained_tokens,
                      readable_seconds(summary.seconds), double(summary.trained_tokens) / seconds);
  const TokenFormat format = config.train_data.format;
  if (summary.train_loss) text += loss_line("training loss", *summary.train_loss, format);
  if (summary.valid_loss) text += loss_line("validation loss", *summary.valid_loss, format);
  if (!summary.saved_folder.empty()) text += fmt::format("{:<16}{}\n", "saved run", summary.saved_folder);
  return text;
}

}  // namespace headrace::cli
