/// @file
/// @ingroup paper
/// RankPeaks: the peaks of many ranks that hold the same but for a few bytes, in one walk.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::paper {

/// At every moment, rank r holds c bytes, which are the same on every rank, and o_r of its own. The
/// highest c + o_r is asked for. While o_r stays as it is, that is o_r + the highest c since its
/// last change. So only the changes of a rank's own bytes cost anything for that rank:
///
///     c    _____/\____/\/\______    of c, only moments are kept that no later one exceeds
///     o_3  _________|----|_______    two changes: three stretches to ask for
class RankPeaks {
 public:
  explicit RankPeaks(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  /// What every rank holds, from now on.
  void set_common(std::int64_t nbytes);
  /// Beside it, this rank holds so many more bytes from now on.
  void add_own(int rank, std::int64_t nbytes);
  /// What each rank holds of its own, by rank.
  std::vector<std::int64_t> own() const;
  /// The peaks so far, by rank.
  std::vector<std::int64_t> peaks() const;

 private:
  struct Moment {
    std::int64_t when;
    std::int64_t common;
  };
  struct Rank {
    std::int64_t own = 0;
    std::int64_t since = 0;  // the moment of its last change
    std::int64_t peak = 0;
  };
  std::int64_t peak_of(const Rank& rank) const;

  std::vector<Moment> highest_{{0, 0}};  // later and later, lower and lower; the last is now
  std::vector<Rank> ranks_;
};

}  // namespace fsdp::paper
