/// @file
/// @ingroup paper
/// Ledger: bytes on paper.
#pragma once

#include "base/breakdown.h"
#include "paper/rank_peaks.h"

#include <cstddef>
#include <cstdint>

namespace fsdp::paper {

/// Changes that follow one another, as two: to the highest of their moments, and to the last one.
struct Stretch {
  struct Bytes {
    std::int64_t activation = 0, temp = 0, weight_grad = 0;
    std::int64_t total() const { return activation + temp + weight_grad; }
  };
  Bytes highest;
  Bytes end;
};

/// Counts like MemoryTracker, but of a plan: nothing is allocated, and nobody reports to it.
class Ledger {
 public:
  void hold(MemoryKind kind, std::int64_t nbytes) {
    now_[kind] += nbytes;
    total_ += nbytes;
    if (ranks_ != nullptr) ranks_->set_common(total_);
    if (total_ <= peak_total_) return;  // the first of equals, as the tracker does
    peak_ = now_;
    peak_total_ = total_;
  }
  void drop(MemoryKind kind, std::int64_t nbytes) {
    now_[kind] -= nbytes;
    total_ -= nbytes;
    if (ranks_ != nullptr) ranks_->set_common(total_);
  }
  /// What a segment of the model holds and frees while it computes.
  void walk(const Stretch& stretch) {
    if (total_ + stretch.highest.total() > peak_total_) {
      peak_ = now_;
      peak_total_ = total_ + stretch.highest.total();
      add(peak_, stretch.highest);
    }
    if (ranks_ != nullptr) ranks_->set_common(total_ + stretch.highest.total());
    add(now_, stretch.end);
    total_ += stretch.end.total();
    if (ranks_ != nullptr) ranks_->set_common(total_);
  }
  /// What is held now, less what was held `before`.
  Breakdown change_since(const Breakdown& before) const {
    Breakdown change = now_;
    for (std::size_t i = 0; i < change.nbytes.size(); ++i) change.nbytes[i] -= before.nbytes[i];
    return change;
  }
  /// Makes a change that has happened before so many times more, without its peaks.
  void repeat(const Breakdown& change, std::int64_t times) {
    for (std::size_t i = 0; i < change.nbytes.size(); ++i) {
      now_.nbytes[i] += times * change.nbytes[i];
    }
    total_ += times * change.total();
    if (ranks_ != nullptr) ranks_->set_common(total_);
  }
  const Breakdown& now() const { return now_; }
  const Breakdown& peak() const { return peak_; }
  void reset_peak() {
    peak_ = now_;
    peak_total_ = total_;
  }

  /// The ledger has what all ranks hold alike, and `ranks` what each has beside it.
  void count_ranks(RankPeaks& ranks) { ranks_ = &ranks; }
  /// Null: the ledger is that of one rank.
  RankPeaks* ranks() const { return ranks_; }

 private:
  static void add(Breakdown& to, const Stretch::Bytes& bytes) {
    to[MemoryKind::activation] += bytes.activation;
    to[MemoryKind::temp] += bytes.temp;
    to[MemoryKind::unsharded_grad] += bytes.weight_grad;
  }

  Breakdown now_;
  Breakdown peak_;
  std::int64_t total_ = 0;
  std::int64_t peak_total_ = 0;
  RankPeaks* ranks_ = nullptr;
};

}  // namespace fsdp::paper
