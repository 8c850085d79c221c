// SPDX-License-Identifier: Apache-2.0
#include "data/mapped_file.h"

#include <fcntl.h>
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

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: a pipe must not keep the program waiting for a writer.
  const ReadFd file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) throw IoError("open", path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) throw IoError("fstat", path, errno);
  if (S_ISDIR(info.st_mode)) throw IoError("map", path, EISDIR);
  if (!S_ISREG(info.st_mode)) throw IoError("map", path, ENODEV);
  if (info.st_size == 0) return;  // mmap refuses a length of 0
  const auto size = size_t(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw IoError("mmap", path, errno, 0, size);
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace headrace
