#include "device/free_blocks.h"

#include <bit>

namespace fsdp {
namespace {
// No block is empty. With `| 1` the class is one to shift by, whatever a caller passes.
std::size_t class_of(std::size_t nbytes) {
  return static_cast<std::size_t>(std::bit_width(nbytes | 1)) - 1;
}
}  // namespace

std::optional<FreeBlocks::Entry> FreeBlocks::lowest_fit(std::size_t nbytes) const {
  const std::size_t own_class = class_of(nbytes);
  std::optional<Entry> best;
  // Shifted in two steps: a shift by 64 would be undefined.
  for (std::uint64_t larger = used_classes_ >> own_class >> 1 << 1 << own_class; larger != 0;
       larger &= larger - 1) {
    const auto& blocks = by_class_[static_cast<std::size_t>(std::countr_zero(larger))];
    if (!best || blocks.begin()->first < best->first) best = *blocks.begin();
  }
  for (const Entry& entry : by_class_[own_class]) {
    if (best && entry.first > best->first) break;
    if (entry.second >= nbytes) return entry;
  }
  return best;
}

std::optional<FreeBlocks::Address> FreeBlocks::take(std::size_t nbytes) {
  const std::optional<Entry> fit = lowest_fit(nbytes);
  if (!fit) return std::nullopt;
  erase(fit->first, fit->second);
  if (fit->second > nbytes) insert(fit->first + nbytes, fit->second - nbytes);
  return fit->first;
}

void FreeBlocks::add(Address begin, std::size_t nbytes) {
  Address end = begin + nbytes;
  auto next = by_address_.lower_bound(begin);
  if (next != by_address_.begin()) {
    const Entry before = *std::prev(next);
    if (before.first + before.second == begin) {
      erase(before.first, before.second);
      begin = before.first;
    }
  }
  if (next != by_address_.end() && next->first == end) {
    const Entry after = *next;
    erase(after.first, after.second);
    end = after.first + after.second;
  }
  insert(begin, end - begin);
}

void FreeBlocks::insert(Address begin, std::size_t nbytes) {
  const std::size_t own_class = class_of(nbytes);
  by_address_.emplace(begin, nbytes);
  by_class_[own_class].emplace(begin, nbytes);
  used_classes_ |= std::uint64_t{1} << own_class;
  total_ += nbytes;
}

void FreeBlocks::erase(Address begin, std::size_t nbytes) {
  const std::size_t own_class = class_of(nbytes);
  by_address_.erase(begin);
  by_class_[own_class].erase({begin, nbytes});
  if (by_class_[own_class].empty()) used_classes_ &= ~(std::uint64_t{1} << own_class);
  total_ -= nbytes;
}

}  // namespace fsdp
