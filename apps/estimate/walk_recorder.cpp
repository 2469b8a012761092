#include "estimate/walk_recorder.h"

#include "base/check.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>

namespace fsdp::estimate {
namespace {

constexpr std::string_view kUnit = "unit ";

/// FSDP2 makes the output of a gather on one stream, the result of a reduction on another, and all
/// else on that of the kernels.
int stream_of(MemoryKind kind) {
  if (kind == MemoryKind::all_gather) return 1;
  return kind == MemoryKind::sharded_grad ? 2 : 0;
}

}  // namespace

WalkRecorder::WalkRecorder(std::vector<std::string> units)
    : units_(std::make_move_iterator(units.begin()), std::make_move_iterator(units.end())) {
  tracker_.set_observer(this);
  tracker_.set_time_source([this] { return now_; });
}

void WalkRecorder::begin_record() { tracker_.set_logging(true); }

void WalkRecorder::begin_iteration() {
  places_.clear();
  table_.begin_iteration(tracker_.current());
  tracker_.reset_peak();
  host_.reset_peak();
}

IterationMemory WalkRecorder::end_iteration() {
  IterationMemory memory = table_.end_iteration(tracker_.peak(), tracker_.current());
  memory.host_peak = host_.peak();
  memory.host_after = host_.current();
  return memory;
}

report::RankRecord WalkRecorder::finish(int rank) {
  report::RankRecord record;
  record.rank = rank;
  record.end = now_;
  record.memory = tracker_.log();
  record.peak = tracker_.peak();
  record.host_peak = host_.peak();
  return record;
}

void WalkRecorder::on_bytes(const paper::BytesChange& change) {
  now_ = std::max(now_, change.time);
  MemoryTracker& tracker = change.space == paper::MemorySpace::host ? host_ : tracker_;
  change.nbytes > 0 ? hold(tracker, change) : drop(tracker, change);
}

WalkRecorder::Blocks& WalkRecorder::blocks_of(const MemoryTracker& tracker, MemoryKind kind) {
  return (&tracker == &host_ ? on_host_ : on_device_)[static_cast<std::size_t>(kind)];
}

std::string WalkRecorder::owner_of(const Owner& owner) const {
  if (!owner.unit.empty()) return std::string(kUnit) + owner.unit;
  return owner.name.substr(0, owner.name.rfind('.'));
}

void WalkRecorder::hold(MemoryTracker& tracker, const paper::BytesChange& change) {
  const auto id =
      tracker.on_alloc(change.kind, change.nbytes, std::make_shared<const Owner>(change.owner));
  Block block{id, change.nbytes, owner_of(change.owner), {}};
  if (&tracker == &tracker_) {
    block.place = allocator_.allocate(stream_of(change.kind), change.nbytes);
  }
  blocks_of(tracker, change.kind).push_back(std::move(block));
}

// The walk says how many bytes go, and whose; which tensors these are, their sizes tell: one of the
// same size and owner, or of the same size, or the last ones of the owner. What is a unit's is
// dropped as a unit's.
void WalkRecorder::drop(MemoryTracker& tracker, const paper::BytesChange& change) {
  Blocks& blocks = blocks_of(tracker, change.kind);
  const std::string owner = owner_of(change.owner);
  std::int64_t left = -change.nbytes;
  while (left > 0) {
    const auto last = [&](auto&& fits) {
      return std::find_if(blocks.rbegin(), blocks.rend(), [&](const Block& each) {
        return each.owner.starts_with(kUnit) == owner.starts_with(kUnit) && fits(each);
      });
    };
    auto found =
        last([&](const Block& each) { return each.nbytes == left && each.owner == owner; });
    if (found == blocks.rend()) {
      found = last([&](const Block& each) { return each.nbytes == left; });
    }
    if (found == blocks.rend()) {
      found = last([&](const Block& each) { return each.owner == owner; });
    }
    if (found == blocks.rend()) found = last([](const Block&) { return true; });
    FSDP_CHECK(found != blocks.rend(), "{} bytes of {} are dropped, but none are held", left,
               name_of(change.kind));
    Block block = std::move(*found);
    blocks.erase(std::next(found).base());
    tracker.on_free(block.id);
    if (&tracker == &tracker_) allocator_.free(block.place);
    if (block.nbytes > left) {
      const Owner rest = block.owner.starts_with(kUnit)
                             ? Owner{block.owner.substr(kUnit.size()), ""}
                             : Owner{"", block.owner + ".rest"};
      hold(tracker, {change.space, change.kind, block.nbytes - left, rest, now_});
    }
    left -= std::min(left, block.nbytes);
  }
}

void WalkRecorder::on_relabel(const paper::BytesChange& change, MemoryKind to) {
  Blocks& from = blocks_of(tracker_, change.kind);
  const std::string owner = owner_of(change.owner);
  std::int64_t left = change.nbytes;
  for (std::size_t i = from.size(); i-- > 0 && left > 0;) {
    if (from[i].owner != owner || from[i].nbytes > left) continue;
    left -= from[i].nbytes;
    tracker_.recategorize(from[i].id, to);
    blocks_of(tracker_, to).push_back(std::move(from[i]));
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
  }
  FSDP_CHECK(left == 0, "{} bytes of {} for {} are not held", left, name_of(change.kind), owner);
}

void WalkRecorder::on_state(const std::string& module, nn::CallState state) {
  const auto [place, is_new] = places_.try_emplace(module, 0);
  if (is_new) place->second = table_.add_module(module, units_.contains(module));
  table_.add_state(place->second, state, tracker_.current());
}

void WalkRecorder::on_phase(const char* name, int micro_step) {
  table_.begin_phase(name, micro_step, tracker_.current());
}

void WalkRecorder::on_growth(const Breakdown& now, std::int64_t total) {
  table_.add_growth(now, total);
}

}  // namespace fsdp::estimate
