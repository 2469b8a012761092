/// @file
/// @ingroup comm
/// The state of a world as its control plane sees it: which rank called which collective of which
/// group, and which waits for it. Plain data, owned by an Agreement.
#pragma once

#include "comm/process_group.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::control {

struct Group;

/// A rank that has called is_done() so often in a row waits, although it does not say so: some
/// milliseconds of asking, and nothing else.
inline constexpr std::int64_t kPollsThatAreAWait = 100'000;

/// What a rank passes to split().
struct SplitChoice {
  int color = 0;
  int key = 0;
};

/// One collective of one group, from a rank's first call to the last byte. A backend derives from
/// it what it needs to move the data.
///
///     calls arrive -> all are there and match -> its turn in the group -> data moves -> done
struct Operation {
  virtual ~Operation() = default;

  std::shared_ptr<Group> group;
  std::int64_t sequence = 0;
  std::vector<Collective> calls;  // by group rank; filled in as they arrive
  int arrived = 0;
  bool done = false;

  std::vector<SplitChoice> choices;           // split only, by group rank
  std::vector<std::shared_ptr<Group>> parts;  // split only: the new group of each rank
};

/// A set of ranks with its own sequence of collectives.
struct Group {
  explicit Group(std::vector<int> ranks);

  int size() const { return static_cast<int>(members.size()); }
  std::vector<int> members;  // world ranks, by group rank

  struct Progress {
    std::int64_t called = 0;  // collectives this rank has called here
    Collective last;
  };
  std::vector<Progress> progress;  // by group rank

  // The unfinished operations, oldest first. At most the first one moves data, because a collective
  // may read what the one before it wrote.
  std::deque<std::shared_ptr<Operation>> open;
};

enum class Activity { computes, waits, polls, threw, returned };

/// What one rank of the world is doing.
struct RankState {
  Activity activity = Activity::computes;
  const Operation* waits_for = nullptr;    // while it waits or polls
  bool unwinding = false;                  // an exception was unwinding it when it called or waited
  const Operation* asked_about = nullptr;  // by its last is_done(), if no other call followed
  std::int64_t times_asked = 0;            // in a row
};

/// Group ranks that have not yet called `operation`.
std::vector<int> missing_members(const Operation& operation);

/// How the calls of a complete operation differ, as a sentence ("ranks disagree on …"), or empty.
std::string disagreement(const Operation& operation);

/// The groups that result from a split's choices, by group rank of the parent.
std::vector<std::shared_ptr<Group>> make_parts(const Operation& split);

}  // namespace fsdp::control
