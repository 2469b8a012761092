/// @file
/// @ingroup report
/// What a run leaves to be drawn: of every rank its events and its memory log, with times.
#pragma once

#include "base/clock.h"
#include "base/trace.h"
#include "device/context.h"
#include "device/memory_tracker.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::report {

/// One rank's part. All times are picoseconds since the recording began.
struct RankRecord {
  int rank = 0;
  std::int64_t end = 0;  ///< how long the recording took
  std::vector<Event> events;
  /// Opens with the blocks alive at the beginning: it can be replayed from nothing.
  std::vector<MemoryTracker::LogEntry> memory;
  std::size_t opening = 0;  ///< so many entries of the log are those blocks
  Breakdown peak;           ///< as the tracker itself saw it, over the same period
  Breakdown host_peak;      ///< of the memory of the host, which the log leaves out
};

struct RunRecord {
  std::string title;
  int world_size = 1;
  /// The modeled machine, if a virtual clock ran: then a transfer's begin and end are known.
  /// Otherwise when it was issued and when it ended, but not when its first byte moved.
  std::optional<CostModel> cost_model;
  std::vector<RankRecord> ranks;
};

/// Records what happens on a rank from here to finish(), on that rank's thread. Begin after a
/// barrier, where nothing is in flight: every rank's zero of time is when it leaves the barrier. So
/// ranks that are processes on several machines need no common clock. Their zeros differ by the
/// time that the last message of the barrier takes.
///
///     RankRecorder recorder(Context::current());
///     … some steps …
///     record.ranks[rank] = recorder.finish();
class RankRecorder {
 public:
  explicit RankRecorder(Context& context);
  ~RankRecorder();
  RankRecorder(const RankRecorder&) = delete;
  RankRecorder& operator=(const RankRecorder&) = delete;

  RankRecord finish();

 private:
  void stop();

  Context& context_;
  std::size_t opening_ = 0;
  std::int64_t begin_ = 0;
};

/// Records `body` on this rank: what happens goes to the rank's place in `record.ranks`, which must
/// be there. May be called by all ranks at once.
void record_rank(RunRecord& record, const std::function<void()>& body);

/// The units of a run, in the order in which they first computed; what only held memory comes last.
std::vector<std::string> units_of(const RunRecord& record);

/// The unit whose bytes these are: the owner's, or (for what a module's forward made) the unit with
/// the longest path that leads to the module. "" if there is none.
std::string unit_of(const Owner* owner, const std::vector<std::string>& units);

}  // namespace fsdp::report
