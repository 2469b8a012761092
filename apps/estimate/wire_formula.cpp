#include "estimate/wire_formula.h"

#include "comm/process_group.h"
#include "estimate/formats.h"
#include "estimate/frozen_segments.h"
#include "estimate/model_shape.h"
#include "estimate/owned_gradients.h"
#include "estimate/whole_gradients.h"
#include "tensor/exact_norm.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fsdp::estimate {

namespace {

std::int64_t all_reduced(std::int64_t numel, std::int64_t element, int ranks) {
  return received_bytes(CollectiveOp::all_reduce, numel, static_cast<std::size_t>(element), ranks);
}

/// What one reduction of all gradients takes with ZeRO-2.
std::int64_t reduced_to_owners(const std::vector<WholePart>& parts, const MemoryOptions& options,
                               std::int64_t element) {
  if (options.zero.reduce_scatter) return element * numel_of(parts);
  std::int64_t nbytes = 0;
  for (const OwnedSlices& group : reduce_groups(parts, options)) {
    nbytes += all_reduced(numel_of(group), element, options.world_size);
  }
  return nbytes;
}

/// The segment of the lowest trained parameter, below which there is no backward.
std::size_t lowest_trained(const ModelShape& shape, const MemoryOptions& options) {
  if (is_trained(options, "model.embed_tokens.weight")) return 0;
  std::size_t lowest = shape.segments.size() - 1;  // of what the root manages, only norms are left
  for (const WholePart& part : shape.whole_parts) lowest = std::min(lowest, part.segment);
  for (std::size_t i = 0; i < lowest; ++i) {
    const int unit = shape.unit_of_segment[i];
    if (unit == ModelShape::kNoUnit) continue;
    for (const FlatShape& flat : shape.units[static_cast<std::size_t>(unit)].flats) {
      if (flat.is_trained) return i;
    }
  }
  return lowest;
}

/// The gathers of one micro-step.
class Gathers {
 public:
  Gathers(const ModelShape& shape, const MemoryOptions& options)
      : shape_(shape), options_(options), element_(Formats(options.mixed_precision).param) {}

  std::int64_t nbytes() const {
    std::int64_t total = 0;
    for (const UnitShape& unit : shape_.units) total += whole(unit);  // for forward
    if (shape_.root != ModelShape::kNoUnit) {
      total += for_backward(shape_.units[static_cast<std::size_t>(shape_.root)]);
    }
    const std::size_t lowest = lowest_trained(shape_, options_);
    int ahead = options_.prefetch_depth;
    if (options_.in_flight_limit > 0) ahead = std::min(ahead, options_.in_flight_limit);
    for (std::size_t i = shape_.segments.size(); i-- > 0;) {
      if (shape_.unit_of_segment[i] == ModelShape::kNoUnit) continue;
      const UnitShape& unit = shape_.units[static_cast<std::size_t>(shape_.unit_of_segment[i])];
      const bool runs_again = options_.checkpointing == Checkpointing::around &&
                              shape_.segments[i].starts_with("model.layers.");
      if (i >= lowest) {
        total += for_backward(unit) + (runs_again ? whole(unit) : 0);
      } else if (ahead-- > 0) {
        total += runs_again ? whole(unit) : for_backward(unit);  // and not used
      }
    }
    return total;
  }

 private:
  std::int64_t whole(const UnitShape& unit) const { return gathered(unit, options_.shards()); }

  /// By a unit of which a forward with a tape left what the options say.
  std::int64_t for_backward(const UnitShape& unit) const {
    if (unit.keep || options_.reshard == Reshard::never) return 0;
    return gathered(
        unit, options_.reshard == Reshard::within ? options_.reshard_ranks : options_.shards());
  }

  std::int64_t gathered(const UnitShape& unit, int ranks) const {
    std::int64_t nbytes = 0;
    for (const FlatShape& flat : unit.flats) {
      nbytes += received_bytes(CollectiveOp::all_gather, flat.padded() / ranks,
                               static_cast<std::size_t>(element_), ranks);
    }
    return nbytes;
  }

  const ModelShape& shape_;
  const MemoryOptions& options_;
  std::int64_t element_;
};

}  // namespace

WireBytes wire_bytes(const nn::TransformerConfig& config, const MemoryOptions& options) {
  WireBytes wire;
  if (options.world_size == 1) return wire;
  const ModelShape shape = model_shape(config, options);
  const Formats formats(options.mixed_precision, options.zero.reductions.compression);
  const std::int64_t reductions = options.micro_steps / options.micro_steps_per_reduction;
  const int shards = options.shards(), replicas = options.replicas;
  const auto element = static_cast<std::size_t>(formats.sum);

  wire.gathers = options.micro_steps * Gathers(shape, options).nbytes();
  for (const UnitShape& unit : shape.units) {
    for (const FlatShape& flat : unit.flats) {
      if (!flat.is_trained) continue;
      wire.reductions +=
          reductions * received_bytes(CollectiveOp::reduce_scatter, flat.shard(), element, shards);
      wire.across += reductions * all_reduced(flat.shard(), formats.sum, replicas);
    }
  }
  if (options.placement == Placement::zero2) {
    wire.reductions = reductions * reduced_to_owners(shape.whole_parts, options, formats.wire);
  } else {
    for (const std::vector<WholePart>& bucket : ddp_buckets(shape.whole_parts, options)) {
      const std::int64_t numel = numel_of(bucket);
      wire.reductions += reductions * all_reduced(numel, formats.wire, shards);
      wire.across += reductions * all_reduced(numel, formats.wire, replicas);
    }
  }
  if (options.placement == Placement::zero1 || options.placement == Placement::zero2) {
    wire.broadcasts = (options.zero.broadcast_fp16 ? 2 : kFloatBytes) * numel_of(shape.whole_parts);
  }
  if (options.clips) wire.norm = all_reduced(ExactSquareSum::kCounters, 8, shards);
  return wire;
}

}  // namespace fsdp::estimate
