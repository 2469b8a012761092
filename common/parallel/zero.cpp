#include "parallel/zero.h"

#include "base/check.h"
#include "device/memory_tracker.h"
#include "tensor/host_copy.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <utility>

namespace fsdp::parallel {

std::vector<optim::MasterWeights::Part> owned_parts(
    const std::vector<std::pair<std::string, Variable>>& parameters, optim::Partition partition,
    const ProcessGroup& group) {
  std::vector<optim::MasterWeights::Part> parts(parameters.size());
  for (const bool is_trained : {true, false}) {
    std::vector<std::size_t> those;
    std::vector<std::int64_t> numels;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Variable& variable = parameters[i].second;
      if (variable.requires_grad() != is_trained) continue;
      those.push_back(i);
      numels.push_back(variable.data().numel());
    }
    for (const OwnedSlice& slice : divide(partition, numels, group.size())) {
      if (slice.owner == group.rank()) parts[those[slice.parameter]] = {slice.begin, slice.numel};
    }
  }
  return parts;
}

ZeroGradients::ZeroGradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                             std::shared_ptr<ProcessGroup> group, const optim::ZeroOptions& options,
                             const optim::MasterWeights& masters)
    : group_(std::move(group)), options_(options), offload_(masters.offload()) {
  FSDP_CHECK(group_ != nullptr, "ZeRO needs a process group, but got none");
  FSDP_CHECK(group_->replicas() == nullptr,
             "ZeRO-1 and ZeRO-2 divide what all ranks hold, but this group is one replica of a "
             "mesh; use a group without replicas, or fully_shard");
  std::vector<std::int64_t> numels, frozen_numels;
  for (const auto& [path, variable] : parameters) {
    const bool is_trained = variable.requires_grad();
    const Tensor& master = masters.of(variable);
    FSDP_CHECK(!masters.has(variable) || masters.are_in_parts(),
               "the master of '{}' is whole, but a rank of ZeRO holds only what it owns; make the "
               "MasterWeights of owned_parts()",
               path);
    (is_trained ? parameters_ : frozen_)
        .push_back({path, variable, master.view({master.numel()}), masters.has(variable),
                    masters.reduce_dtype_of(variable)});
    (is_trained ? numels : frozen_numels).push_back(variable.data().numel());
  }
  slices_ = divide(options.partition, numels, group_->size());
  frozen_slices_ = divide(options.partition, frozen_numels, group_->size());
  for (const OwnedSlice& slice : slices_) {
    if (!is_mine(slice)) continue;
    owned_.push_back(slice);
    pieces_.push_back({.key = parameters_[slice.parameter].path,
                       .param = parameters_[slice.parameter].updated(slice),
                       .grad = {},
                       .unit = {}});
  }
}

Tensor ZeroGradients::Parameter::read(const OwnedSlice& slice) const {
  return variable.data().view({numel()}).narrow(0, slice.begin, slice.numel);
}

Tensor ZeroGradients::Parameter::updated(const OwnedSlice& slice) const {
  return has_copy ? master : read(slice);
}

void ZeroGradients::add_squares(ExactSquareSum& sum) {
  for (const optim::Piece& piece : pieces_) sum.add(piece.grad);
}

void ZeroGradients::zero_grad() {
  for (optim::Piece& piece : pieces_) piece.grad = {};
}

std::vector<std::vector<OwnedSlice>> ZeroGradients::reduce_groups() const {
  std::vector<DType> dtypes;
  for (const Parameter& each : parameters_) dtypes.push_back(each.reduce_dtype);
  return travel_groups(slices_, dtypes, options_.reduce_buffer_bytes);
}

// ------------------------------------------------------------------------------------- broadcast

struct ZeroGradients::Broadcast {
  const std::vector<OwnedSlice>* slices;
  bool is_in_place;  // the only slice itself
  Tensor data;
  Tensor packed;  // offloaded: the same on the host of its owner
  Work work;
};

ZeroGradients::Broadcast ZeroGradients::start_broadcast(const std::vector<OwnedSlice>& slices,
                                                        std::size_t index) const {
  const std::string name = fmt::format("bucket{}", index);
  const Tensor first = parameters_[slices.front().parameter].read(slices.front());
  const DType dtype = options_.broadcast_fp16 ? DType::float16 : first.dtype();
  Broadcast broadcast{&slices, slices.size() == 1 && dtype == first.dtype(), first, {}, {}};
  const Label label{name, Phase::optimizer};
  {
    const AllocationScope scope(MemoryKind::temp,
                                std::make_shared<const Owner>(Owner{"", "zero " + name}));
    if (!broadcast.is_in_place) {
      std::int64_t numel = 0;
      for (const OwnedSlice& slice : slices) numel += slice.numel;
      broadcast.data = Tensor::empty({numel}, dtype, first.device());
    }
    if (is_mine(slices.front())) pack(broadcast, label);
  }
  broadcast.work = group_->broadcast(broadcast.data, slices.front().owner, label);
  return broadcast;
}

// Of a single slice in the format that travels, there is nothing to pack.
void ZeroGradients::pack(Broadcast& broadcast, const Label& label) const {
  const std::vector<OwnedSlice>& slices = *broadcast.slices;
  const Tensor first = parameters_[slices.front().parameter].updated(slices.front());
  const bool is_packed = slices.size() == 1 && first.dtype() == broadcast.data.dtype();
  Tensor packed = is_packed ? first : broadcast.data;
  if (offload_.optimizer && !is_packed) {
    packed = Tensor::empty(packed.shape(), packed.dtype(), first.device());
  }
  std::int64_t at = 0;
  for (const OwnedSlice& slice : slices) {
    if (is_packed) break;
    const Tensor updated = parameters_[slice.parameter].updated(slice);
    const Tensor place = packed.narrow(0, at, slice.numel);
    ops::copy(place, updated);
    if (offload_.optimizer && options_.broadcast_fp16) ops::copy(updated, place);
    at += slice.numel;
  }
  if (!offload_.optimizer) return;
  copy_for_collective(broadcast.data, packed, label);
  broadcast.packed = packed;
}

void ZeroGradients::finish(Broadcast& broadcast) const {
  broadcast.work.wait();
  std::int64_t at = 0;
  for (const OwnedSlice& slice : *broadcast.slices) {
    const Parameter& parameter = parameters_[slice.parameter];
    const Tensor arrived = broadcast.data.narrow(0, at, slice.numel);
    at += slice.numel;
    // In float16 the owner's values were rounded on the way: it takes them over too, unless it did
    // on the host.
    const bool is_rounded = is_mine(slice) && options_.broadcast_fp16;
    if (is_rounded && parameter.has_copy && !offload_.optimizer) {
      ops::copy(parameter.updated(slice), arrived);
    }
    const bool has_it = is_mine(slice) && !parameter.has_copy && !is_rounded;
    if (!broadcast.is_in_place && !has_it) ops::copy(parameter.read(slice), arrived);
  }
}

// Two at a time: while one travels, the next one is packed.
void ZeroGradients::broadcast_parameters() {
  std::vector<DType> dtypes;
  for (const Parameter& each : parameters_) {
    dtypes.push_back(options_.broadcast_fp16 ? DType::float16 : each.variable.data().dtype());
  }
  const auto groups = travel_groups(slices_, dtypes, options_.broadcast_buffer_bytes);
  std::optional<Broadcast> before;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Broadcast now = start_broadcast(groups[i], i);
    if (before) finish(*before);
    before = std::move(now);
  }
  if (before) finish(*before);
}

template <class Visit>
void ZeroGradients::for_each_copied(const Visit& visit) const {
  const auto each_of = [&](const std::vector<Parameter>& parameters,
                           const std::vector<OwnedSlice>& slices) {
    for (const OwnedSlice& slice : slices) {
      if (parameters[slice.parameter].has_copy) visit(parameters[slice.parameter], slice);
    }
  };
  each_of(parameters_, slices_);
  each_of(frozen_, frozen_slices_);
}

void ZeroGradients::broadcast_from(const OwnedSlice& slice, const Parameter& parameter,
                                   const Tensor& data) const {
  if (is_mine(slice)) ops::copy(data, parameter.updated(slice));
  group_->broadcast(data, slice.owner, {parameter.path, Phase::checkpoint}).wait();
}

void ZeroGradients::refresh() {
  for_each_copied([&](const Parameter& parameter, const OwnedSlice& slice) {
    broadcast_from(slice, parameter, parameter.read(slice));
  });
}

Tensor ZeroGradients::full_master(const Variable& variable) const {
  Tensor full = variable.data();
  for_each_copied([&](const Parameter& parameter, const OwnedSlice& slice) {
    if (parameter.variable.id() != variable.id()) return;
    if (slice.begin == 0) {
      const AllocationScope scope(MemoryKind::temp);
      full = Tensor::empty(variable.shape(), parameter.master.dtype(), full.device());
    }
    broadcast_from(slice, parameter, full.view({full.numel()}).narrow(0, slice.begin, slice.numel));
  });
  return full;
}

// ---------------------------------------------------------------------------------------- ZeRO-1

Zero1Gradients::Zero1Gradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                               const std::shared_ptr<ProcessGroup>& group,
                               const optim::ZeroOptions& options,
                               const optim::MasterWeights& masters, std::size_t bucket_bytes)
    : ZeroGradients(parameters, group, options, masters),
      all_(parameters, group, bucket_bytes, masters, options.reductions) {}

void Zero1Gradients::begin_step(const optim::StepPlan& plan) {
  ZeroGradients::zero_grad();
  all_.begin_step(plan);
}

void Zero1Gradients::finish_gradients() {
  all_.finish_gradients();
  std::vector<HostCopy> copies;
  const AllocationScope scope(MemoryKind::unsharded_grad,
                              std::make_shared<const Owner>(Owner{"", "zero1 gradients"}));
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto& [parameter, begin, numel, owner] = owned_[i];
    optim::Piece& piece = pieces_[i];
    piece.grad = all_.pieces()[parameter].grad.narrow(0, begin, numel);
    if (!offload_.optimizer) continue;
    const Tensor mean =
        std::exchange(piece.grad, Tensor::empty({numel}, piece.grad.dtype(), piece.param.device()));
    copies.push_back(start_host_copy(piece.grad, mean, {piece.key, Phase::gradient}));
  }
  for (HostCopy& copy : copies) copy.wait();
}

void Zero1Gradients::zero_grad() {
  ZeroGradients::zero_grad();
  all_.zero_grad();
}

}  // namespace fsdp::parallel
