/// @file
/// @ingroup parallel
/// ZeRO-1 and ZeRO-2: every rank holds all parameters that the model reads, and of what it owns the
/// optimizer's state and the masters; offloaded, these are on its host.
#pragma once

#include "autograd/variable.h"
#include "comm/process_group.h"
#include "optim/gradient_engine.h"
#include "optim/master_weights.h"
#include "parallel/ddp.h"
#include "parallel/partition.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::parallel {

/// What a rank owns of each parameter: nothing, or the elements of one slice. The masters of
/// ZeroGradients are made of these parts, as the parameters with masters are divided: those that
/// require a gradient, and by themselves those that do not.
std::vector<optim::MasterWeights::Part> owned_parts(
    const std::vector<std::pair<std::string, Variable>>& parameters, optim::Partition partition,
    const ProcessGroup& group);

/// What ZeRO-1 and ZeRO-2 share: pieces() lists only what this rank owns, so only this has
/// optimizer state and masters. After the optimizer's step(), the owners broadcast what they
/// updated, in the format that the model reads:
///
///     optimizer.step(engine.pieces(), lr);
///     engine.broadcast_parameters();
///
/// If the masters are offloaded (MasterWeights::offload), pieces() are on the host: masters,
/// gradients, and so the optimizer's state. What is broadcast is packed there, and copied to the
/// device in one piece per broadcast.
class ZeroGradients : public optim::GradientEngine {
 public:
  std::vector<optim::Piece>& pieces() override { return pieces_; }
  /// The owned slices are disjoint, so every element counts once.
  void add_squares(ExactSquareSum& sum) override;
  void zero_grad() override;

  /// What pieces() are, one for one; `parameter` counts those that require a gradient.
  const std::vector<OwnedSlice>& owned() const { return owned_; }
  /// Makes every rank's parameters those of their owners. Collective.
  void broadcast_parameters();
  /// The same for all that have a master, those that do not require a gradient too, one by one and
  /// without rounding: after masters were loaded. Collective.
  void refresh();
  /// A parameter's master, which its owners broadcast; its data if it has none. Collective.
  Tensor full_master(const Variable& variable) const;

 protected:
  struct Parameter {
    std::string path;
    Variable variable;
    Tensor master;  // flat; where the model reads a copy, of what this rank owns
    bool has_copy;  // if the optimizer is offloaded, always
    DType reduce_dtype;
    std::int64_t numel() const { return variable.data().numel(); }
    /// Of a slice, what the model reads.
    Tensor read(const OwnedSlice& slice) const;
    /// Of a slice, on its owner: what the optimizer updates. Without a copy it is the same.
    Tensor updated(const OwnedSlice& slice) const;
  };
  /// @param masters  in parts, as owned_parts() has them, if there are any
  ZeroGradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                std::shared_ptr<ProcessGroup> group, const optim::ZeroOptions& options,
                const optim::MasterWeights& masters);
  std::vector<std::vector<OwnedSlice>> reduce_groups() const;

  std::shared_ptr<ProcessGroup> group_;
  optim::ZeroOptions options_;
  optim::Offload offload_;
  std::vector<Parameter> parameters_;  // those that require a gradient
  std::vector<OwnedSlice> slices_;     // of all ranks
  std::vector<OwnedSlice> owned_;
  std::vector<optim::Piece> pieces_;

 private:
  struct Broadcast;
  bool is_mine(const OwnedSlice& slice) const { return slice.owner == group_->rank(); }
  Broadcast start_broadcast(const std::vector<OwnedSlice>& slices, std::size_t index) const;
  void pack(Broadcast& broadcast, const Label& label) const;
  void finish(Broadcast& broadcast) const;
  template <class Visit>
  void for_each_copied(const Visit& visit) const;
  /// One slice into `data`, in its format.
  void broadcast_from(const OwnedSlice& slice, const Parameter& parameter,
                      const Tensor& data) const;

  std::vector<Parameter> frozen_;
  std::vector<OwnedSlice> frozen_slices_;
};

/// ZeRO-1 (FairScale's OSS): gradients are all-reduced as DDP does it, so every rank holds all of
/// them. With W ranks, the optimizer's state is divided by W.
class Zero1Gradients : public ZeroGradients {
 public:
  Zero1Gradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::shared_ptr<ProcessGroup>& group, const optim::ZeroOptions& options = {},
                 const optim::MasterWeights& masters = {},
                 std::size_t bucket_bytes = DdpGradients::kBucketBytes);
  void begin_step(const optim::StepPlan& plan) override;
  void end_micro_step() override { all_.end_micro_step(); }
  void finish_gradients() override;
  void zero_grad() override;

 private:
  DdpGradients all_;
};

/// ZeRO-2 (FairScale's SDP): each gradient is reduced to its owner as soon as it is complete, and
/// the other ranks free it then. Only with several micro-steps per reduction (no_sync), gradients
/// stay whole on every rank until the last of them.
///
/// One reduction is in flight at a time: the next one starts when the one before it is finished.
/// Without optim::ReduceOptions::overlap, none is.
class Zero2Gradients : public ZeroGradients {
 public:
  Zero2Gradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::shared_ptr<ProcessGroup>& group, const optim::ZeroOptions& options = {},
                 const optim::MasterWeights& masters = {});
  ~Zero2Gradients() override;
  void begin_step(const optim::StepPlan& plan) override;
  void end_micro_step() override;
  void finish_gradients() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp::parallel
