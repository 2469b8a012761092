#include "shards.h"

#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::testing {

Shards::Shards(int rank, int world_size) {
  std::uint64_t stream = 1;
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const FlatSpec& spec = kSpecs[i];
    std::vector<nn::NamedParameter> parameters;
    for (const std::int64_t size : spec.sizes) {
      parameters.push_back({fmt::format("{}.{}.{}", spec.unit, i, parameters.size()),
                            Variable(noise({size}, stream++), spec.trainable), nullptr});
    }
    flats.push_back(std::make_unique<FlatParameter>(spec.unit, std::move(parameters), rank,
                                                    world_size, kCpu, copy_slice));
    flats.back()->decay = spec.decay;
  }
}

void Shards::set_gradients(double scale) {
  std::uint64_t stream = 100;
  for (const auto& flat : flats) {
    const Tensor whole = Tensor::zeros({flat->padded_numel()});
    ops::copy(whole.narrow(0, 0, flat->numel()), noise({flat->numel()}, stream++));
    ops::scale(whole, scale);
    if (!flat->requires_grad()) continue;
    const AllocationScope as_gradient(MemoryKind::sharded_grad);
    const Tensor mine = Tensor::empty({flat->shard_numel()});
    ops::copy(mine, whole.narrow(0, flat->rank() * flat->shard_numel(), flat->shard_numel()));
    flat->set_shard_grad(mine);
  }
}

std::vector<FlatParameter*> Shards::pointers() const {
  std::vector<FlatParameter*> pointers;
  for (const auto& flat : flats) pointers.push_back(flat.get());
  return pointers;
}

std::int64_t trainable_shard_numel(const Shards& shards) {
  std::int64_t total = 0;
  for (const auto& flat : shards.flats) {
    if (flat->requires_grad()) total += flat->shard_numel();
  }
  return total;
}

std::shared_ptr<optim::AdamW> make_adamw() {
  return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
}

void put_slice(Values& values, const io::StateSlice& slice) {
  std::vector<float>& whole = values[slice.name];
  whole.resize(static_cast<std::size_t>(numel_of(slice.full_shape)));
  const std::vector<float> mine = slice.values.to_vector<float>();
  std::copy(mine.begin(), mine.end(), whole.begin() + slice.begin);
}

Values train_shards(int world_size, int steps) {
  Values values;
  for (int rank = 0; rank < world_size; ++rank) {  // steps need no communication
    Shards shards(rank, world_size);
    ShardedOptimizer optimizer(shards.pointers(), make_adamw(), nullptr);
    for (int step = 1; step <= steps; ++step) {
      shards.set_gradients(step);
      optimizer.step(0.1 / step);
    }
    for (const io::StateSlice& slice : optimizer.state_slices()) put_slice(values, slice);
  }
  return values;
}

}  // namespace fsdp::testing
