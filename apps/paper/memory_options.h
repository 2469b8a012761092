/// @file
/// @ingroup paper
/// What the memory of a training depends on, beside its model.
#pragma once

#include "nn/transformer_config.h"
#include "optim/recipe.h"
#include "paper/framework.h"
#include "paper/zero_habits.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp::paper {

using optim::Checkpointing;
using optim::Strategy;

/// Two memories, counted apart.
enum class MemorySpace {
  device,
  host,  ///< of the device; holds what is offloaded
};

/// Every rank holds the same number of bytes: shards are padded to one size. Only with ZeRO-1 and
/// ZeRO-2 it depends on the rank, because the greedy partition gives ranks different loads.
struct MemoryOptions {
  optim::Recipe recipe;
  std::int64_t batch = 1;   ///< B, sequences of a micro-batch
  std::int64_t length = 0;  ///< T, tokens of a sequence; 0 = max_position_embeddings
  int threads = 1;          ///< of a rank
  int rank = 0;             ///< zero1, zero2: whose bytes
  Framework framework = Framework::unshard;
  TorchHabits habits = {};  ///< of PyTorch; see habits_of()
  ZeroHabits zero = {};     ///< of DeepSpeed

  /// T of this model.
  std::int64_t length_of(const nn::TransformerConfig& config) const {
    return length == 0 ? config.max_position_embeddings : length;
  }
};

/// What is not known of a framework: the key, and why, as a message goes on after it.
struct Unknown {
  std::string key;
  std::string why;
};
std::optional<Unknown> unknown_of(const MemoryOptions& options);
/// @throws optim::RecipeError for it.
void check_framework(const MemoryOptions& options);
/// @throws Error if the options do not fit together, or not the model.
void check_options(const nn::TransformerConfig& config, const MemoryOptions& options);

}  // namespace fsdp::paper
