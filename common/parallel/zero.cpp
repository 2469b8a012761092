#include "parallel/zero.h"

#include "base/check.h"
#include "device/memory_tracker.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

namespace fsdp::parallel {

ZeroGradients::ZeroGradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                             std::shared_ptr<ProcessGroup> group, const optim::ZeroOptions& options,
                             const optim::MasterWeights& masters)
    : group_(std::move(group)), options_(options) {
  FSDP_CHECK(group_ != nullptr, "ZeRO needs a process group, but got none");
  FSDP_CHECK(group_->replicas() == nullptr,
             "ZeRO-1 and ZeRO-2 divide what all ranks hold, but this group is one replica of a "
             "mesh; use a group without replicas, or fully_shard");
  std::vector<std::int64_t> numels;
  for (const auto& [path, variable] : parameters) {
    if (!variable.requires_grad()) continue;
    const Tensor& master = masters.of(variable);
    numels.push_back(master.numel());
    parameters_.push_back(
        {path, variable, master.view({master.numel()}), masters.reduce_dtype_of(variable)});
  }
  slices_ = divide(options.partition, numels, group_->size());
  for (const OwnedSlice& slice : slices_) {
    if (slice.owner != group_->rank()) continue;
    const Parameter& parameter = parameters_[slice.parameter];
    owned_.push_back(slice);
    pieces_.push_back({.key = parameter.path,
                       .param = parameter.master.narrow(0, slice.begin, slice.numel),
                       .grad = {},
                       .unit = {}});
  }
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
  Work work;
};

ZeroGradients::Broadcast ZeroGradients::start_broadcast(const std::vector<OwnedSlice>& slices,
                                                        std::size_t index) const {
  const auto view_of = [&](const OwnedSlice& slice) {
    return parameters_[slice.parameter].master.narrow(0, slice.begin, slice.numel);
  };
  const std::string name = fmt::format("bucket{}", index);
  Broadcast broadcast{&slices, slices.size() == 1 && !options_.broadcast_fp16, {}, {}};
  const Tensor first = view_of(slices.front());
  if (broadcast.is_in_place) {
    broadcast.data = first;
  } else {
    std::int64_t numel = 0;
    for (const OwnedSlice& slice : slices) numel += slice.numel;
    const DType dtype = options_.broadcast_fp16 ? DType::float16 : first.dtype();
    const AllocationScope scope(MemoryKind::temp,
                                std::make_shared<const Owner>(Owner{"", "zero " + name}));
    broadcast.data = Tensor::empty({numel}, dtype, first.device());
    std::int64_t at = 0;
    for (const OwnedSlice& slice : slices) {
      if (slice.owner != group_->rank()) break;
      ops::copy(broadcast.data.narrow(0, at, slice.numel), view_of(slice));
      at += slice.numel;
    }
  }
  broadcast.work =
      group_->broadcast(broadcast.data, slices.front().owner, {name, Phase::optimizer});
  return broadcast;
}

void ZeroGradients::finish(Broadcast& broadcast) const {
  broadcast.work.wait();
  if (broadcast.is_in_place) return;
  std::int64_t at = 0;
  for (const OwnedSlice& slice : *broadcast.slices) {
    const Tensor arrived = broadcast.data.narrow(0, at, slice.numel);
    at += slice.numel;
    // In float16 the owner's values were rounded on the way: it takes them over too.
    if (slice.owner == group_->rank() && !options_.broadcast_fp16) continue;
    ops::copy(parameters_[slice.parameter].master.narrow(0, slice.begin, slice.numel), arrived);
  }
}

// Two at a time: while one travels, the next one is packed.
void ZeroGradients::broadcast_parameters() {
  std::vector<DType> dtypes;
  for (const Parameter& each : parameters_) {
    dtypes.push_back(options_.broadcast_fp16 ? DType::float16 : each.master.dtype());
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
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto& [parameter, begin, numel, owner] = owned_[i];
    pieces_[i].grad = all_.pieces()[parameter].grad.narrow(0, begin, numel);
  }
}

void Zero1Gradients::zero_grad() {
  ZeroGradients::zero_grad();
  all_.zero_grad();
}

}  // namespace fsdp::parallel
