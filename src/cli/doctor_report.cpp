// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "cli/byte_text.h"
#include "device/cuda_info.h"
#include "headrace/adam.h"
#include "headrace/error.h"
#include "headrace/nvme.h"
#include "nvme/probe.h"

namespace headrace::cli {
namespace {

constexpr const char* kThpPath = "/sys/kernel/mm/transparent_hugepage/enabled";

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Finding io_uring() {
  const nvme::IoUringSupport ring = nvme::probe_io_uring();
  if (!ring.available) {
    return {"io_uring", FindingState::warn, fmt::format("refused: {}", ring.reason),
            "runs use the POSIX engine instead (nvme.engine = \"auto\"), with less overlap"};
  }
  std::string features;
  const auto add = [&](bool has, const char* name) {
    features += fmt::format(", {}{}", has ? "" : "no ", name);
  };
  add(ring.single_issuer, "single issuer");
  add(ring.defer_taskrun, "deferred task run");
  add(ring.registered_files, "registered files");
  add(ring.registered_buffers, "registered buffers");
  Finding finding{"io_uring", FindingState::ok, "available" + features};
  if (!ring.registered_buffers) {
    finding.state = FindingState::warn;
    finding.remedy =
        fmt::format("buffers cannot be registered ({}): raise the locked memory limit, see below",
                    std::strerror(ring.buffers_error_code));
  }
  return finding;
}

Finding locked_memory() {
  constexpr uint64_t kEnough = uint64_t(1) << 30;
  Finding finding{"locked memory", FindingState::ok, nvme::memlock_limit_text()};
  if (::geteuid() == 0) {
    finding.facts += "; root is not bound by it";
    return finding;
  }
  if (nvme::memlock_limit_bytes() < kEnough) {
    finding.state = FindingState::warn;
    finding.remedy =
        "should be at least offload.host_memory: ulimit -l, memlock in "
        "/etc/security/limits.d, or LimitMEMLOCK= of a service";
  }
  return finding;
}

Finding transparent_huge_pages() {
  const std::string chosen = chosen_word(read_text(kThpPath));
  if (chosen.empty()) {
    return {"huge pages", FindingState::missing, "this kernel has no transparent huge pages",
            "nothing: large buffers work with small pages, a little slower"};
  }
  Finding finding{"huge pages", FindingState::ok, fmt::format("transparent: {}", chosen)};
  if (chosen == "never") {
    finding.state = FindingState::warn;
    finding.remedy = fmt::format("echo madvise > {}", kThpPath);
  }
  return finding;
}

Finding reserved_huge_pages() {
  const std::string count = read_text("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
  return {"reserved pages", FindingState::ok,
          count.empty() ? "no 2 MiB pool" : fmt::format("{} of 2 MiB; none are needed", count)};
}

Finding instruction_sets() {
  std::string names;
  for (const adam::Isa isa : {adam::Isa::scalar, adam::Isa::avx2, adam::Isa::avx512}) {
    if (adam::supported(isa)) names += (names.empty() ? "" : " ") + std::string(adam::isa_name(isa));
  }
  const adam::Isa active = adam::active_isa();
  Finding finding{"cpu", FindingState::ok,
                  fmt::format("{}; the optimizer uses {}", names, adam::isa_name(active))};
  if (active == adam::Isa::scalar) {
    finding.state = FindingState::warn;
    finding.remedy = adam::supported(adam::Isa::avx2)
                         ? "HEADRACE_ISA=scalar is set: unset it"
                         : "the optimizer is slow without AVX2; results are the same";
  }
  return finding;
}

std::vector<Finding> gpus() {
  std::vector<Finding> findings;
  for (const GpuInfo& gpu : list_gpus()) {
    Finding finding{
        "gpu", FindingState::ok,
        fmt::format("{}, {}, compute capability {}.{}", gpu.name, readable_bytes(double(gpu.memory_bytes)),
                    gpu.capability_major, gpu.capability_minor)};
    if (!code_runs_on(cuda_architectures(), gpu.capability_major, gpu.capability_minor)) {
      finding.state = FindingState::warn;
      finding.facts += fmt::format("; not used: this build has kernels for {}", cuda_architectures());
      finding.remedy = fmt::format("build with -DCMAKE_CUDA_ARCHITECTURES={}{}", gpu.capability_major,
                                   gpu.capability_minor);
    } else if (findings.empty()) {
      finding.facts += "; device.kind = \"auto\" computes here";
    } else {
      finding.facts += "; not used: a run uses the first one (CUDA_VISIBLE_DEVICES chooses)";
    }
    findings.push_back(std::move(finding));
  }
  if (!findings.empty()) return findings;
  if (const std::string trouble = gpu_trouble(); !trouble.empty())
    return {{"gpu", FindingState::warn, trouble,
             "update or repair the driver (to compute on the CPU nothing is needed)"}};
  if (built_with_cuda()) {
    return {{"gpu", FindingState::missing, fmt::format("none is visible; built with {}", cuda_build_info()),
             "to compute on the CPU nothing is needed; else see nvidia-smi and CUDA_VISIBLE_DEVICES"}};
  }
  return {{"gpu", FindingState::missing, "not looked for: built without CUDA",
           "to compute on the CPU nothing is needed; else build with a CUDA toolkit and -DHEADRACE_CUDA=ON"}};
}

Finding direct_io(const std::string& path, const nvme::DirectSupport& direct) {
  if (!direct.available) {
    return {"O_DIRECT", FindingState::warn, fmt::format("{}: {}", path, direct.reason),
            "use a folder on ext4 or xfs, or set nvme.direct = false (state then also fills the page cache)"};
  }
  return {"O_DIRECT", FindingState::ok,
          fmt::format("{}: memory aligned to {}, offsets to {} bytes", path, direct.memory_alignment,
                      direct.offset_alignment)};
}

}  // namespace

std::string chosen_word(const std::string& switch_text) {
  const size_t open = switch_text.find('['), close = switch_text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return switch_text.substr(open + 1, close - open - 1);
}

std::vector<Finding> examine_machine() {
  std::vector<Finding> findings = {io_uring(), locked_memory(), transparent_huge_pages(),
                                   reserved_huge_pages(), instruction_sets()};
  for (Finding& gpu : gpus()) findings.push_back(std::move(gpu));
  return findings;
}

std::vector<Finding> examine_path(const std::string& path) {
  const nvme::PathSupport support = nvme::probe_path(path);
  if (!support.writable) {
    return {{"path", FindingState::missing, fmt::format("{}: {}", path, support.reason),
             "make the folder, or name one that this user may write to"}};
  }
  std::vector<Finding> findings;
  Finding space{
      "path", FindingState::ok,
      fmt::format("{}: {}, {} free", path, support.file_system, readable_bytes(double(support.free_bytes)))};
  if (support.free_bytes < (uint64_t(1) << 30)) {
    space.state = FindingState::warn;
    space.remedy = "make room: state takes 12 to 16 bytes for each parameter";
  } else if (support.file_system == "tmpfs") {
    space.state = FindingState::warn;
    space.remedy = "this is memory, not a drive: use a folder on one";
  }
  findings.push_back(space);
  findings.push_back(direct_io(path, support.direct));
  for (const nvme::Leftover& leftover : nvme::find_leftovers(path)) {
    findings.push_back({"leftover", FindingState::warn,
                        fmt::format("{}: {} of a run that ended (process {})", leftover.folder,
                                    readable_bytes(double(leftover.bytes)), leftover.pid),
                        "headrace doctor --clean removes it"});
  }
  return findings;
}

std::string finding_text(const Finding& finding) {
  constexpr const char* kStates[] = {"ok", "warn", "missing"};
  std::string text =
      fmt::format("{:<9}{:<16}{}\n", kStates[size_t(finding.state)], finding.what, finding.facts);
  if (!finding.remedy.empty()) text += fmt::format("{:<25}-> {}\n", "", finding.remedy);
  return text;
}

}  // namespace headrace::cli
