/// @file
/// @ingroup tensor
/// The canonical order of addition. Floating-point addition is not associative, so "the sum of K
/// gradients" has no meaning until an order is fixed. Ours is one binary tree:
///
///     K leaves split at the largest power of two < K:   sum(0..K) = sum(0..p) + sum(p..K)
///
///     K = 4  (0+1)+(2+3)        K = 3  (0+1)+2        K = 6  ((0+1)+(2+3))+(4+5)
///
/// A single process, gradient accumulation and W ranks are cuts of the same tree. So they can agree
/// to the last bit.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace fsdp {

/// out[i] = canonical sum over k of in[k][i], i in [0, numel), in any dtype. With 16 bits, each
/// addition is rounded. `out` may be one of the inputs. Raw pointers: communication threads call
/// this.
void tree_sum(std::byte* out, std::span<const std::byte* const> in, std::int64_t numel,
              DType dtype);

/// The canonical sum of a few scalars.
float tree_sum(std::span<const float> values);

/// Sums leaves that arrive one by one, in the canonical order. It keeps only partial sums, like the
/// carries of a binary counter: after m leaves, at most popcount(m) partials are alive.
///
/// push() keeps the leaf's Storage object. Its bytes move into the accumulator
/// (Storage::swap_bytes) or are freed. Either way it is unallocated afterwards, and ready for the
/// next leaf.
class TreeAccumulator {
 public:
  /// Partials are counted as `kind`, owned by `owner`.
  TreeAccumulator(MemoryKind kind, std::shared_ptr<const Owner> owner);
  virtual ~TreeAccumulator() = default;
  TreeAccumulator(TreeAccumulator&&) = default;
  TreeAccumulator& operator=(TreeAccumulator&&) = default;

  /// Adds the next leaf; all leaves have one shape and dtype and cover their whole storage.
  virtual void push(const Tensor& leaf);
  std::int64_t leaves() const { return leaves_; }
  MemoryKind kind() const { return kind_; }
  const std::shared_ptr<const Owner>& owner() const { return owner_; }
  /// Folds the partials into the sum over all leaves and clears them (leaves() is 0 again).
  /// @throws Error if nothing was pushed.
  Tensor fold();
  /// Clears everything.
  void clear();

 private:
  struct Partial {
    Tensor sum;
    std::int64_t leaves;
  };
  MemoryKind kind_;
  std::shared_ptr<const Owner> owner_;
  std::vector<Partial> partials_;  // largest first, strictly falling powers of two
  std::int64_t leaves_ = 0;
};

}  // namespace fsdp
