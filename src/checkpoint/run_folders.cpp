// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>

#include "headrace/error.h"

namespace headrace::saved {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTempPrefix = ".tmp-";
constexpr std::string_view kRemovedLabel = "removed-";
constexpr std::string_view kReplacedLabel = "replaced";
constexpr std::string_view kEarlierPrefix = "earlier-";

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error && error.value() != ENOENT) throw IoError("list", dir, error.value());
  return names;
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  // Another process may be clearing the same leftovers.
  if (error && error.value() != ENOENT) throw IoError("remove", path, error.value());
}

void remove_tree_quietly(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::string temp_path(const std::string& dir, const std::string& label) {
  std::random_device random;
  return fmt::format("{}/{}{}-{}-{:08x}", dir, kTempPrefix, label, ::getpid(), random());
}

/// A whole number in `base`, nothing else.
std::optional<uint64_t> number_in(std::string_view text, int base = 10) {
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Cuts the part after the last '-' off `text` and returns it; all of it when there is none.
std::string_view cut_last_part(std::string_view& text) {
  const size_t dash = text.rfind('-');
  const std::string_view part = dash == std::string_view::npos ? text : text.substr(dash + 1);
  text = dash == std::string_view::npos ? std::string_view() : text.substr(0, dash);
  return part;
}

}  // namespace

void make_folders(const std::string& dir) {
  std::error_code error;
  const bool made = fs::create_directories(dir, error);
  if (error) throw IoError("make the folder", dir, error.value());
  if (!made) return;
  const fs::path parent = fs::absolute(dir).lexically_normal().parent_path();
  sync_folder(parent.string());
}

std::string step_folder_name(uint64_t step) {
  return fmt::format("{}{:010}", kStepPrefix, step);
}

std::optional<uint64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  return number_in(std::string_view(name).substr(kStepPrefix.size()));
}

std::vector<StepFolder> step_folders(const std::string& dir) {
  std::vector<StepFolder> out;
  for (const std::string& name : names_in(dir)) {
    if (const auto step = step_of(name)) out.push_back({*step, dir + "/" + name});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return out;
}

TempFolder::TempFolder(const std::string& dir, const std::string& label)
    : dir_(dir), path_(temp_path(dir, label)) {
  make_folders(dir);
  // The directory's lock spans mkdir and the new folder's lock: in between, it looks like a dead process's.
  File directory = File::open_folder(dir);
  (void)directory.lock(true);  // without locks on this file system nobody cleans away either
  if (::mkdir(path_.c_str(), 0777) != 0) throw IoError("make the folder", path_, errno);
  try {
    folder_.emplace(File::open_folder(path_));
  } catch (...) {
    remove_tree_quietly(path_);
    throw;
  }
  (void)folder_->lock(false);
}

TempFolder::~TempFolder() {
  if (!path_.empty()) remove_tree_quietly(path_);
}

void TempFolder::sync() {
  folder_->sync();
}

bool TempFolder::publish(const std::string& target) {
  if (::rename(path_.c_str(), target.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST) return false;
    throw IoError("rename to " + target, path_, errno);
  }
  path_.clear();
  sync_folder(dir_);
  return true;
}

bool TempFolder::replace(const std::string& target) {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(dir_);
    return true;  // what stood there has the temporary name now and goes with it
  }
  if (errno == ENOENT) return false;
  if (errno != EINVAL && errno != ENOSYS) throw IoError("exchange with " + target, path_, errno);
  // A file system without exchange: for a moment neither folder has the name.
  const std::string aside = temp_path(dir_, std::string(kReplacedLabel));
  if (::rename(target.c_str(), aside.c_str()) != 0 && errno != ENOENT) {
    throw IoError("rename to " + aside, target, errno);
  }
  const bool done = publish(target);
  remove_tree_quietly(aside);
  return done;
}

void remove_step_folder(const std::string& dir, const StepFolder& folder) {
  const std::string aside = temp_path(dir, std::string(kRemovedLabel) + step_folder_name(folder.step));
  if (::rename(folder.path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw IoError("rename to " + aside, folder.path, errno);
  }
  sync_folder(dir);
  remove_tree(aside);
}

std::optional<std::string> set_aside(const std::string& dir) {
  const std::vector<StepFolder> folders = step_folders(dir);
  if (folders.empty()) return std::nullopt;
  std::string target;
  for (unsigned number = 1;; ++number) {
    target = fmt::format("{}/{}{}", dir, kEarlierPrefix, number);
    if (::mkdir(target.c_str(), 0777) == 0) break;
    if (errno != EEXIST) throw IoError("make the folder", target, errno);
  }
  for (const StepFolder& folder : folders) {
    const std::string to = target + "/" + step_folder_name(folder.step);
    if (::rename(folder.path.c_str(), to.c_str()) != 0 && errno != ENOENT) {
      throw IoError("rename to " + to, folder.path, errno);
    }
  }
  sync_folder(target);
  sync_folder(dir);
  return target;
}

std::vector<std::string> earlier_folders(const std::string& dir) {
  std::vector<std::pair<uint64_t, std::string>> found;
  for (const std::string& name : names_in(dir)) {
    if (!name.starts_with(kEarlierPrefix)) continue;
    const auto number = number_in(std::string_view(name).substr(kEarlierPrefix.size()));
    if (number) found.emplace_back(*number, dir + "/" + name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [number, path] : found) paths.push_back(std::move(path));
  return paths;
}

bool is_temp_name(std::string_view name) {
  if (!name.starts_with(kTempPrefix)) return false;
  std::string_view label = name.substr(kTempPrefix.size());
  const std::string_view random = cut_last_part(label), pid = cut_last_part(label);
  if (random.size() != 8 || !number_in(random, 16) || !number_in(pid)) return false;
  if (label == kReplacedLabel) return true;
  if (label.starts_with(kRemovedLabel)) label.remove_prefix(kRemovedLabel.size());
  const auto step = step_of(std::string(label));
  return step && label == step_folder_name(*step);
}

void remove_dead_temp_folders(const std::string& dir) {
  std::vector<std::string> names = names_in(dir);
  std::erase_if(names, [](const std::string& name) { return !is_temp_name(name); });
  if (names.empty()) return;
  File directory = File::open_folder(dir);
  if (directory.lock(true) != File::Lock::taken) return;
  for (const std::string& name : names) {
    const std::string path = dir + "/" + name;
    try {
      File folder = File::open_folder(path);
      if (folder.lock(false) == File::Lock::taken) remove_tree(path);
    } catch (const IoError& error) {
      if (error.error_code != ENOENT && error.error_code != ENOTDIR) throw;
    }
  }
}

}  // namespace headrace::saved
