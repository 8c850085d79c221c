// SPDX-License-Identifier: Apache-2.0
// The public door of the store; extent_store.h is what is behind it.
#include "headrace/nvme.h"
#include "nvme/extent_store.h"

namespace headrace::nvme {

class Store::Impl : public ExtentStore {
 public:
  using ExtentStore::ExtentStore;
};

Store::Store(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
Store::~Store() = default;

void Store::register_memory(std::span<std::byte> arena) {
  impl_->register_memory(arena);
}
ExtentId Store::create(std::string_view name, uint64_t bytes) {
  return impl_->create(name, bytes);
}
uint64_t Store::extent_bytes(ExtentId id) const {
  return impl_->extent(id).bytes();
}
std::string Store::extent_path(ExtentId id) const {
  return impl_->extent(id).path();
}

Request Store::write(ExtentId id, uint64_t offset, std::span<const std::byte> data) {
  return impl_->write(id, offset, data);
}
Request Store::read(ExtentId id, uint64_t offset, std::span<std::byte> data) {
  return impl_->read(id, offset, data);
}
void Store::wait(Request request) {
  impl_->wait(request);
}
bool Store::done(const Request& request) const {
  return impl_->done(request);
}
void Store::sync() {
  impl_->sync();
}

LinkStats Store::read_stats() const {
  return impl_->read_stats();
}
LinkStats Store::write_stats() const {
  return impl_->write_stats();
}
EngineKind Store::engine() const {
  return impl_->engine();
}
std::string Store::engine_note() const {
  return impl_->engine_note();
}
uint64_t Store::reserved_bytes() const {
  return impl_->reserved_bytes();
}
const std::string& Store::folder() const {
  return impl_->folder();
}

}  // namespace headrace::nvme
