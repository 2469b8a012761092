#include "support/toy.h"

namespace fsdp::testing {

ShardedToy::ShardedToy(const ToyConfig& toy_config, ProcessGroup& group, FullyShardOptions options)
    : config(toy_config),
      rank(group.rank()),
      model(std::make_shared<Toy>(toy_config)),
      sharded(fully_shard(*model, borrowed(group), std::move(options))) {}

Variable ShardedToy::loss(int step) { return toy_loss(*model, config.width, step, rank); }

void ShardedToy::iteration(int step) {
  sharded->begin_step({});
  loss(step).backward();
  sharded->end_micro_step();
  sharded->finish_gradients();
  sharded->zero_grad();
}

}  // namespace fsdp::testing
