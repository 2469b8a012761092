/// @file
/// Flat parameters of one rank, made of numbers that are known.
#pragma once

#include "support/toy.h"
#include "task5_sharded_optimizer/sharded_optimizer.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp::testing {

/// What the flat parameters of the test are made of: sizes of their parameters.
struct FlatSpec {
  std::string unit;
  std::vector<std::int64_t> sizes;
  bool trainable = true;
  bool decay = true;
};

/// Two units; "a" has a frozen flat parameter and one without decay besides the first.
inline const std::vector<FlatSpec> kSpecs = {
    {"a", {7, 5}, true, true},
    {"a", {6}, false, true},
    {"a", {3}, true, false},
    {"b", {11}, true, true},
};

/// The shards of rank `rank`. Parameters are "<unit>.<flat>.<index>"; their values, and those of
/// the gradients that set_gradients() makes, do not depend on rank and world size.
struct Shards {
  Shards(int rank, int world_size);
  void set_gradients(double scale);
  std::vector<FlatParameter*> pointers() const;

  std::vector<std::unique_ptr<FlatParameter>> flats;
};

/// Trainable elements of rank `rank` with padding: Σ n.
std::int64_t trainable_shard_numel(const Shards& shards);

/// Runs `steps` steps of AdamW on W ranks and returns parameters and states, whole. Gradients are
/// those of set_gradients(step).
Values train_shards(int world_size, int steps);

/// Puts a slice into the whole it belongs to.
void put_slice(Values& values, const io::StateSlice& slice);

std::shared_ptr<optim::AdamW> make_adamw();

}  // namespace fsdp::testing
