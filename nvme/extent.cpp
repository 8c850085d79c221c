// SPDX-License-Identifier: Apache-2.0
#include "nvme/extent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "headrace/error.h"
#include "nvme/crc32c.h"

namespace headrace::nvme {
namespace {

/// Calls visit(piece index, its bytes) for each piece of data that starts at `offset` of the extent.
template <class Span, class Visit>
void for_each_piece(uint64_t offset, Span data, Visit visit) {
  for (size_t begin = 0; begin < data.size(); begin += kCrcBytes) {
    visit(size_t((offset + begin) / kCrcBytes),
          data.subspan(begin, std::min(kCrcBytes, data.size() - begin)));
  }
}

FileDescriptor open_file(const std::string& path, int flags) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (!file) throw IoError(flags & O_CREAT ? "create" : "open", path, errno);
  return file;
}

}  // namespace

Extent::Extent(std::string path, uint64_t bytes, size_t block_bytes, unsigned first_slot)
    : path_(std::move(path)),
      bytes_(bytes),
      block_bytes_(block_bytes),
      direct_bytes_(block_bytes ? bytes / block_bytes * block_bytes : 0),
      first_slot_(first_slot),
      pieces_((bytes + kCrcBytes - 1) / kCrcBytes, Piece::never_written),
      checksums_(pieces_.size(), 0) {
  // A second descriptor only where it is used: descriptors are few.
  const bool has_tail = direct_bytes_ < bytes_ || bytes_ == 0;
  (has_tail ? buffered_fd_ : direct_fd_) = open_file(path_, O_CREAT | O_EXCL | (has_tail ? 0 : O_DIRECT));
  try {
    if (direct_bytes_ > 0 && !direct_fd_) direct_fd_ = open_file(path_, O_DIRECT);
    reserve();
  } catch (...) {
    ::unlink(path_.c_str());
    throw;
  }
}

Extent::~Extent() {
  ::unlink(path_.c_str());
}

void Extent::reserve() {
  if (bytes_ == 0) return;
  rlimit limit{};
  // Beyond this limit posix_fallocate does not only fail: its signal would end the process.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes_ > limit.rlim_cur) {
    throw IoError("reserve (RLIMIT_FSIZE)", path_, EFBIG, 0, bytes_);
  }
  int code = 0;
  do {
    code = ::posix_fallocate(fd(direct_bytes_ > 0), 0, off_t(bytes_));
  } while (code == EINTR);
  if (code != 0) throw IoError("reserve", path_, code, 0, bytes_);
}

void Extent::begin_write(uint64_t offset, std::span<const std::byte> data, bool checksum) {
  for_each_piece(offset, data, [&](size_t index, std::span<const std::byte> piece) {
    pieces_[index] = Piece::incomplete;
    if (checksum) checksums_[index] = crc32c(piece);
  });
}

void Extent::finish_write(uint64_t offset, uint64_t bytes) {
  const auto first = ptrdiff_t(offset / kCrcBytes);
  const auto last = ptrdiff_t((offset + bytes + kCrcBytes - 1) / kCrcBytes);
  std::fill(pieces_.begin() + first, pieces_.begin() + last, Piece::written);
  unsynced_.store(true);
}

void Extent::verify(uint64_t offset, std::span<const std::byte> data, bool checksum) const {
  for_each_piece(offset, data, [&](size_t index, std::span<const std::byte> piece) {
    const uint64_t at = uint64_t(index) * kCrcBytes;
    if (pieces_[index] == Piece::never_written) throw CorruptData(path_, at, "this piece was never written");
    if (pieces_[index] == Piece::incomplete) throw CorruptData(path_, at, "its last write did not complete");
    if (!checksum) return;
    const uint32_t now = crc32c(piece);
    if (now == checksums_[index]) return;
    throw CorruptData(path_, at,
                      fmt::format("CRC32C of {} bytes is {:#010x}, was {:#010x} when written", piece.size(),
                                  now, checksums_[index]));
  });
}

}  // namespace headrace::nvme
