/// @file
/// Steps of toy models by one process and by many ranks.
#pragma once

#include "comm/world.h"
#include "optim/gradient_engine.h"
#include "support/toy_model.h"
#include "task7_integration/integration.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace fsdp::testing {

/// Some steps of plain SGD, by one process or by W ranks.
struct ToyRun {
  ToyConfig model;
  int micro_batches = 4;  ///< J of the global batch; W divides it
  int steps = 1;
  bool no_sync = false;
  FullyShardOptions sharding;
  std::function<std::vector<int>(int step)> order;  ///< control flow of a step, if it is to change
  /// Called on every rank before the first step.
  std::function<void(Toy&, ShardedModel&)> prepare;
  /// Called on every rank after every backward.
  std::function<void(Toy&, ShardedModel&)> after_backward;
};

/// By path; "<step>/<path>" for gradients.
using Values = std::map<std::string, std::vector<float>>;

struct ToyResult {
  Values gradients;   ///< of every step, before the update
  Values parameters;  ///< after the last step
};
ToyResult run_single(const ToyRun& run);
ToyResult run_sharded(const ToyRun& run, int world_size);

/// The first difference in a bit, as a sentence; "" if there is none.
std::string difference(const Values& a, const Values& b);

/// A Toy that is sharded, on one rank.
struct ShardedToy {
  ShardedToy(const ToyConfig& toy_config, ProcessGroup& group, FullyShardOptions options = {});
  /// forward and backward of one micro-batch, the only one of its step; gradients are dropped.
  void iteration(int step = 0);
  Variable loss(int step = 0);

  ToyConfig config;
  int rank;
  std::shared_ptr<Toy> model;
  std::unique_ptr<ShardedModel> sharded;
};

/// Runs `body` on every rank and returns what it returned, by rank. Assertions belong after it, on
/// the thread of the test; inside, FSDP_CHECK.
template <class Body>
auto on_ranks(const RankOptions& options, const Body& body) {
  using Result = std::invoke_result_t<const Body&, ProcessGroup&>;
  static_assert(!std::is_same_v<Result, bool>, "elements of vector<bool> are not apart");
  std::vector<Result> results(static_cast<std::size_t>(options.world_size));
  run_ranks(options, [&](ProcessGroup& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  });
  return results;
}
template <class Body>
auto on_ranks(int world_size, const Body& body) {
  return on_ranks(RankOptions{.world_size = world_size}, body);
}

}  // namespace fsdp::testing
