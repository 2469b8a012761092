/// @file
/// @ingroup train
/// The part of a training step that is the same whether its bytes exist or are only counted.
#pragma once

#include "optim/gradient_engine.h"
#include "train/data.h"
#include "train/strategy.h"

#include <functional>

namespace fsdp::train {

/// Called between the parts of a step, by instruments that measure each part. May be empty.
struct StepWatch {
  std::function<void(int m)> before_forward = {};  ///< micro-batch m has been made
  std::function<void(int m)> before_backward = {};
  std::function<void(int m)> before_reduce = {};  ///< of what backward has left
  std::function<void()> before_finish = {};       ///< of the gradients
};

/// The gradients of one step: forward and backward of every micro-batch, and their sum.
/// @param next     makes micro-batch m
/// @param on_loss  sees its loss, a scalar; on a device without data it must not read it
void make_gradients(TrainedModel& trained, const optim::StepPlan& plan,
                    const std::function<MicroBatch(int m)>& next,
                    const std::function<void(const Tensor& loss)>& on_loss,
                    const StepWatch& watch = {});

}  // namespace fsdp::train
