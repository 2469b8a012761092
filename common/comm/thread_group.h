/// @file
/// @ingroup comm
/// The data that the ranks of the thread backend share: which rank called which collective of which
/// group, and which waits for it. Plain data, all guarded by the Rendezvous's one mutex.
#pragma once

#include "comm/process_group.h"
#include "comm/thread_transfer.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fsdp::threads {

struct Group;

/// What a rank passes to split().
struct SplitChoice {
  int color = 0;
  int key = 0;
};

/// One collective of one group, from a rank's first call to the last byte.
///
///     calls arrive -> all are there and match -> its turn in the group -> chunks run -> done
struct Operation {
  std::shared_ptr<Group> group;
  std::int64_t sequence = 0;
  std::vector<Collective> calls;  // by group rank; filled in as they arrive
  int arrived = 0;
  std::optional<Transfer> transfer;  // set when its turn has come
  std::int64_t next_piece = 0;
  std::int64_t running = 0;   // chunks running now: no buffer may be freed
  std::int64_t finished = 0;  // chunks done
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
  std::thread::id thread;                  // the one thread that may call for this rank
  std::vector<const Operation*> held;      // called; their Works neither waited for nor destroyed
  const Operation* asked_about = nullptr;  // by its last is_done(), if no other call followed
  std::int64_t times_asked = 0;            // in a row
  std::condition_variable wake;
};

/// Group ranks that have not yet called `operation`.
std::vector<int> missing_members(const Operation& operation);

/// How the calls of a complete operation differ, as a sentence ("ranks disagree on …"), or empty.
std::string disagreement(const Operation& operation);

/// The groups that result from a split's choices, by group rank of the parent.
std::vector<std::shared_ptr<Group>> make_parts(const Operation& split);

}  // namespace fsdp::threads
