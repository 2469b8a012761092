#include "device/memory_tracker.h"

#include "base/check.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace fsdp {

void MemoryTracker::add(MemoryKind kind, std::int64_t nbytes) {
  current_[kind] += nbytes;
  current_total_ += nbytes;
  if (nbytes <= 0) return;
  if (current_total_ > peak_total_) {
    peak_total_ = current_total_;
    peak_ = current_;
  }
  for (const ActiveModule& module : active_modules_) {
    *module.peak = std::max(*module.peak, current_total_);
  }
  if (observer_ != nullptr) observer_->on_growth(current_, current_total_);
}

void MemoryTracker::set_observer(GrowthObserver* observer) {
  FSDP_CHECK(observer == nullptr || observer_ == nullptr,
             "this tracker already has an observer, which cannot be replaced");
  observer_ = observer;
}

MemoryTracker::Block& MemoryTracker::find(BlockId id) {
  const auto slot = static_cast<std::size_t>(id & kSlotMask);
  FSDP_CHECK(id >= 0 && slot < blocks_.size() && blocks_[slot].id == id,
             "memory block {} is not allocated: it was already freed, or never allocated", id);
  return blocks_[slot];
}

void MemoryTracker::log(LogEntry::What what, const Block& block) {
  const std::int64_t time = now_ ? now_() : 0;
  log_.push_back({what, block.id, block.kind, block.nbytes, block.owner, time});
}

// Destructors free blocks, and must not need memory for it: whatever a block adds to the lists when
// it is freed has its place from now on.
void MemoryTracker::make_room(std::size_t blocks) {
  if (blocks > free_slots_.capacity()) free_slots_.reserve(2 * blocks);
  const std::size_t wanted = log_.size() + 1 + blocks;
  if (logging_ && wanted > log_.capacity()) log_.reserve(2 * wanted);
}

MemoryTracker::BlockId MemoryTracker::on_alloc(MemoryKind kind, std::int64_t nbytes,
                                               std::shared_ptr<const Owner> owner) {
  std::size_t slot = blocks_.size();
  make_room(slot + 1);
  if (free_slots_.empty()) {
    blocks_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  // The upper half counts, the lower half finds: no id is ever used twice, and a stale one is seen.
  const BlockId id = (next_block_++ << kSlotBits) | static_cast<BlockId>(slot);
  blocks_[slot] = {id, kind, nbytes, std::move(owner)};
  if (logging_) log(LogEntry::What::alloc, blocks_[slot]);
  add(kind, nbytes);
  return id;
}

void MemoryTracker::on_free(BlockId id) {
  Block& block = find(id);
  add(block.kind, -block.nbytes);
  if (logging_) log(LogEntry::What::free, block);
  block.id = -1;
  block.owner = nullptr;
  free_slots_.push_back(static_cast<std::size_t>(id & kSlotMask));
}

void MemoryTracker::recategorize(BlockId id, MemoryKind kind) {
  reassign(id, kind, find(id).owner);
  // More of this kind. Between the two halves of a swap of bytes nothing is notified.
  if (observer_ != nullptr) observer_->on_growth(current_, current_total_);
}

void MemoryTracker::reassign(BlockId id, MemoryKind kind, std::shared_ptr<const Owner> owner) {
  Block& block = find(id);
  make_room(blocks_.size());
  current_[block.kind] -= block.nbytes;
  current_[kind] += block.nbytes;
  block.kind = kind;
  block.owner = std::move(owner);
  if (logging_) log(LogEntry::What::recategorize, block);
}

void MemoryTracker::enter_module(const std::string& path) {
  std::int64_t& peak = module_peaks_[path];
  peak = std::max(peak, current_total_);
  active_modules_.push_back({path, &peak});  // map nodes stay where they are
}

void MemoryTracker::leave_module(const std::string& path) {
  const auto innermost = std::find_if(active_modules_.rbegin(), active_modules_.rend(),
                                      [&](const ActiveModule& m) { return m.path == path; });
  FSDP_CHECK(innermost != active_modules_.rend(), "module {} was exited but never entered", path);
  active_modules_.erase(std::next(innermost).base());
}

void MemoryTracker::reset_peak() {
  peak_ = current_;
  peak_total_ = current_total_;
  module_peaks_.clear();
  for (ActiveModule& module : active_modules_) {
    module.peak = &module_peaks_[module.path];
    *module.peak = current_total_;
  }
}

std::map<std::string, std::int64_t> MemoryTracker::by_owner() const {
  std::map<std::string, std::int64_t> result;
  for (const Block& block : blocks_) {
    if (block.id < 0) continue;
    const Owner* owner = block.owner.get();
    result[owner ? fmt::format("{}/{}", owner->unit, owner->name) : "/"] += block.nbytes;
  }
  return result;
}

void MemoryTracker::set_logging(bool on) {
  if (on && !logging_) {
    log_.clear();
    log_.reserve(2 * blocks_.size() + 1);
    for (const Block& block : blocks_) {
      if (block.id >= 0) log(LogEntry::What::alloc, block);
    }
  }
  logging_ = on;
}

Breakdown replay_peak(const std::vector<MemoryTracker::LogEntry>& log) {
  using What = MemoryTracker::LogEntry::What;
  MemoryTracker tracker;
  std::unordered_map<MemoryTracker::BlockId, MemoryTracker::BlockId> replayed;
  for (const MemoryTracker::LogEntry& entry : log) {
    if (entry.what == What::alloc) {
      replayed[entry.block] = tracker.on_alloc(entry.kind, entry.nbytes, entry.owner);
      continue;
    }
    const auto block = replayed.find(entry.block);
    FSDP_CHECK(block != replayed.end(), "the memory log uses block {} before it allocates it",
               entry.block);
    if (entry.what == What::free) {
      tracker.on_free(block->second);
      replayed.erase(block);
    } else {
      tracker.recategorize(block->second, entry.kind);
    }
  }
  return tracker.peak();
}

namespace {
// What AllocationScope sets: state of the thread, as ranks may be threads.
thread_local MemoryKind scope_kind = MemoryKind::activation;
thread_local std::shared_ptr<const Owner> scope_owner;
}  // namespace

AllocationScope::AllocationScope(MemoryKind kind) : AllocationScope(kind, scope_owner) {}

AllocationScope::AllocationScope(MemoryKind kind, std::shared_ptr<const Owner> owner)
    : previous_kind_(std::exchange(scope_kind, kind)),
      previous_owner_(std::exchange(scope_owner, std::move(owner))) {}

AllocationScope::~AllocationScope() {
  scope_kind = previous_kind_;
  scope_owner = std::move(previous_owner_);
}

MemoryKind AllocationScope::kind() { return scope_kind; }
std::shared_ptr<const Owner> AllocationScope::owner() { return scope_owner; }

}  // namespace fsdp
