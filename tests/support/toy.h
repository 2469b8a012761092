/// @file
/// Small models with the traits that sharding has to cope with, and steps of them by one process
/// and by many ranks.
#pragma once

#include "comm/thread_world.h"
#include "nn/module.h"
#include "optim/gradient_engine.h"
#include "task7_integration/integration.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace fsdp::testing {

struct ToyConfig {
  std::int64_t width = 5;
  int layers = 3;
  bool root_weight = false;           ///< the root has a weight of its own, used first and last
  bool tied = false;                  ///< the last layer has the weight of the first
  bool unused = false;                ///< every layer has a parameter "spare" that takes no part
  bool nested = false;                ///< every layer contains another, called "inner"
  std::vector<std::string> frozen{};  ///< path prefixes that do not require a gradient
};

/// y (R, d) = tanh(x (R, d) · weightᵀ + bias), then through `inner` if there is one.
class ToyLayer : public nn::Module {
 public:
  /// `weight`: that of another layer, or undefined for one of its own.
  ToyLayer(const ToyConfig& config, bool nested, const Variable& weight);
  const Variable& weight() const { return weight_; }
  const std::shared_ptr<ToyLayer>& inner() const { return inner_; }

 protected:
  Variable forward(const Variable& x) override;

 private:
  Variable weight_;
  Variable bias_;
  std::shared_ptr<ToyLayer> inner_;
};

/// A stack of layers, "layers.0", "layers.1", …
class Toy : public nn::Module {
 public:
  explicit Toy(const ToyConfig& config);
  const std::vector<std::shared_ptr<ToyLayer>>& layers() const { return layers_; }
  /// The layers that forward() calls, by number: each once unless changed. This is the control
  /// flow.
  std::vector<int> order;

 protected:
  Variable forward(const Variable& x) override;

 private:
  Variable weight_;
  std::vector<std::shared_ptr<ToyLayer>> layers_;
};

/// The loss of micro-batch j, whose inputs and targets are a pure function of (step, j).
Variable toy_loss(nn::Module& model, std::int64_t width, int step, int j,
                  DType dtype = DType::float32);

/// A tensor of numbers in [-1, 1) that depend on (stream, index) alone.
Tensor noise(Shape shape, std::uint64_t stream);

/// Some steps of plain SGD, by one process or by W ranks.
struct ToyRun {
  ToyConfig model;
  int micro_batches = 4;  ///< J of the global batch; W divides it
  int steps = 1;
  bool no_sync = false;
  FullyShardOptions sharding;
  std::function<std::vector<int>(int step)> order;  ///< control flow of a step, if it is to change
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
/// The largest ‖a - b‖ / ‖b‖ over all entries (‖a‖ where b is zero).
double relative_difference(const Values& a, const Values& b);

/// The values of a vector that is spread over ranks: every rank puts its pieces into `values`.
void put_shard(Values& values, const FlatParameter& flat, const Tensor& shard,
               const std::string& prefix = "");

/// A group that shares what `group` refers to, for interfaces that want ownership.
std::shared_ptr<ProcessGroup> borrowed(ProcessGroup& group);

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
