/// @file
/// @ingroup train
/// How well a model predicts tokens that it is not trained on.
#pragma once

#include "comm/process_group.h"
#include "nn/module.h"
#include "train/data.h"

#include <cstdint>
#include <vector>

namespace fsdp::train {

/// exp(loss): among how many equally likely tokens the model chooses, as it were.
double perplexity(float loss);

/// The mean loss over a row of tokens, cut into windows of T tokens that do not overlap:
///
///     tokens    0 … T-1   T … 2T-1   …         window i predicts tokens i·T + 1 … (i + 1)·T
///     windows      0          1      …         N = (tokens - 1) / T; the rest is left out
///
/// In every round each of the W ranks takes the next `batch` windows. In the last round there may
/// be too few of them: then the last window fills the places, and does not count. So all ranks take
/// part in as many forwards, and in all of their gathers. Each window has a loss of its own, and
/// their sum is the canonical one (tensor/tree_sum.h): the result is a function of the parameters,
/// the format that the model computes in, the tokens and T, to the last bit, for every strategy, W
/// and batch.
class Evaluator {
 public:
  /// `data` must outlive it, and have more than T tokens. `group` is null for a single process.
  Evaluator(const TokenData& data, std::int64_t batch, std::int64_t sequence_length,
            ProcessGroup* group);

  std::int64_t windows() const { return windows_; }
  /// Mean loss per token, in nats. Runs without a tape, draws no random numbers, and leaves every
  /// unit of the model resharded. Collective.
  float mean_loss(nn::Module& model) const;

 private:
  MicroBatch windows_from(std::int64_t first) const;
  /// Of each window of a batch.
  std::vector<float> losses_of(nn::Module& model, const MicroBatch& micro) const;

  const TokenData& data_;
  std::int64_t batch_;
  std::int64_t sequence_length_;
  ProcessGroup* group_;
  std::int64_t windows_;
};

}  // namespace fsdp::train
