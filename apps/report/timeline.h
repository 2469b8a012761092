/// @file
/// @ingroup report
/// Events as bars: what each stream of a rank did, from when to when.
#pragma once

#include "report/run_record.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::report {

/// The streams of a rank. With a virtual clock gathers and reduces share one channel, so that of
/// all their bars no two overlap; they are drawn apart because they mean different things.
enum class Lane { gathers, compute, reduces, copies };
inline constexpr int kLanes = 4;
std::string_view name_of(Lane lane);
/// How many of them a record needs: copies come last, and only offload makes some.
int lanes_of(const RunRecord& record);

enum class Activity {
  forward,
  backward,
  wait,    ///< computation stands still for a collective or a copy
  step,    ///< the optimizer
  gather,  ///< all-gather
  reduce,  ///< reduce-scatter, all-reduce, reduce
  other,   ///< broadcast, barrier
  copy,    ///< between the device and its host
};
std::string_view name_of(Activity activity);
inline constexpr std::array<Activity, 8> kActivities{
    Activity::forward, Activity::backward, Activity::wait,  Activity::step,
    Activity::gather,  Activity::reduce,   Activity::other, Activity::copy};

/// One bar. Bars of a lane either do not overlap, or one lies inside the other (units in units).
/// Only on a modeled machine of several boxes, which have links of their own, may two overlap.
struct Span {
  Lane lane;
  Activity activity;
  std::string unit;       ///< "" for what belongs to no unit
  std::string operation;  ///< collectives: "all_gather", …; copies: "copy_to_device", …
  Phase phase = Phase::none;
  std::int64_t begin = 0;  ///< picoseconds
  std::int64_t end = 0;
  std::int64_t issued = 0;   ///< collectives (here and below also copies): when the call was made
  std::int64_t waited = -1;  ///< collectives: when waiting for it ended; -1: nobody waited
  std::int64_t nbytes = 0;   ///< collectives: bytes received; copies: bytes on the bus
  std::int64_t sequence = -1;
  int depth = 0;  ///< how many bars of the lane it lies inside of
};

/// All bars of a rank, by begin. With a virtual clock a transfer lasts as long as the clock said it
/// does. Without, its bar ends when the backend had the last byte, or else where waiting for it
/// ended. Transfers of a lane follow each other, so a bar begins when it was issued or where the
/// bar before it ends, whichever is later.
std::vector<Span> spans_of(const RunRecord& record, const RankRecord& rank);

}  // namespace fsdp::report
