/// @file
/// @ingroup estimate
/// ZeRO-1 and ZeRO-2 on paper: what one rank owns of parameters that every rank holds whole. If the
/// ledger counts all ranks (Ledger::count_ranks), what each rank owns is counted for that rank.
#pragma once

#include "estimate/formats.h"
#include "estimate/ledger.h"
#include "estimate/memory_options.h"
#include "estimate/model_shape.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdp::estimate {

using OwnedSlices = std::vector<parallel::OwnedSlice>;
std::int64_t numel_of(const OwnedSlices& slices);
/// What each rank owns of the parts.
OwnedSlices owned_slices(const std::vector<WholePart>& parts, const MemoryOptions& options);
/// The slices whose gradients Zero2Gradients reduces together.
std::vector<OwnedSlices> reduce_groups(const std::vector<WholePart>& parts,
                                       const MemoryOptions& options);
/// The slices that their owner broadcasts together once they are updated.
std::vector<OwnedSlices> broadcast_groups(const std::vector<WholePart>& parts,
                                          const MemoryOptions& options);

/// The elements that a rank owns, and the buffers in which owners broadcast what they updated.
class OwnedParts {
 public:
  OwnedParts(const std::vector<WholePart>& parts, const MemoryOptions& options, Ledger& ledger);

  /// So many bytes of optimizer state per element that the rank owns.
  void make_state(std::int64_t nbytes);
  /// Holds at most two buffers at a time.
  void broadcast();

 private:
  int rank_;
  std::vector<std::int64_t> loads_;    // elements, by rank
  std::vector<std::int64_t> buffers_;  // bytes; a slice that travels in place has none
  Ledger& ledger_;
};

/// The gradients of Zero2Gradients: made one by one, reduced in buckets, kept on their owner.
class OwnedGradients {
 public:
  OwnedGradients(const std::vector<WholePart>& parts, const MemoryOptions& options, Ledger& ledger);

  void begin_micro_step();
  void complete(std::size_t segment, std::string_view operation, int m);
  void end_micro_step(int m) { finish_in_flight(m); }
  void finish();
  void zero();

 private:
  struct Bucket {
    int owner = 0;
    std::int64_t numel = 0;
    std::vector<parallel::OwnedSlice> slices;
    bool is_direct = false;   // the gradient of its only parameter travels itself
    bool is_held = false;     // its buffer is allocated
    std::size_t missing = 0;  // slices whose gradient is not there yet
  };
  struct Place {
    std::vector<std::size_t> buckets;  // one for each slice of the part
    std::size_t unmoved = 0;           // those that it is not copied into yet
  };
  void move(std::size_t part, Bucket& bucket);
  void close(Bucket& bucket, int m);
  void finish_in_flight(int m);
  /// Beside what every rank holds, the owner of the bucket holds this.
  void hold_own(const Bucket& bucket, std::int64_t nbytes);
  bool is_counted(const Bucket& bucket) const {
    return ledger_.ranks() != nullptr || bucket.owner == options_.rank;
  }

  const std::vector<WholePart>& parts_;
  const MemoryOptions& options_;
  Formats formats_;
  Ledger& ledger_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;                         // of the parts
  std::vector<std::vector<std::size_t>> by_segment_;  // parts, by segment
  std::size_t next_ = 0;                              // the first bucket not yet closed
  const Bucket* in_flight_ = nullptr;
};

}  // namespace fsdp::estimate
