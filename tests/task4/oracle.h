/// @file
/// What the judge of task 4 knows about the models of its scenarios: their units, and the gradients
/// that one process finds.
#pragma once

#include "graded/expect.h"
#include "support/toy_model.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::graded {

using Floats = std::vector<float>;

/// The model of a case.
testing::ToyConfig config_of(const Case& asked);

/// A flat parameter.
struct FlatLayout {
  bool trainable = true;
  std::vector<std::string> paths;
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 0;
  std::int64_t padded(int world_size) const;
  std::int64_t shard(int world_size) const { return padded(world_size) / world_size; }
};
struct UnitLayout {
  std::string name;
  std::vector<FlatLayout> flats;  ///< trainable ones first
  std::vector<FlatLayout> trainable() const;
};
/// In how many shards a unit is cut: W, but in a mesh W/R.
int shards_of(const Case& asked);
/// The units of the model of a case in forward order, the root's (if any) first.
std::vector<UnitLayout> units_of(const Case& asked);
/// Bytes of float32, padded, of all trainable flat parameters of a unit: whole, or one shard.
std::int64_t full_grad_bytes(const UnitLayout& unit, int world_size);
std::int64_t shard_grad_bytes(const UnitLayout& unit, int world_size);

/// The dtype in which a case sums the gradients of its float32 parameters.
DType reduce_dtype_of(const Case& asked);
/// The sum in the canonical order: a binary tree, split at the largest power of two below the
/// count. Every sum is rounded to `dtype`, if that is one of 16 bits.
template <class T>
std::vector<T> tree(const std::vector<std::vector<T>>& leaves, DType dtype = DType::float32);
/// Numbers that depend on (stream, index) only: what scenarios fill gradients with.
Floats noise_of(std::int64_t numel, std::uint64_t stream);
/// As the scenarios' given_gradient().
Floats given_gradient_of(const Case& asked, std::int64_t numel, std::size_t index);
/// As the scenarios' fill_full_grad(), and cast to the dtype of the sums.
Floats filled_full_grad(const Case& asked, const FlatLayout& flat, int rank, int m);

/// Gradients of a model by one process: the micro-batches of a step in one tree, in the order in
/// which W ranks with this plan add them. T: float, or double for the option "double".
template <class T>
class GradientsOf {
 public:
  GradientsOf(const Case& asked, int step = 0);
  /// Of a flat parameter over the first `groups` groups of L micro-steps (-1: all), padded, times
  /// `factor`.
  std::vector<T> of(const FlatLayout& flat, int groups = -1, T factor = 1) const;
  int micro_batches() const { return static_cast<int>(leaves_.size()); }

 private:
  const Case& asked_;
  int micro_steps_, per_reduction_;
  std::vector<std::vector<std::pair<std::string, std::vector<T>>>> leaves_;  // by j, by path
};
using Gradients = GradientsOf<float>;

/// The shard of `rank`, of a padded vector.
template <class T>
std::vector<T> shard_of(const std::vector<T>& whole, int rank, int world_size) {
  const auto n = static_cast<std::ptrdiff_t>(whole.size()) / world_size;
  return {whole.begin() + rank * n, whole.begin() + (rank + 1) * n};
}
/// How many elements of that shard are not padding.
std::int64_t valid_of(const FlatLayout& flat, int rank, int world_size);

}  // namespace fsdp::graded
