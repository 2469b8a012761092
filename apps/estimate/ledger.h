/// @file
/// @ingroup estimate
/// Ledger: bytes on paper.
#pragma once

#include "device/memory_tracker.h"

#include <cstdint>

namespace fsdp::estimate {

/// Counts like MemoryTracker, but of a plan: nothing is allocated, and nobody reports to it.
class Ledger {
 public:
  void hold(MemoryKind kind, std::int64_t nbytes) {
    now_[kind] += nbytes;
    total_ += nbytes;
    if (total_ <= peak_total_) return;  // the first of equals, as the tracker does
    peak_ = now_;
    peak_total_ = total_;
  }
  void drop(MemoryKind kind, std::int64_t nbytes) {
    now_[kind] -= nbytes;
    total_ -= nbytes;
  }
  /// The same bytes under another name.
  void move(MemoryKind from, MemoryKind to, std::int64_t nbytes) {
    drop(from, nbytes);
    hold(to, nbytes);
  }
  const Breakdown& now() const { return now_; }
  const Breakdown& peak() const { return peak_; }
  void reset_peak() {
    peak_ = now_;
    peak_total_ = total_;
  }

 private:
  Breakdown now_;
  Breakdown peak_;
  std::int64_t total_ = 0;
  std::int64_t peak_total_ = 0;
};

}  // namespace fsdp::estimate
