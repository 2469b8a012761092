#include "device/allocator.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>

namespace fsdp {

Allocator::Block Allocator::allocate(std::size_t nbytes, MemoryKind kind,
                                     std::shared_ptr<const Owner> owner) {
  const std::size_t size = round_up(nbytes);
  const auto in_use = static_cast<std::size_t>(tracker_->current_total());
  if (limit_ != 0 && in_use + size > limit_) [[unlikely]] {
    ++refusals_;
    fail(
        "out of memory: {} bytes of {} for {} do not fit the limit of {} bytes, {} of which are "
        "in use ({}). Raise the limit, or use a smaller batch or more ranks.",
        size, name_of(kind), owner ? to_string(*owner) : "an unnamed owner", limit_, in_use,
        to_string(tracker_->current()));
  }
  std::byte* bytes = size == 0 ? nullptr : take(size);
  if (bytes != nullptr && fills_fresh_memory()) fill_fresh(bytes, size);
  held_ += size;
  most_held_ = std::max(most_held_, held_);
  return {bytes, tracker_->on_alloc(kind, static_cast<std::int64_t>(size), std::move(owner))};
}

void Allocator::release(const Block& block, std::size_t nbytes) {
  const std::size_t size = round_up(nbytes);
  tracker_->on_free(block.id);
  held_ -= size;
  if (block.bytes != nullptr) give_back(block.bytes, size);
}

void Allocator::fill_fresh(std::byte* bytes, std::size_t nbytes) {
  std::memset(bytes, 0xFF, nbytes);
}

}  // namespace fsdp
