// SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_line.h"

#include <nlohmann/json.hpp>

#include "cli/rate.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;

/// One line even when a path holds bytes that are not UTF-8.
std::string line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string train_line(const StepMetrics& metrics) {
  Json object = {{"ev", "train"},
                 {"step", metrics.step},
                 {"tokens", metrics.tokens},
                 {"loss", metrics.loss},
                 {"lr", metrics.lr},
                 {"grad_norm", metrics.grad_norm},
                 {"skipped", metrics.skipped},
                 {"skipped_steps", metrics.skipped_steps},
                 {"step_ms", metrics.step_ms},
                 {"tokens_per_s", metrics.tokens_per_s}};
  for (size_t i = 0; i < kLinkCount; ++i) {
    const LinkStats& link = metrics.delta.link[i];
    object[kLinkNames[i]] = {{"bytes", link.bytes}, {"gb_per_s", gb_per_s(link)}};
  }
  for (size_t i = 0; i < kWaitCauseCount; ++i) {
    object["wait_ms"][kWaitCauseNames[i]] = double(metrics.delta.wait_ns[i]) * 1e-6;
  }
  object["adam_ms"] = double(metrics.delta.adam_ns) * 1e-6;
  object["peak_bytes"] = {{"device", metrics.delta.peak_device_bytes},
                          {"pinned", metrics.delta.peak_pinned_bytes},
                          {"rss", metrics.peak_rss_bytes},
                          {"nvme", metrics.delta.peak_nvme_bytes}};
  return line(object);
}

std::string eval_line(const EvalMetrics& metrics) {
  return line({{"ev", "eval"},
               {"step", metrics.step},
               {"valid_loss", metrics.loss},
               {"valid_tokens", metrics.tokens}});
}

std::string resume_line(uint64_t step) {
  return line({{"ev", "resume"}, {"step", step}});
}

std::string saved_line(uint64_t step, const std::string& folder) {
  return line({{"ev", "saved"}, {"step", step}, {"folder", folder}});
}

}  // namespace headrace::cli
