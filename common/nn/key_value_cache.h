/// @file
/// @ingroup nn
/// KeyValueCache: what attention has computed for the tokens before the next one.
///
/// The keys and values of a token depend on it and on those before it, never on later ones. While a
/// text grows, they can be kept, and each new token costs a forward of one row:
///
///     positions       0   1   2   3 │ 4         the model is called with the token at 4 alone
///     keys, values    k0  k1  k2  k3│ k4        kept │ appended by this call
///     queries                       │ q4        sees k0 … k4
#pragma once

#include "nn/module.h"

#include <cstdint>
#include <vector>

namespace fsdp::nn {

/// The keys and values of one attention layer: those of positions [0, length).
class KeyValues {
 public:
  explicit KeyValues(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t length() const { return length_; }  ///< tokens that are kept
  void clear() { length_ = 0; }                    ///< the next call begins a sequence
  /// rope_attention() of the tokens from position length() on, which see those before them too, and
  /// are kept then. The batch is one sequence. The first call allocates 2·capacity·G·D elements.
  /// @throws Error if a tape is recorded, or if they are more than there is room for.
  Variable attend(const Variable& q, const Variable& k, const Variable& v, int heads, int kv_heads,
                  const Tensor& cos, const Tensor& sin);

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  Tensor keys_;    // (capacity, G·D), rotated
  Tensor values_;  // (capacity, G·D)
};

/// While it lives, each forward of the model continues the sequence of those before: it takes the
/// tokens from position length() on, at most `capacity` in all, and gives their logits, with the
/// bits of one forward of the whole sequence. Holds nothing of a model that cannot continue one
/// (Module::continuable_attention()), so its length() stays 0.
class KeyValueCache {
 public:
  /// `model` must outlive it, and have no other cache.
  KeyValueCache(Module& model, std::int64_t capacity);
  ~KeyValueCache();
  KeyValueCache(const KeyValueCache&) = delete;
  KeyValueCache& operator=(const KeyValueCache&) = delete;

  /// The number of tokens that are kept.
  std::int64_t length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  /// The next forward begins a sequence. Also needed after a forward that threw.
  void clear();

 private:
  std::vector<Attention*> attention_;
  std::vector<KeyValues> layers_;
};

}  // namespace fsdp::nn
