// SPDX-License-Identifier: Apache-2.0
#include "nvme/run_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <memory>
#include <vector>

#include "headrace/error.h"
#include "headrace/nvme.h"

namespace headrace::nvme {
namespace {

constexpr std::string_view kPrefix = "headrace-";
constexpr const char* kNewOwnerFile = "owner.new";
constexpr const char* kPathKey = "nvme.paths";

enum class FolderState { not_ours, in_use, dead };

/// What a folder is found to be. A dead one stays locked, and thereby ours, until this goes.
struct Inspection {
  FolderState state = FolderState::not_ours;
  int64_t pid = 0;
  FileDescriptor folder;
  FileDescriptor owner;
};

std::string unique_run_id() {
  uint32_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != ssize_t(sizeof random)) random = uint32_t(::time(nullptr));
  return fmt::format("{}-{:08x}", ::getpid(), random);
}

bool is_plain_name(const std::string& name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !name.empty() && name.size() <= 200 && std::all_of(name.begin(), name.end(), allowed);
}

/// The pid of "pid=N\nstarted=T\n"; 0 when the file is not one of ours.
int64_t read_pid(int fd) {
  std::array<char, 128> text{};
  const ssize_t length = ::pread(fd, text.data(), text.size(), 0);
  if (length <= 0) return 0;
  const std::string_view content(text.data(), size_t(length));
  if (!content.starts_with("pid=") || content.find("\nstarted=") == std::string_view::npos) return 0;
  int64_t pid = 0;
  std::from_chars(content.data() + 4, content.data() + content.size(), pid);
  return pid;
}

Inspection inspect(const std::string& path) {
  Inspection found;
  found.folder = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!found.folder) return found;
  found.owner = FileDescriptor(
      ::openat(found.folder.get(), kOwnerFile.data(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!found.owner || ::fstat(found.owner.get(), &status) != 0 || !S_ISREG(status.st_mode)) return found;
  found.pid = read_pid(found.owner.get());
  if (found.pid == 0) return found;
  // Anything but success counts as in use: a lock that cannot be asked for protects as well.
  const bool locked = ::flock(found.owner.get(), LOCK_EX | LOCK_NB) == 0;
  found.state = locked ? FolderState::dead : FolderState::in_use;
  return found;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

struct Contents {
  std::vector<std::string> files;  // without the owner file
  uint64_t bytes = 0;
  bool only_files = true;
};

Contents list_contents(int folder) {
  Contents contents;
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const Directory directory(own >= 0 ? ::fdopendir(own) : nullptr);
  if (!directory) {
    contents.only_files = false;  // what cannot be listed is not touched
    return contents;
  }
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || name == kOwnerFile) continue;
    struct stat status {};
    if (::fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    contents.only_files = contents.only_files && S_ISREG(status.st_mode);
    contents.bytes += uint64_t(status.st_size);
    contents.files.emplace_back(name);
  }
  return contents;
}

[[noreturn]] void throw_exists(const std::string& path) {
  const Inspection found = inspect(path);
  switch (found.state) {
    case FolderState::in_use:
      throw ConfigError(kPathKey, fmt::format("{} is in use by process {}", path, found.pid));
    case FolderState::dead:
      throw ConfigError(kPathKey, fmt::format("{} was left by process {}, which is gone; remove it with "
                                              "`headrace doctor --clean`",
                                              path, found.pid));
    case FolderState::not_ours:
      break;
  }
  throw ConfigError(kPathKey, fmt::format("{} exists and is not a store's folder; move it away", path));
}

}  // namespace

RunFolder::RunFolder(const std::string& path, const std::string& run_id) {
  const std::string id = run_id.empty() ? unique_run_id() : run_id;
  if (!is_plain_name(id)) {
    throw ConfigError("",
                      fmt::format("run id \"{}\": only letters, digits, '-', '_' and '.' are allowed", id));
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw IoError("nvme.paths: open the folder", path, errno);
  if (!S_ISDIR(status.st_mode)) throw IoError("nvme.paths: open the folder", path, ENOTDIR);
  path_ = fmt::format("{}/{}{}", path, kPrefix, id);
  if (::mkdir(path_.c_str(), 0700) != 0) {
    if (errno == EEXIST) throw_exists(path_);
    throw IoError("create folder", path_, errno);
  }
  try {
    take_ownership();
  } catch (...) {
    ::unlink(fmt::format("{}/{}", path_, kNewOwnerFile).c_str());
    ::rmdir(path_.c_str());
    throw;
  }
}

void RunFolder::take_ownership() {
  // Locked and filled under another name first: whoever sees `owner` sees it locked.
  const std::string temporary = fmt::format("{}/{}", path_, kNewOwnerFile);
  const std::string name = fmt::format("{}/{}", path_, kOwnerFile);
  owner_ = FileDescriptor(::open(temporary.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!owner_) throw IoError("create", temporary, errno);
  if (::flock(owner_.get(), LOCK_EX | LOCK_NB) != 0) throw IoError("lock", temporary, errno);
  const std::string text = fmt::format("pid={}\nstarted={}\n", ::getpid(), ::time(nullptr));
  const ssize_t written = ::pwrite(owner_.get(), text.data(), text.size(), 0);
  if (written != ssize_t(text.size()))
    throw IoError("write", temporary, written < 0 ? errno : 0, 0, text.size());
  if (::rename(temporary.c_str(), name.c_str()) != 0) throw IoError("rename", temporary, errno);
}

RunFolder::~RunFolder() {
  ::unlink(fmt::format("{}/{}", path_, kOwnerFile).c_str());
  ::rmdir(path_.c_str());
}

std::vector<Leftover> find_leftovers(const std::string& path) {
  const Directory directory(::opendir(path.c_str()));
  if (!directory) throw IoError("open directory", path, errno);
  std::vector<Leftover> leftovers;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (!std::string_view(entry->d_name).starts_with(kPrefix)) continue;
    const std::string folder = fmt::format("{}/{}", path, entry->d_name);
    const Inspection found = inspect(folder);
    if (found.state != FolderState::dead) continue;
    leftovers.push_back({folder, list_contents(found.folder.get()).bytes, found.pid});
  }
  std::sort(leftovers.begin(), leftovers.end(),
            [](const Leftover& a, const Leftover& b) { return a.folder < b.folder; });
  return leftovers;
}

void remove_leftover(const Leftover& leftover) {
  const std::string& folder = leftover.folder;
  const std::string name = folder.substr(folder.find_last_of('/') + 1);
  const Inspection found = inspect(folder);
  if (found.state == FolderState::in_use) {
    throw ConfigError(kPathKey, fmt::format("{} is in use by process {}", folder, found.pid));
  }
  const Contents contents = found.state == FolderState::dead ? list_contents(found.folder.get()) : Contents{};
  if (found.state == FolderState::not_ours || !name.starts_with(kPrefix) || !contents.only_files) {
    throw ConfigError(kPathKey, fmt::format("{} is not a store's folder; nothing was removed", folder));
  }
  for (const std::string& file : contents.files) {
    if (::unlinkat(found.folder.get(), file.c_str(), 0) != 0) {
      throw IoError("remove", folder + "/" + file, errno);
    }
  }
  // The owner file goes last: a removal cut short is found again.
  if (::unlinkat(found.folder.get(), kOwnerFile.data(), 0) != 0) throw IoError("remove", folder, errno);
  if (::rmdir(folder.c_str()) != 0) throw IoError("remove", folder, errno);
}

}  // namespace headrace::nvme
