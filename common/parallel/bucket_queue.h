/// @file
/// @ingroup parallel
/// BucketQueue: which gradients are reduced together and in which order, for DDP and ZeRO-2.
#pragma once

#include "autograd/variable.h"
#include "comm/process_group.h"
#include "optim/shard_sums.h"
#include "optim/step_plan.h"
#include "parallel/partition.h"
#include "tensor/tree_sum.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::parallel {

/// Gradients that are reduced together. At the end of every micro-step they are one leaf of the
/// tree of additions.
struct Bucket {
  /// The place of a gradient, or with ZeRO-2 of an owner's slice of it.
  struct Slot {
    OwnedSlice slice;
    std::int64_t at = 0;       // first element in the bucket
    std::size_t piece = 0;     // ZeRO-2, on the owner: index into pieces()
    bool is_complete = false;  // its gradient of this micro-step is there
    Tensor whole{};            // that gradient, if it is copied only when all are there
  };

  /// Its bytes are counted as those of "ddp bucket0", say.
  Bucket(const std::string& engine, std::size_t index, DType its_dtype,
         const optim::SumsOffload& to_host = {});
  void take(const Slot& slot, const Tensor& whole);  ///< copies the slot's part of it into the leaf
  void fill_with_zeros(const Slot& slot, Device device);
  void cast_leaf(DType to);  ///< recast()

  std::string name;
  DType dtype;  // of the sums
  std::shared_ptr<const Owner> memory;
  std::vector<Slot> slots;
  std::int64_t numel = 0;
  std::size_t missing = 0;        // slots whose gradient is not there yet
  Tensor leaf;                    // (numel) of this micro-step, or in flight; undefined = none
  TreeAccumulator micro_batches;  // of this rank, since the last reduction
  optim::ShardSums reductions;    // of this step, over all ranks
  Work work;

 private:
  void allocate(Device device);  // the leaf, unless there is one
};

/// The buckets of a model, and how far its step has come. A parameter that took no part in a
/// micro-step has the gradient +0.
class BucketQueue {
 public:
  using Parameters = std::vector<std::pair<std::string, Variable>>;
  using Places = std::vector<std::pair<Bucket*, Bucket::Slot*>>;
  /// `take` puts the gradient of a parameter (its index) into places(); nothing to do if it is
  /// produced there. `reduce` sends a bucket's leaf on its way.
  BucketQueue(Parameters parameters, std::function<void(std::size_t)> take,
              std::function<void(Bucket&)> reduce);
  BucketQueue(const BucketQueue&) = delete;
  BucketQueue& operator=(const BucketQueue&) = delete;
  ~BucketQueue();

  /// Buckets are closed in the order in which they were added.
  Bucket& add(std::unique_ptr<Bucket> bucket, const std::vector<OwnedSlice>& slices);
  const std::vector<std::unique_ptr<Bucket>>& buckets() const { return buckets_; }
  Parameters& parameters() { return parameters_; }  ///< those that require a gradient
  const Places& places(std::size_t parameter) const { return places_[parameter]; }

  void begin_step(const optim::StepPlan& plan);  ///< a plan that is valid
  /// Buckets with parameters that nobody used too. @throws Error after the last micro-step.
  void close_all();
  bool ends_reduction() const { return plan_.ends_reduction(micro_step_); }
  bool next_micro_step();  ///< False after the last one.
  /// What makes a mean of the sum over all micro-steps and ranks.
  /// @throws Error before all micro-steps have ended.
  double mean_factor(int ranks) const;

 private:
  void start_micro_step();
  void on_gradient(std::size_t index);
  void close(Bucket& bucket);

  Parameters parameters_;
  std::function<void(std::size_t)> take_;
  std::function<void(Bucket&)> reduce_;
  std::vector<int> hooks_;      // of the parameters
  std::vector<Places> places_;  // likewise
  std::vector<std::unique_ptr<Bucket>> buckets_;
  optim::StepPlan plan_{.micro_steps = 0};  // none begun
  int micro_step_ = 0;
  std::size_t next_ = 0;  // the first bucket not yet closed in this micro-step
};

}  // namespace fsdp::parallel
