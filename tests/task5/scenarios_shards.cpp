#include "graded/device.h"
#include "task5/shards.h"
#include "tensor/ops.h"

#include <algorithm>
#include <utility>

namespace fsdp::graded {

Shards::Shards(const Case& asked, int rank, int world_size)
    : asked_(asked), specs_(specs_of(asked)) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const FlatSpec& spec = specs_[i];
    std::vector<nn::NamedParameter> parameters;
    for (std::size_t p = 0; p < spec.shapes.size(); ++p) {
      parameters.push_back(
          {path_of(spec, i, p),
           Variable(as(dtype_of(asked), start_of(asked, spec, i, p)), spec.trainable), nullptr});
    }
    flats_.push_back(std::make_unique<FlatParameter>(spec.unit, std::move(parameters), rank,
                                                     world_size, device_of_rank(), copy_slice));
    flats_.back()->decay = spec.decay;
  }
}

void Shards::set_gradients(int step) {
  for (std::size_t i = 0; i < flats_.size(); ++i) {
    FlatParameter& flat = *flats_[i];
    if (!flat.requires_grad()) continue;
    const std::int64_t n = flat.shard_numel();
    const Tensor whole = as(dtype_of(asked_), gradient_of(asked_, specs_[i], i, step));
    const AllocationScope as_gradient(MemoryKind::sharded_grad);
    const Tensor mine = Tensor::zeros({n}, dtype_of(asked_));
    const std::int64_t valid = flat.valid_shard_numel();
    const std::int64_t begin = std::min(flat.rank() * n, flat.numel());
    ops::copy(mine.narrow(0, 0, valid), whole.narrow(0, begin, valid));
    flat.set_shard_grad(mine);
  }
}

void Shards::drop_gradients() {
  for (const auto& flat : flats_) flat->set_shard_grad(Tensor());
}

std::vector<FlatParameter*> Shards::pointers() const {
  std::vector<FlatParameter*> all;
  for (const auto& flat : flats_) all.push_back(flat.get());
  return all;
}

std::vector<FlatParameter*> Shards::trainable() const {
  std::vector<FlatParameter*> some;
  for (const auto& flat : flats_) {
    if (flat->requires_grad()) some.push_back(flat.get());
  }
  return some;
}

std::shared_ptr<optim::Optimizer> optimizer_of(const Case& asked) {
  const std::string name = asked.options.value("optimizer", "adamw");
  if (name != "adamw") {
    return std::make_shared<optim::Sgd>(
        optim::Sgd::Options{.momentum = name == "momentum" ? 0.9 : 0.0, .weight_decay = 0.1});
  }
  return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
}

Tensor padding_of(const FlatParameter& flat, const Tensor& shard_sized) {
  const std::int64_t valid = flat.valid_shard_numel();
  return shard_sized.narrow(0, valid, flat.shard_numel() - valid);
}

}  // namespace fsdp::graded
