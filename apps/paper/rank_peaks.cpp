#include "paper/rank_peaks.h"

#include <algorithm>

namespace fsdp::paper {

void RankPeaks::set_common(std::int64_t nbytes) {
  const std::int64_t now = highest_.back().when + 1;
  while (!highest_.empty() && highest_.back().common <= nbytes) highest_.pop_back();
  highest_.push_back({now, nbytes});
}

void RankPeaks::add_own(int rank, std::int64_t nbytes) {
  Rank& each = ranks_[static_cast<std::size_t>(rank)];
  each.peak = peak_of(each);
  each.own += nbytes;
  each.since = highest_.back().when;
}

std::int64_t RankPeaks::peak_of(const Rank& rank) const {
  const auto highest = std::ranges::lower_bound(highest_, rank.since, {}, &Moment::when);
  return std::max(rank.peak, rank.own + highest->common);
}

std::vector<std::int64_t> RankPeaks::own() const {
  std::vector<std::int64_t> all;
  for (const Rank& rank : ranks_) all.push_back(rank.own);
  return all;
}

std::vector<std::int64_t> RankPeaks::peaks() const {
  std::vector<std::int64_t> all;
  for (const Rank& rank : ranks_) all.push_back(peak_of(rank));
  return all;
}

}  // namespace fsdp::paper
