/// @file
/// @ingroup parallel
/// Distributed data parallel: the baseline that replicates everything.
#pragma once

#include "autograd/variable.h"
#include "comm/process_group.h"
#include "optim/gradient_engine.h"
#include "optim/master_weights.h"
#include "optim/reduction.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::parallel {

/// Every rank holds all parameters, gradients and optimizer state. Gradients are all-reduced in
/// buckets of about `bucket_bytes`, last parameters first, while backward computes the others.
class DdpGradients : public optim::GradientEngine {
 public:
  static constexpr std::size_t kBucketBytes = optim::kBucketBytes;

  /// `masters` of parameters that the model reads in another format; they are what pieces() lists.
  DdpGradients(std::vector<std::pair<std::string, Variable>> parameters,
               std::shared_ptr<ProcessGroup> group, std::size_t bucket_bytes = kBucketBytes,
               const optim::MasterWeights& masters = {}, const optim::ReduceOptions& how = {});
  ~DdpGradients() override;

  void begin_step(const optim::StepPlan& plan) override;
  void end_micro_step() override;
  void finish_gradients() override;
  /// One piece per parameter, in the order given to the constructor. Its `key` is the parameter's
  /// path, its `param` the master. `decay` is true until the caller sets it.
  std::vector<optim::Piece>& pieces() override;
  /// Every rank holds every gradient. Each rank counts every W-th piece, so all ranks must call it.
  void add_squares(ExactSquareSum& sum) override;
  void zero_grad() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fsdp::parallel
