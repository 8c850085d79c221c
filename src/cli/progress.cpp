// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/byte_text.h"
#include "cli/output.h"
#include "cli/rate.h"

namespace headrace::cli {
namespace {

std::string short_rate(double per_s) {
  if (per_s >= 1e6) return fmt::format("{:.2f}M", per_s * 1e-6);
  if (per_s >= 1e4) return fmt::format("{:.1f}k", per_s * 1e-3);
  return fmt::format("{:.0f}", per_s);
}

}  // namespace

void ProgressWindow::add(const StepMetrics& metrics, uint64_t step_tokens) {
  for (size_t i = 0; i < kLinkCount; ++i) {
    sum.link[i].bytes += metrics.delta.link[i].bytes;
    sum.link[i].busy_ns += metrics.delta.link[i].busy_ns;
  }
  for (size_t i = 0; i < kWaitCauseCount; ++i) sum.wait_ns[i] += metrics.delta.wait_ns[i];
  ms += metrics.step_ms;
  tokens += step_tokens;
  ++steps;
}

std::string progress_line(const StepMetrics& metrics, uint64_t total_steps, const ProgressWindow& window,
                          double seconds_left) {
  const double seconds = std::max(window.ms * 1e-3, 1e-9);
  std::string line =
      fmt::format("step {}/{} | loss {:.4f} | norm {:.3f} | lr {:.2e} | {} tok/s", metrics.step, total_steps,
                  metrics.loss, metrics.grad_norm, metrics.lr, short_rate(double(window.tokens) / seconds));
  const LinkStats& read = window.sum[Link::nvme_read];
  const LinkStats& write = window.sum[Link::nvme_write];
  if (read.bytes + write.bytes > 0) {
    line += fmt::format(" | nvme r {:.2f} w {:.2f} GB/s", gb_per_s(read), gb_per_s(write));
  }
  line += fmt::format(" | wait {:.0f}%", 100.0 * double(waited_ns(window.sum)) * 1e-9 / seconds);
  if (metrics.skipped_steps > 0) line += fmt::format(" | skipped {}", metrics.skipped_steps);
  return line + " | left " + readable_seconds(seconds_left);
}

Progress::Progress(std::FILE* out, uint64_t total_steps, uint64_t log_every)
    : out_(out), terminal_(isatty(fileno(out)) == 1), total_steps_(total_steps), log_every_(log_every) {}

void Progress::step(const StepMetrics& metrics) {
  // metrics.tokens counts the whole run; before the first step of a resumed one only the rate is known.
  const uint64_t step_tokens =
      steps_ == 0 ? uint64_t(metrics.tokens_per_s * metrics.step_ms * 1e-3) : metrics.tokens - tokens_;
  tokens_ = metrics.tokens;
  ms_ += metrics.step_ms;
  ++steps_;
  window_.add(metrics, step_tokens);
  const bool last = metrics.step >= total_steps_;
  if (!terminal_ && !last && metrics.step % log_every_ != 0 && steps_ != 1) return;

  const double steps_left = last ? 0 : double(total_steps_ - metrics.step);
  const std::string line =
      progress_line(metrics, total_steps_, window_, steps_left * ms_ * 1e-3 / double(steps_));
  if (terminal_) {
    write_text(out_, fmt::format("\r{}\033[K", line));
    open_line_ = true;
  } else {
    write_text(out_, line + "\n");
  }
  flush(out_);
  window_ = {};
}

void Progress::print(const std::string& line) {
  if (open_line_) write_text(out_, "\r\033[K");
  open_line_ = false;
  write_text(out_, line + "\n");
  flush(out_);
}

void Progress::finish() {
  if (open_line_) write_text(out_, "\n");
  open_line_ = false;
  flush(out_);
}

}  // namespace headrace::cli
