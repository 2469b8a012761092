#include "tensor/ops.h"
#include "tensor/tree_sum.h"

#include <utility>

namespace fsdp {
namespace {

void free_bytes(const Tensor& tensor) {
  if (tensor.device().type != DeviceType::meta) tensor.storage()->free();
}

}  // namespace

TreeAccumulator::TreeAccumulator(MemoryKind kind, std::shared_ptr<const Owner> owner)
    : kind_(kind), owner_(std::move(owner)) {}

void TreeAccumulator::push(const Tensor& leaf) {
  FSDP_CHECK(leaf.is_defined() && leaf.is_contiguous() && leaf.offset() == 0 &&
                 leaf.nbytes() == leaf.storage()->nbytes(),
             "a leaf must be contiguous and cover its whole storage");
  if (!partials_.empty()) {
    const Tensor& first = partials_.front().sum;
    FSDP_CHECK(leaf.shape() == first.shape() && leaf.dtype() == first.dtype() &&
                   leaf.device() == first.device(),
               "a {} leaf of shape {} on {}, but the earlier ones are {}, {}, {}",
               name_of(leaf.dtype()), to_string(leaf.shape()), to_string(leaf.device()),
               name_of(first.dtype()), to_string(first.shape()), to_string(first.device()));
  }
  ++leaves_;
  if (partials_.empty() || partials_.back().leaves != 1) {
    // Keeps the leaf's bytes; its Storage object goes back to the caller, empty.
    auto storage = std::make_shared<Storage>(leaf.device(), leaf.nbytes(), kind_, owner_);
    if (leaf.device().type != DeviceType::meta) storage->swap_bytes(*leaf.storage());
    partials_.push_back({Tensor::view_of(storage, 0, leaf.shape(), leaf.dtype()), 1});
    return;
  }
  // A carry, as in binary addition: the older half is the left operand and keeps the bytes.
  ops::add(partials_.back().sum, partials_.back().sum, leaf);
  free_bytes(leaf);
  partials_.back().leaves = 2;
  while (partials_.size() > 1 &&
         partials_[partials_.size() - 2].leaves == partials_.back().leaves) {
    const Partial newer = std::move(partials_.back());
    partials_.pop_back();
    Partial& older = partials_.back();
    ops::add(older.sum, older.sum, newer.sum);
    free_bytes(newer.sum);
    older.leaves += newer.leaves;
  }
}

Tensor TreeAccumulator::fold() {
  FSDP_CHECK(!partials_.empty(), "nothing was accumulated, so there is nothing to add up");
  while (partials_.size() > 1) {
    const Partial newer = std::move(partials_.back());
    partials_.pop_back();
    ops::add(partials_.back().sum, partials_.back().sum, newer.sum);
    free_bytes(newer.sum);
  }
  Tensor result = std::move(partials_.front().sum);
  clear();
  return result;
}

void TreeAccumulator::clear() {
  partials_.clear();
  leaves_ = 0;
}

}  // namespace fsdp
