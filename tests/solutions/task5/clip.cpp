// Task 5: the norm of the whole gradient, the same number on every rank and at every W.
#include "shards.h"
#include "support/catch.h"
#include "tensor/ops.h"

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

struct Clipped {
  std::vector<double> norms;  ///< by rank
  Values gradients;           ///< afterwards, whole
};

Clipped clip(int world_size, double max_norm) {
  Clipped result;
  std::mutex mutex;
  result.norms = on_ranks(world_size, [&](ProcessGroup& group) {
    Shards shards(group.rank(), group.size());
    shards.set_gradients(1);
    ShardedOptimizer optimizer(shards.pointers(), make_adamw(), borrowed(group));
    const double norm = optimizer.clip_grad_norm(max_norm);
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto& flat : shards.flats) {
      if (flat->requires_grad()) put_shard(result.gradients, *flat, flat->shard_grad());
    }
    return norm;
  });
  return result;
}

/// The same with a loop over all elements, in double.
double plain_norm() {
  Shards shards(0, 1);
  shards.set_gradients(1);
  double squares = 0;
  for (const auto& flat : shards.flats) {
    if (!flat->requires_grad()) continue;
    for (const float value : flat->shard_grad().to_vector<float>()) {
      squares += static_cast<double>(value) * value;
    }
  }
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("The norm is that of the whole gradient, equal in every bit at every W", "[5.3][5.4]") {
  const Clipped single = clip(1, 0.25);
  CHECK(std::abs(single.norms[0] / plain_norm() - 1) < 1e-12);
  for (const int world_size : {2, 3, 4, 5, 8, 12}) {
    const Clipped seen = clip(world_size, 0.25);
    for (const double norm : seen.norms) {
      CAPTURE(world_size, norm, single.norms[0]);
      CHECK(std::bit_cast<std::uint64_t>(norm) == std::bit_cast<std::uint64_t>(single.norms[0]));
    }
    CHECK(difference(seen.gradients, single.gradients) == "");
  }
}

TEST_CASE("Gradients are scaled by max_norm / (norm + 1e-6), down only", "[5.4]") {
  const int world_size = GENERATE(1, 3);
  const double norm = clip(1, 1e9).norms[0];
  const Clipped whole = clip(world_size, norm * 1.01);
  const Clipped half = clip(world_size, norm / 2);
  Shards shards(0, 1);
  shards.set_gradients(1);
  Values untouched;
  Values halved;
  for (const auto& flat : shards.flats) {
    if (!flat->requires_grad()) continue;
    put_shard(untouched, *flat, flat->shard_grad());
    ops::scale(flat->shard_grad(), norm / 2 / (norm + 1e-6));
    put_shard(halved, *flat, flat->shard_grad());
  }
  CHECK(difference(whole.gradients, untouched) == "");
  CHECK(difference(half.gradients, halved) == "");
}

TEST_CASE("Padding does not count", "[5.3]") {
  const int world_size = GENERATE(2, 3, 4, 8);
  const double expected = clip(1, 1e9).norms[0];
  const auto norms = on_ranks(world_size, [&](ProcessGroup& group) {
    Shards shards(group.rank(), group.size());
    shards.set_gradients(1);
    for (const auto& flat : shards.flats) {
      if (!flat->requires_grad()) continue;
      const std::int64_t valid = flat->valid_shard_numel();
      ops::fill(flat->shard_grad().narrow(0, valid, flat->shard_numel() - valid), 1e6);
    }
    ShardedOptimizer optimizer(shards.pointers(), make_adamw(), borrowed(group));
    return optimizer.clip_grad_norm(1e9);
  });
  for (const double norm : norms) CHECK(norm == expected);
}

TEST_CASE("An infinite gradient on one rank is an error on all", "[5.4]") {
  const float bad =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  const auto messages = on_ranks(4, [&](ProcessGroup& group) {
    Shards shards(group.rank(), group.size());
    shards.set_gradients(1);
    if (group.rank() == 2) *shards.flats[0]->shard_grad().data<float>() = bad;
    ShardedOptimizer optimizer(shards.pointers(), make_adamw(), borrowed(group));
    return message_of<Error>([&] { optimizer.clip_grad_norm(1); });
  });
  for (const std::string& message : messages) CHECK_THAT(message, contains("the gradient norm is"));
}

TEST_CASE("A clip of a sharded model is the clip of one process", "[5.4]") {
  // Through task 7's front door, with gradients that backward made.
  const auto norm_at = [](int world_size) {
    return on_ranks(world_size, [&](ProcessGroup& group) {
      ShardedToy toy({}, group);
      toy.sharded->attach_optimizer(make_adamw);
      const optim::StepPlan plan{8 / group.size(), 1};
      toy.sharded->begin_step(plan);
      for (int m = 0; m < plan.micro_steps; ++m) {
        const auto j = static_cast<int>(plan.micro_batch(m, group.rank(), group.size()));
        toy_loss(*toy.model, 5, 0, j).backward();
        toy.sharded->end_micro_step();
      }
      toy.sharded->finish_gradients();
      return toy.sharded->clip_grad_norm(0.01);
    });
  };
  const double single = norm_at(1)[0];
  for (const int world_size : {2, 4, 8}) {
    for (const double norm : norm_at(world_size)) CHECK(norm == single);
  }
}
