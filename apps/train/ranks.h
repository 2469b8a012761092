/// @file
/// @ingroup train
/// Starts the ranks of a configuration, as a single process, threads or processes.
#pragma once

#include "comm/process_group.h"
#include "config/config.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace fsdp::train {

/// What one rank is given.
struct Rank {
  std::shared_ptr<ProcessGroup> group;  ///< null for a single process

  /// 0 and 1 for a single process.
  int number() const { return group == nullptr ? 0 : group->rank(); }
  int world_size() const { return group == nullptr ? 1 : group->size(); }
};

/// Calls `body` once on every rank's thread, in its Context. Ranks are threads of this process or,
/// if a launcher has started it, processes: then all of them call this. `in_threads`: threads of
/// the first process all the same.
void run_on_ranks(const config::TrainConfig& config, bool in_threads,
                  const std::function<void(const Rank&)>& body);

/// The numbers of the CUDA cards on which ranks of this process compute, in turn: one, if they are
/// processes.
/// @throws Error if there is none
std::vector<int> cards_of_this_process(std::int64_t ranks, bool in_threads);

/// The numbers of all ranks, one rank after the other. All ranks have as many. float or int64.
/// Collective.
template <class T>
std::vector<T> gather(ProcessGroup* group, const std::vector<T>& mine, const Label& label);

}  // namespace fsdp::train
