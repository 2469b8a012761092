// Stage 3 of ZeRO (DeepSpeed's stage3.py and partitioned_param_coordinator.py).
#include "paper/live_parameters.h"
#include "paper/segment_walk.h"
#include "paper/zero_walk.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fsdp::paper {

namespace {

class ZeroShards final : public ZeroWalk {
 public:
  ZeroShards(const ModelShape& shape, const Segments& segments, const MemoryOptions& options,
             Books& books)
      : ZeroWalk(shape, options, books) {
    std::vector<LiveParameters::Parameter> parameters;
    for (const WholePart& part : parts_) {
      const std::int64_t shard = shard_of(part.numel);
      stepped_ += shard;
      const bool is_persistent = part.numel <= habits_.persistence_threshold &&
                                 persistent_ + part.numel <= habits_.persistent_limit;
      if (is_persistent) persistent_ += part.numel;
      const bool is_alone = recipe_.ranks == 1;  // then nothing is gathered
      parameters.push_back({.numel = part.numel,
                            .nbytes = is_alone ? 0 : formats_.param * part.numel,
                            .gathered = is_alone ? 0 : formats_.param * shard * recipe_.ranks,
                            .shard = shards() == MemorySpace::host ? formats_.param * shard : 0,
                            .is_persistent = is_persistent});
    }
    live_.emplace(std::move(parameters), uses(segments), habits_, books_);
    gradient_ = formats_.param;
  }

  bool follows_forward() const override { return true; }
  void hold_parameters() override {
    books_.set_owner(kWholeModel);
    books_.hold(MemoryKind::sharded_param, formats_.param * stepped_, shards());
    books_.hold(MemoryKind::sharded_param, kFloatBytes * stepped_, steps());
    books_.hold(MemoryKind::sharded_grad, formats_.sum * stepped_, steps());
    if (recipe_.ranks > 1) {
      books_.hold(MemoryKind::unsharded_param, formats_.param * persistent_);
    }
    books_.hold(MemoryKind::reduce_scatter, buffer());
  }
  void before(std::size_t segment, std::string_view operation) override {
    books_.set_owner(kWholeModel);
    if (used_by(segment, operation)) live_->fetch();
  }
  void after(std::size_t segment, std::string_view operation) override {
    books_.set_owner(kWholeModel);
    if (used_by(segment, operation)) live_->release();
  }
  void end_micro_step(int /*m*/) override {
    books_.set_owner(kWholeModel);
    reduce_bucket();
    live_->finish();
  }

  // So many elements at a time are stepped.
  void finish_gradients() override { hold_floats(); }
  void zero_grad() override {
    books_.set_owner(kWholeModel);
    books_.drop(MemoryKind::sharded_grad, kFloatBytes * at_once(), steps());
  }

 private:
  std::int64_t shard_of(std::int64_t numel) const {
    return (numel + recipe_.ranks - 1) / recipe_.ranks;
  }
  /// Where the parameters are that are gathered.
  MemorySpace shards() const { return habits_.keeps_shards ? MemorySpace::device : steps(); }
  /// In the format in which gradients travel.
  std::int64_t buffer() const {
    return recipe_.zero.contiguous_gradients ? formats_.sum * habits_.reduce_bucket : 0;
  }
  std::int64_t at_once() const { return std::min(stepped_, habits_.sub_group); }

  void hold_floats() {
    books_.set_owner(kWholeModel);
    const std::int64_t numel = at_once();
    const std::int64_t flat = formats_.sum == kFloatBytes ? 0 : formats_.sum * numel;
    books_.hold(MemoryKind::temp, flat, steps());
    books_.hold(MemoryKind::sharded_grad, kFloatBytes * numel, steps());
    books_.drop(MemoryKind::temp, flat, steps());
  }

  std::vector<std::size_t> uses(const Segments& segments) const {
    std::vector<std::size_t> order;
    const auto add = [&](std::size_t segment, const SegmentWalk::Sections& sections) {
      for (const SegmentWalk::Section& each : sections) {
        if (const auto part = used_by(segment, each.name)) order.push_back(*part);
      }
    };
    const auto walk_of = [&](std::size_t segment) {
      return segment_walk(*segments[segment], false, /*by_operation=*/true, /*forward_too=*/true);
    };
    for (std::size_t i = 0; i < segments.size(); ++i) add(i, walk_of(i).forward);
    for (std::size_t i = segments.size(); i-- > 0;) {
      const SegmentWalk walk = walk_of(i);
      add(i, walk.again);
      add(i, walk.backward);
    }
    return order;
  }

  void add_gradient(std::size_t part, int /*m*/) override { add_to_bucket(part); }

  // What is sent is a copy, in which each rank's pieces are side by side. The result is added to
  // the rank's slice.
  void reduce_bucket() override {
    if (bucket_.empty()) return;
    std::int64_t padded = 0;
    for (const std::size_t part : bucket_) {
      padded += shard_of(numel_of(part)) * recipe_.ranks;
    }
    const bool is_in_place = bucket_.size() == 1 && padded == in_bucket_;
    const bool is_reduced_whole = recipe_.zero.contiguous_gradients && !recipe_.zero.reduce_scatter;
    std::int64_t copies = widens() ? formats_.sum * in_bucket_ : 0;
    if (!is_in_place && !is_reduced_whole) copies += formats_.sum * padded;
    books_.hold(MemoryKind::temp, copies);
    books_.drop(MemoryKind::temp, copies);
    for (const std::size_t part : bucket_) {
      if (!is_copied(part)) {
        books_.drop(MemoryKind::unsharded_grad, gradient_ * numel_of(part));
      }
    }
    bucket_.clear();
    in_bucket_ = 0;
  }

  std::int64_t persistent_ = 0;  // elements of small parameters, which stay whole
  std::optional<LiveParameters> live_;
};

}  // namespace

std::unique_ptr<PartsWalk> zero_shards(const ModelShape& shape, const Segments& segments,
                                       const MemoryOptions& options, Books& books) {
  return std::make_unique<ZeroShards>(shape, segments, options, books);
}

}  // namespace fsdp::paper
