/// @file
/// Runner: the flat parameters of one rank, made of numbers that are known.
#pragma once

#include "graded/recorder.h"
#include "task5/flats.h"
#include "task5_sharded_optimizer/sharded_optimizer.h"

#include <memory>
#include <vector>

namespace fsdp::graded {

class Shards {
 public:
  Shards(const Case& asked, int rank, int world_size);
  /// Those of step `step`; the padding is zero.
  void set_gradients(int step);
  void drop_gradients();
  std::vector<FlatParameter*> pointers() const;
  std::vector<FlatParameter*> trainable() const;
  const std::vector<std::unique_ptr<FlatParameter>>& flats() const { return flats_; }

 private:
  const Case& asked_;
  std::vector<FlatSpec> specs_;
  std::vector<std::unique_ptr<FlatParameter>> flats_;
};

/// The option "optimizer": "adamw", "momentum" for SGD with one state per parameter, or "sgd" for
/// SGD without any.
std::shared_ptr<optim::Optimizer> optimizer_of(const Case& asked);
/// The part of a shard-sized tensor that is padding.
Tensor padding_of(const FlatParameter& flat, const Tensor& shard_sized);

}  // namespace fsdp::graded
