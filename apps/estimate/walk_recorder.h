/// @file
/// @ingroup estimate
/// WalkRecorder: what a walk on paper leaves, in the terms of a run.
#pragma once

#include "estimate/caching_allocator.h"
#include "estimate/iteration_table.h"
#include "paper/walk_observer.h"
#include "report/run_record.h"

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::estimate {

/// Counts a walk with a MemoryTracker, keeps its log, and fills the tables of its iterations.
class WalkRecorder : public paper::WalkObserver, public GrowthObserver {
 public:
  /// @param units whose rows are shown: "root" and the segments
  explicit WalkRecorder(std::vector<std::string> units);
  ~WalkRecorder() override { tracker_.set_observer(nullptr); }
  WalkRecorder(const WalkRecorder&) = delete;
  WalkRecorder& operator=(const WalkRecorder&) = delete;

  const MemoryTracker& tracker() const { return tracker_; }
  /// From here on there is a log.
  void begin_record();
  void begin_iteration();
  IterationMemory end_iteration();
  report::RankRecord finish(int rank);
  /// What PyTorch's allocator has taken from the card so far.
  std::int64_t reserved() const { return allocator_.reserved(); }
  std::int64_t now() const { return now_; }

  void on_bytes(const paper::BytesChange& change) override;
  void on_relabel(const paper::BytesChange& change, MemoryKind to) override;
  void on_state(const std::string& module, nn::CallState state) override;
  void on_phase(const char* name, int micro_step) override;
  void on_growth(const Breakdown& now, std::int64_t total) override;

 private:
  struct Block {
    MemoryTracker::BlockId id;
    std::int64_t nbytes;
    std::string owner;  // "unit " and its name, or the segment
    CachingAllocator::Handle place;
  };
  using Blocks = std::vector<Block>;  // in the order of time
  void hold(MemoryTracker& tracker, const paper::BytesChange& change);
  void drop(MemoryTracker& tracker, const paper::BytesChange& change);
  Blocks& blocks_of(const MemoryTracker& tracker, MemoryKind kind);
  std::string owner_of(const Owner& owner) const;

  std::set<std::string> units_;
  MemoryTracker tracker_;
  MemoryTracker host_;
  std::array<Blocks, kMemoryKinds> on_device_, on_host_;
  CachingAllocator allocator_;
  IterationTable table_;
  std::map<std::string, std::size_t> places_;
  std::int64_t now_ = 0;  // of the last change
};

}  // namespace fsdp::estimate
