/// @file
/// @ingroup paper
/// ZeroWalk: DeepSpeed's ZeRO on paper.
#pragma once

#include "paper/formats.h"
#include "paper/parts_walk.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp::paper {

/// The stage of a strategy: DDP, and one process, are stage 0.
int zero_stage(Strategy strategy);

/// What the stages have in common. All parameters are one flat group, in the order of registration,
/// and a micro-step's gradients come one by one as backward makes them. In stages 1 to 3 they are
/// collected in a bucket, which is reduced when the next one does not fit.
class ZeroWalk : public PartsWalk {
 public:
  bool is_empty() const override { return false; }
  void complete(std::size_t segment, std::size_t place, std::string_view operation, int m) override;
  void update(bool is_first) override;

 protected:
  ZeroWalk(const ModelShape& shape, const MemoryOptions& options, Books& books);
  virtual void add_gradient(std::size_t part, int m) = 0;
  /// Of what is in the bucket, which is empty then.
  virtual void reduce_bucket() = 0;
  void add_to_bucket(std::size_t part);
  /// The buffers that gradients are copied into.
  std::int64_t bucket_bytes() const {
    return recipe_.zero.contiguous_gradients ? gradient_ * habits_.reduce_bucket : 0;
  }
  bool is_copied(std::size_t part) const {
    return recipe_.zero.contiguous_gradients && numel_of(part) <= habits_.reduce_bucket;
  }
  /// The part whose weight an operation uses.
  std::optional<std::size_t> used_by(std::size_t segment, std::string_view operation) const;
  std::int64_t numel_of(std::size_t part) const { return parts_[part].numel; }
  std::int64_t total() const;
  bool is_last(int m) const { return m + 1 == recipe_.micro_steps; }
  /// Where masters, state and their gradients are.
  MemorySpace steps() const {
    const optim::Offload& offload = recipe_.sharding.offload;
    return offload.is_on() ? MemorySpace::host : MemorySpace::device;
  }
  bool is_offloaded() const { return recipe_.sharding.offload.is_on(); }
  /// Gradients are added up in float32, and made in 16 bits.
  bool widens() const { return formats_.casts_gradients; }

  const ModelShape& shape_;
  const std::vector<WholePart>& parts_ = shape_.whole_parts;
  const MemoryOptions& options_;
  const optim::Recipe& recipe_ = options_.recipe;
  const ZeroHabits& habits_ = options_.zero;
  Books& books_;
  Formats formats_;
  std::int64_t gradient_ = formats_.param;  // bytes of an element in a bucket
  std::int64_t stepped_ = 0;                // elements that this rank's optimizer steps
  std::vector<std::size_t> bucket_;         // parts
  std::int64_t in_bucket_ = 0;              // elements

 private:
  bool is_tied() const;
};

std::unique_ptr<PartsWalk> zero_replicas(const ModelShape& shape, const MemoryOptions& options,
                                         Books& books);
std::unique_ptr<PartsWalk> zero_shards(const ModelShape& shape, const Segments& segments,
                                       const MemoryOptions& options, Books& books);

}  // namespace fsdp::paper
