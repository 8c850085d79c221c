// SPDX-License-Identifier: Apache-2.0
#include "cli/output_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/byte_text.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

/// Of swapped state that will lie on the file system `device`.
uint64_t swap_bytes_on(dev_t device, const Plan& plan, const EngineOptions& engine) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan.nvme_path_bytes.size(); ++i) {
    struct stat status {};
    const bool same = ::stat(engine.nvme.paths[i].c_str(), &status) == 0 && status.st_dev == device;
    if (same) bytes += plan.nvme_path_bytes[i];
  }
  return bytes;
}

}  // namespace

void prepare_folder(const std::string& key, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError(key + ": make the folder", path, error.value());
  std::string name = path + "/.headrace-write-XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) throw IoError(key + ": write into the folder", path, errno);
  ::unlink(name.c_str());
  ::close(file);  // nothing was written
}

uint64_t saved_run_bytes(const Plan& plan) {
  constexpr uint64_t kBytesPerParameter = 12, kAllElse = 1 << 20;
  return plan.param_count * kBytesPerParameter + kAllElse;
}

void check_room_for_saved_run(const Plan& plan, const Config& config) {
  const std::string& dir = config.checkpoint_dir;
  struct statvfs space {};
  struct stat status {};
  if (::statvfs(dir.c_str(), &space) != 0 || ::stat(dir.c_str(), &status) != 0) {
    throw IoError("checkpoint.dir: examine", dir, errno);
  }
  const uint64_t available = uint64_t(space.f_bavail) * space.f_frsize;
  const uint64_t saved = saved_run_bytes(plan);
  const uint64_t swapped = swap_bytes_on(status.st_dev, plan, config.engine);
  if (saved + swapped <= available) return;
  throw Error(fmt::format(
      "checkpoint.dir: a saved run takes {}{}, but {} has {} free; make room there or "
      "name another folder",
      readable_bytes(double(saved)),
      swapped == 0 ? std::string()
                   : fmt::format(" beside {} of swapped state (nvme.paths)", readable_bytes(double(swapped))),
      dir, readable_bytes(double(available))));
}

}  // namespace headrace::cli
