/// @file
/// @ingroup parallel
/// ZeRO-1 and ZeRO-2: every rank holds all parameters, and optimizer state for those it owns.
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

/// What ZeRO-1 and ZeRO-2 share: pieces() lists only what this rank owns, so only this has
/// optimizer state. After the optimizer's step(), the owners broadcast what they updated:
///
///     optimizer.step(engine.pieces(), lr);
///     engine.broadcast_parameters();
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

 protected:
  struct Parameter {
    std::string path;
    Variable variable;
    Tensor master;  // (n)
    DType reduce_dtype;
  };
  /// Of the parameters, those that require a gradient count.
  ZeroGradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                std::shared_ptr<ProcessGroup> group, const optim::ZeroOptions& options,
                const optim::MasterWeights& masters);
  std::vector<std::vector<OwnedSlice>> reduce_groups() const;

  std::shared_ptr<ProcessGroup> group_;
  optim::ZeroOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<OwnedSlice> slices_;  // of all ranks
  std::vector<OwnedSlice> owned_;
  std::vector<optim::Piece> pieces_;

 private:
  struct Broadcast;
  Broadcast start_broadcast(const std::vector<OwnedSlice>& slices, std::size_t index) const;
  void finish(Broadcast& broadcast) const;
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
