// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels and copies of the CUDA device, each beside its ceiling, as one JSON object on standard
// output; progress on standard error. Informational: bench/gpu/gpu_check.py compares it with the bars.
//   gpu_bench [gemm] [attention] [memory] [copies]      without names: all
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "device/cuda_info.h"
#include "gpu/measure.h"

namespace headrace::bench {
namespace {

struct Section {
  const char* name;
  Json (*measure)(Bench&);
};
constexpr Section kSections[] = {
    {"gemm", bench_gemm}, {"attention", bench_attention}, {"memory", bench_memory}, {"copies", bench_copies}};

bool is_section(const std::string& name) {
  for (const Section& section : kSections)
    if (name == section.name) return true;
  return false;
}

/// One section's failure leaves the others their results.
bool measure(Bench& bench, const Section& section, Json& results) {
  std::fprintf(stderr, "gpu_bench: %s\n", section.name);
  try {
    results[section.name] = section.measure(bench);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s: %s\n", section.name, error.what());
    results["errors"][section.name] = error.what();
    return false;
  }
}

int run(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (is_section(name)) continue;
    std::fprintf(stderr, "usage: gpu_bench [gemm] [attention] [memory] [copies]\n");
    return 2;
  }
  const std::vector<GpuInfo> gpus = list_gpus();
  if (gpus.empty()) {
    std::fprintf(stderr, "gpu_bench: no GPU is visible\n");
    return 1;
  }
  const auto device = make_device({.kind = DeviceOptions::Kind::cuda, .memory_bytes = 1u << 20});
  Bench bench(*device);
  Json results = {
      {"gpu", gpus[0].name}, {"memory_bytes", gpus[0].memory_bytes}, {"build", cuda_build_info()}};
  bool whole = true;
  for (const Section& section : kSections) {
    bool wanted = names.empty();
    for (const std::string& name : names) wanted |= name == section.name;
    if (wanted) whole = measure(bench, section, results) && whole;
  }
  std::printf("%s\n", results.dump(1).c_str());
  return whole ? 0 : 1;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> names(argv + 1, argv + argc);
    return headrace::bench::run(names);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
