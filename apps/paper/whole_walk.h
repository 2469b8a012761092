/// @file
/// @ingroup paper
/// WholeWalk: the gradients of parameters that every rank holds whole, on paper.
#pragma once

#include "paper/books.h"
#include "paper/formats.h"
#include "paper/memory_options.h"
#include "paper/model_shape.h"
#include "paper/parts_walk.h"
#include "paper/schedule.h"
#include "parallel/partition.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::paper {

using OwnedSlices = std::vector<parallel::OwnedSlice>;
std::int64_t numel_of(const OwnedSlices& slices);
/// What each rank owns of the parts with ZeRO-1 and ZeRO-2.
OwnedSlices owned_slices(const std::vector<WholePart>& parts, const MemoryOptions& options);

/// What becomes of these gradients, as in parallel/: a single process sums them one by one at the
/// end of a micro-step, DDP and ZeRO-1 in buckets that are all-reduced when they are complete, and
/// ZeRO-2 reduces each bucket to its owner. With ZeRO, a rank steps what it owns and broadcasts
/// it. If that is offloaded, it steps on the host.
class WholeWalk final : public PartsWalk {
 public:
  WholeWalk(const ModelShape& shape, const MemoryOptions& options, const Schedule& schedule,
            Books& books);

  /// Nothing is whole.
  bool is_empty() const override { return parts_.empty(); }
  /// What the model reads of all that is whole, and masters; with ZeRO, a rank's are those of what
  /// it owns.
  void hold_parameters() override;
  /// The model reads what the optimizer has changed. (With ZeRO, from broadcast() on.)
  void refresh_copies() override;
  /// The buckets of DDP, which backward writes its gradients into.
  void hold_buckets() override;
  void begin_micro_step() override;
  /// The gradients of this operation's weight are complete.
  void complete(std::size_t segment, std::size_t place, std::string_view operation, int m) override;
  void end_micro_step(int m) override;
  /// Sums become means in the masters' format.
  void finish_gradients() override;
  void add_squares() override;
  void update(bool is_first) override;
  /// ZeRO: the owners broadcast what they updated, two buffers at a time: while one travels, the
  /// next one is packed.
  void broadcast() override;
  void zero_grad() override;

 private:
  /// Gradients that travel together; of a single process, the gradient of one parameter.
  static constexpr MemoryKind kKind = MemoryKind::unsharded_grad;
  static constexpr std::size_t kNoPart = ~std::size_t{0};
  struct Bucket {
    std::int64_t numel = 0;
    OwnedSlices slices;
    std::size_t missing = 0;  // slices whose gradient is not there yet
    std::int64_t end = 0;     // of its reduction, and then of its copy to the host
    bool is_direct = false;   // ZeRO-2: the gradient of its only parameter travels itself
    bool is_held = false;     // ZeRO-2: its buffer is allocated
    int owner() const { return slices.front().owner; }  // kEachRank, if it is not ZeRO-2
  };
  void make_buckets();
  /// Whose weight it is; kNoPart: of none. Names are compared once, in the first micro-step.
  std::size_t part_of(std::size_t segment, std::size_t place, std::string_view operation);
  void close(Bucket& bucket, int m);
  void finish(Bucket& bucket, int m);
  void finish_in_flight(int m);
  void start_copy(Bucket& bucket, int m);
  void finish_copy(int owner, int leaf);
  void pack(const parallel::OwnedSlice& slice, Bucket& bucket);
  void copy_means();
  /// @return when it is on the device
  std::int64_t pack_updated(const OwnedSlices& slices);
  /// Of what the optimizer steps, `nbytes` per element.
  void hold_state(std::int64_t nbytes);
  void hold_owned(const OwnedSlices& slices, MemoryKind kind, std::int64_t nbytes);
  /// Of a bucket's sums, which with ZeRO-2 its owner alone holds.
  void hold_sum(const Bucket& bucket, std::int64_t nbytes,
                MemorySpace space = MemorySpace::device) {
    books_.hold_own(bucket.owner(), kKind, nbytes, space);
  }
  /// The host has a copy of a bucket's sums in place of the device.
  void move_to_host(const Bucket& bucket);
  bool is_single() const { return recipe_.strategy == Strategy::single; }
  bool is_zero2() const { return recipe_.strategy == Strategy::zero2; }
  bool has_owners() const { return recipe_.is_zero(); }
  bool is_offloaded() const { return recipe_.sharding.offload.optimizer; }
  bool offloads_sums() const { return is_zero2() && recipe_.sharding.offload.grads; }
  bool divides_masters() const { return has_owners() && (formats_.casts_params || is_offloaded()); }
  /// In which the owner's slices are broadcast.
  DType broadcast_dtype() const {
    return recipe_.zero.broadcast_fp16 ? DType::float16 : read_dtype();
  }
  DType read_dtype() const { return recipe_.precision.param_dtype_for(DType::float32); }
  /// Broadcast as it lies in its parameter, without a buffer.
  bool is_in_place(const OwnedSlices& slices) const {
    return slices.size() == 1 && broadcast_dtype() == read_dtype();
  }
  /// Broadcast as it was updated.
  bool is_packed(const OwnedSlices& slices) const {
    return slices.size() == 1 && broadcast_dtype() == DType::float32;
  }
  /// Where masters and optimizer state are.
  MemorySpace steps() const { return is_offloaded() ? MemorySpace::host : MemorySpace::device; }
  /// Where buckets become means. With ZeRO-1 all do, on every rank: what a rank owns is copied.
  MemorySpace means() const { return is_zero2() ? steps() : MemorySpace::device; }
  /// Where ZeRO-2 sums what it has reduced.
  MemorySpace sums() const { return offloads_sums() ? MemorySpace::host : MemorySpace::device; }
  bool is_mine(const Bucket& bucket) const { return books_.is_mine(bucket.owner()); }
  /// Whether it is copied into a buffer that travels.
  bool is_copied(const Bucket& bucket) const { return is_zero2() && !bucket.is_direct; }
  /// A single process reduces nothing; it only rounds like a rank that does.
  bool sums_first() const {
    return recipe_.micro_steps_per_reduction > 1 && (!is_single() || formats_.compresses);
  }
  bool reduces(int m) const { return !sums_first() || schedule_.reduces(m); }
  int leaf_of(int m) const { return sums_first() ? m / recipe_.micro_steps_per_reduction : m; }

  const ModelShape& shape_;
  const std::vector<WholePart>& parts_ = shape_.whole_parts;
  const MemoryOptions& options_;
  const optim::Recipe& recipe_ = options_.recipe;
  const Schedule& schedule_;
  Books& books_;
  Formats formats_;
  OwnedSlices owned_;  // ZeRO: of all ranks
  std::vector<OwnedSlices> broadcasts_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> by_segment_;         // parts
  std::vector<std::vector<std::size_t>> part_of_operation_;  // by segment and place
  using PlacedSlice = std::pair<std::size_t, parallel::OwnedSlice>;
  std::vector<std::vector<PlacedSlice>> slices_of_part_;  // each with its bucket
  std::vector<std::size_t> unpacked_;  // by part: slices that are not in their buckets yet
  std::size_t next_ = 0;               // the first bucket not yet closed
  Bucket* in_flight_ = nullptr;        // ZeRO-2
  std::vector<Bucket*> copied_;        // to the host of each rank, by rank; null = none
};

}  // namespace fsdp::paper
