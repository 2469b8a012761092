/// @file
/// @ingroup estimate
/// WholeGradients: the gradients of parameters that every rank holds whole, on paper.
#pragma once

#include "estimate/formats.h"
#include "estimate/ledger.h"
#include "estimate/memory_options.h"
#include "estimate/model_shape.h"
#include "estimate/owned_gradients.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::estimate {

/// TreeAccumulator's bytes. A binary counter: pushing leaf number m leaves pop(m + 1) sums where
/// pop(m) were. Nothing is allocated for it, so it makes no peak.
void push_leaf(Ledger& ledger, MemoryKind from, MemoryKind to, std::int64_t nbytes, int leaf);
/// How many sums are held after so many leaves.
int held_sums(int leaves);
/// By how many sums leaf number `leaf` adds to those that are held.
int more_leaves(int leaf);
/// How many sums fewer there are when all of `leaves` are folded into one.
int folded_leaves(int leaves);
/// `leaves` are folded into one.
void fold_leaves(Ledger& ledger, MemoryKind kind, std::int64_t nbytes, int leaves);

std::int64_t numel_of(const std::vector<WholePart>& parts);
/// The parts that DdpGradients reduces together: last parameters first.
std::vector<std::vector<WholePart>> ddp_buckets(const std::vector<WholePart>& parts,
                                                const MemoryOptions& options);

/// The buckets of DdpGradients, or the parameters of LocalGradients, one after the other; with
/// ZeRO-2, what OwnedGradients has.
class WholeGradients {
 public:
  WholeGradients(const std::vector<WholePart>& parts, const MemoryOptions& options, Ledger& ledger);

  /// The flat gradients of all buckets (LocalGradients: nothing yet).
  void begin_micro_step();
  /// Nothing is whole.
  bool is_empty() const { return numel_ == 0; }
  /// The gradients of this operation's weight are complete.
  void complete(std::size_t segment, std::string_view operation, int m);
  void end_micro_step(int m);
  /// Sums become means in the masters' format.
  void finish();
  void zero();
  /// The optimizer's state: so many tensors for each parameter that is stepped.
  void make_state(int tensors);
  /// ZeRO: the owners broadcast what they updated.
  void broadcast();

 private:
  /// What travels together: a bucket, or a single process's parameter.
  struct Bucket {
    std::int64_t numel = 0;
    std::size_t parts = 0;
    std::size_t missing = 0;  // parts whose gradient is not there yet
  };
  struct Place {
    std::string operation;  // whose weight the part is
    std::size_t bucket = 0;
  };
  void put(const WholePart& part);
  void close(const Bucket& bucket, int m);
  void finish(const Bucket& bucket, int m);
  /// A single process reduces nothing; it only rounds like a rank that does.
  int group() const {
    return is_single_ && !formats_.compresses ? 1 : options_.micro_steps_per_reduction;
  }

  const MemoryOptions& options_;
  Formats formats_;
  Ledger& ledger_;
  std::int64_t numel_;
  bool is_single_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<Place>> places_;   // of the parts, by segment; not with a single process
  std::size_t next_ = 0;                     // the first bucket not yet closed
  std::optional<OwnedParts> owned_parts_;    // ZeRO-1 and ZeRO-2
  std::optional<OwnedGradients> gradients_;  // ZeRO-2
};

}  // namespace fsdp::estimate
