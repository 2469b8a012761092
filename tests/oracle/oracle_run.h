/// @file
/// What the oracle and the library both compute, so that it can be compared: logits, loss,
/// gradients, and the parameters after some steps of AdamW.
#pragma once

#include "comm/process_group.h"
#include "nn/transformer.h"
#include "optim/optimizer.h"
#include "strategies/trained_model.h"
#include "tensor/tensor.h"

#include <map>
#include <string>
#include <vector>

namespace fsdp::testing {

struct OracleNumbers {
  Tensor logits;                             ///< (B, T, V) of the first batch
  std::vector<float> losses;                 ///< one per step
  std::map<std::string, Tensor> gradients;   ///< of the first batch, by path; only without a group
  std::map<std::string, Tensor> parameters;  ///< after the last step, by path
};

/// Trains on batches 0, 1, … of `tokens` and `targets` (steps, B, T) int32, without clipping. Each
/// of the W ranks takes B / W rows of every batch. Without targets it only computes the logits.
/// Collective, and every rank gets the same numbers.
/// @param group that of the model; null for strategy "single"
OracleNumbers run_like_the_oracle(strategies::TrainedModel& trained, ProcessGroup* group,
                                  const Tensor& tokens, const Tensor& targets, double lr);

/// The parameters after AdamW has taken one step for each of these gradients: the optimizer by
/// itself.
/// @param gradients by path, one per step
std::map<std::string, Tensor> step_on_gradients(
    nn::TransformerLM& model, const std::map<std::string, std::vector<Tensor>>& gradients,
    double lr, const optim::AdamW::Options& adamw);

/// ‖a − b‖ / ‖b‖ over all elements, in double.
double relative_difference(const Tensor& a, const Tensor& b);
/// The same over the changes from `start`: ‖(a − start) − (b − start)‖ / ‖b − start‖.
double relative_difference(const Tensor& a, const Tensor& b, const Tensor& start);

}  // namespace fsdp::testing
