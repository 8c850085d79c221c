// SPDX-License-Identifier: Apache-2.0
#include "data/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "headrace/error.h"

namespace headrace {
namespace {

/// Closes on every way out; nothing was written, so close has nothing to report.
struct ReadFd {
  int fd;
  ~ReadFd() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: a pipe must not keep the program waiting for a writer.
  const ReadFd file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) throw IoError("open", path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) throw IoError("fstat", path, errno);
  if (S_ISDIR(info.st_mode)) throw IoError("map", path, EISDIR);
  if (!S_ISREG(info.st_mode)) throw IoError("map", path, ENODEV);
  device_ = info.st_dev;
  inode_ = info.st_ino;
  if (info.st_size == 0) return;  // mmap refuses a length of 0
  const auto size = size_t(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw IoError("mmap", path, errno, 0, size);
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      device_(other.device_),
      inode_(other.inode_),
      bytes_(std::exchange(other.bytes_, {})) {}

void MappedFile::check_size() const {
  struct stat info {};
  const bool same = ::stat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
  if (!same || uint64_t(info.st_size) >= bytes_.size()) return;
  throw CorruptData(
      path_, uint64_t(info.st_size),
      fmt::format("the file ends here, but had {} bytes when it was opened: it was cut while in "
                  "use; restore it and continue from the last saved run (--resume)",
                  bytes_.size()));
}

}  // namespace headrace
