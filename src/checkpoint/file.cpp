// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "headrace/error.h"

namespace headrace::saved {

File::File(const std::string& path, int flags)
    : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw IoError("open", path, errno);
}

File File::create(const std::string& path) {
  return {path, O_WRONLY | O_CREAT | O_EXCL};
}
File File::open(const std::string& path) {
  // O_NONBLOCK: a pipe must not keep the program waiting for a writer.
  File file(path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) throw IoError("fstat", path, errno);
  if (!S_ISREG(info.st_mode)) throw CorruptData(path, 0, "not a regular file");
  return file;
}
File File::open_folder(const std::string& path) {
  return {path, O_RDONLY | O_DIRECTORY};
}
File File::open_or_create(const std::string& path) {
  return {path, O_RDWR | O_CREAT | O_NOFOLLOW};
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

uint64_t File::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw IoError("fstat", path_, errno);
  return uint64_t(info.st_size);
}

void File::reserve(uint64_t bytes) {
  if (bytes == 0) return;  // fallocate refuses a length of 0
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(fd_, 0, off_t(bytes));
  if (error != 0) throw IoError("reserve space for", path_, error, 0, bytes);
}

void File::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), off_t(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw IoError("write", path_, errno, offset, bytes.size());
    if (done == 0) throw IoError("write", path_, 0, offset, bytes.size());
    offset += uint64_t(done);
    bytes = bytes.subspan(size_t(done));
  }
}

void File::read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(fd_, bytes.data(), bytes.size(), off_t(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw IoError("read", path_, errno, offset, bytes.size());
    if (done == 0) throw IoError("read", path_, 0, offset, bytes.size());
    offset += uint64_t(done);
    bytes = bytes.subspan(size_t(done));
  }
}

void File::sync() {
  int result = -1;
  do {
    result = ::fsync(fd_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw IoError("fsync", path_, errno);
}

void File::close() {
  // Not retried after EINTR: Linux has released the descriptor by then.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw IoError("close", path_, errno);
}

bool File::has_its_name() const {
  struct stat own {
  }, named{};
  if (::fstat(fd_, &own) != 0) throw IoError("fstat", path_, errno);
  return ::stat(path_.c_str(), &named) == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

File::Lock File::lock(bool wait) {
  while (::flock(fd_, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? Lock::held_by_another : Lock::unsupported;
  }
  return Lock::taken;
}

void write_file(const std::string& path, std::string_view content) {
  File file = File::create(path);
  file.write(0, std::as_bytes(std::span(content)));
  file.sync();
  file.close();
}

std::string read_file(const std::string& path) {
  const File file = File::open(path);
  std::string content(size_t(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void sync_folder(const std::string& path) {
  File folder = File::open_folder(path);
  folder.sync();
  folder.close();
}

}  // namespace headrace::saved
