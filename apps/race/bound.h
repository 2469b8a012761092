/// @file
/// @ingroup race
/// A time that no plan can beat.
#pragma once

#include "race/plan_walk.h"

#include <algorithm>
#include <cstdint>

namespace fsdp::race {

/// Two times of a track, each below that of every plan; tasks/race/README.md has the proof. With
/// f, b of a module, g and r of its collectives, G and R of one gather and one reduction of all
/// parameters, and u of what follows the last reduction:
///
///     computation   g_first + Σ (f + b) + loss + casts + r_first + u
///     channel       G + f_head + loss + b_head + R + u
struct Bound {
  std::int64_t computation = 0;  ///< the kernels alone, with what cannot overlap with them
  std::int64_t channel = 0;      ///< the bytes alone, likewise
  std::int64_t ps() const { return std::max(computation, channel); }
};

/// @throws Error for a machine whose link is so fast that the proof does not hold
Bound bound_of(const PaperTrack& paper);

}  // namespace fsdp::race
