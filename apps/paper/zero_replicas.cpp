// Stages 0 to 2 of ZeRO: every rank holds all parameters (DeepSpeed's stage_1_and_2.py,
// bf16_optimizer.py and fused_optimizer.py).
#include "paper/zero_walk.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

namespace {

constexpr std::int64_t kAllReduced = 500'000'000;  // elements at a time, of whole gradients

class ZeroReplicas final : public ZeroWalk {
 public:
  ZeroReplicas(const ModelShape& shape, const MemoryOptions& options, Books& books)
      : ZeroWalk(shape, options, books), stage_(zero_stage(recipe_.strategy)) {
    const std::int64_t ranks = recipe_.ranks, aligned = 2 * ranks, numel = total();
    padded_ = stage_ == 0 ? numel : (numel + aligned - 1) / aligned * aligned;
    partition_ = padded_ / ranks;
    stepped_ = stage_ == 0 ? numel : partition_;
    for (const WholePart& part : parts_) largest_ = std::max(largest_, part.numel);
    sums_whole_ = stage_ == 1 && widens() && !is_offloaded() &&
                  recipe_.precision.param_dtype_for(DType::float32) == DType::bfloat16;
    if (stage_ == 1 && widens() && !sums_whole_) gradient_ = kFloatBytes;
    if (stage_ > 0) find_owners();
  }

  void hold_parameters() override {
    books_.set_owner(kWholeModel);
    books_.hold(MemoryKind::unsharded_param, formats_.param * padded_);
    if (stage_ == 0) {
      if (formats_.casts_params) books_.hold(MemoryKind::unsharded_param, kFloatBytes * padded_);
      return;
    }
    books_.hold(MemoryKind::sharded_param, kFloatBytes * partition_, steps());
    if (sums_whole_) books_.hold(MemoryKind::unsharded_grad, kFloatBytes * padded_);
    if (!is_offloaded()) return;
    books_.hold(MemoryKind::buffer, formats_.param * largest_);  // through which gradients go
    books_.hold(MemoryKind::buffer, formats_.param * (largest_ + partition_), steps());
    books_.hold(MemoryKind::sharded_grad, kFloatBytes * partition_, steps());
  }

  void end_micro_step(int m) override {
    books_.set_owner(kWholeModel);
    if (stage_ == 2) {
      reduce_bucket();
      if (widens() && is_last(m)) own_all();
      if (m > 0 && !widens()) drop_owned();  // added to those of the micro-steps before
      if (!widens())
        owned_before_ = std::exchange(owned_, std::vector<std::int64_t>(owned_.size()));
      return drop_bucket_buffers();
    }
    if (sums_whole_) {
      books_.hold(MemoryKind::temp, kFloatBytes * largest_);
      books_.drop(MemoryKind::temp, kFloatBytes * largest_);
    }
    if (!is_last(m)) return;
    if (stage_ == 0 || sums_whole_) return all_reduce();
    for (std::size_t i = 0; i < parts_.size() && !habits_.overlaps; ++i) add_to_bucket(i);
    reduce_bucket();
    books_.drop(MemoryKind::unsharded_grad, std::exchange(left_, 0));
    owned_before_ = std::exchange(owned_, std::vector<std::int64_t>(owned_.size()));
    drop_bucket_buffers();
  }

  void finish_gradients() override {
    books_.set_owner(kWholeModel);
    const std::int64_t floats = kFloatBytes * stepped_;
    if (stage_ == 0) {
      if (!formats_.casts_params) return;
      books_.hold(MemoryKind::temp, floats);  // one by one, then flat
      books_.hold(MemoryKind::unsharded_grad, floats);
      books_.drop(MemoryKind::temp, floats);
      return books_.drop(MemoryKind::unsharded_grad, formats_.param * stepped_);
    }
    if (sums_whole_ || is_offloaded() || is_compact()) return;
    const std::int64_t flat = gradient_ * partition_;
    books_.hold(MemoryKind::temp, flat);
    if (gradient_ != kFloatBytes) books_.hold(MemoryKind::sharded_grad, floats);
    books_.drop(MemoryKind::temp, flat);
    if (gradient_ == kFloatBytes) books_.hold(MemoryKind::sharded_grad, floats);
    owned_ = std::exchange(owned_before_, {});
    drop_owned();
  }

  void zero_grad() override {
    books_.set_owner(kWholeModel);
    if (stage_ == 0) return books_.drop(MemoryKind::unsharded_grad, kFloatBytes * stepped_);
    if (sums_whole_) return books_.drop(MemoryKind::unsharded_grad, formats_.param * total());
    if (is_compact()) return drop_owned();
    if (!is_offloaded()) books_.drop(MemoryKind::sharded_grad, kFloatBytes * stepped_);
  }

 private:
  /// A rank's slice of the sums is made in float32 at once.
  bool is_compact() const { return stage_ == 2 && widens(); }
  bool has_buckets() const { return stage_ > 0 && !sums_whole_; }

  // A rank's slice of the flat parameters begins and ends anywhere in a parameter. The gradients
  // that it copies out of buckets are whole.
  void find_owners() {
    const auto ranks = static_cast<std::size_t>(recipe_.ranks);
    owners_.resize(parts_.size());
    touched_.resize(ranks);
    owned_.resize(ranks);
    std::vector<std::size_t> order;
    const bool is_in_turn = recipe_.zero.partition == optim::Partition::round_robin;
    const std::size_t stride = is_in_turn ? ranks : 1;
    for (std::size_t first = 0; first < stride; ++first) {
      for (std::size_t i = first; i < parts_.size(); i += stride) order.push_back(i);
    }
    std::int64_t begin = 0;
    for (const std::size_t part : order) {
      const std::int64_t end = begin + numel_of(part);
      owners_[part] = {begin / partition_, (end - 1) / partition_};
      for (std::int64_t rank = owners_[part].first; rank <= owners_[part].second; ++rank) {
        touched_[static_cast<std::size_t>(rank)] += numel_of(part);
      }
      begin = end;
    }
  }

  void add_gradient(std::size_t part, int m) override {
    const std::int64_t made = formats_.param * numel_of(part), kept = gradient_ * numel_of(part);
    if (has_buckets() && !std::exchange(has_buffers_, true)) {
      books_.hold(MemoryKind::reduce_scatter, buffers());
    }
    if (stage_ == 2) return add_to_bucket(part);
    if (gradient_ != formats_.param) {
      books_.hold(m == 0 ? MemoryKind::unsharded_grad : MemoryKind::temp, kept);
      if (m > 0) books_.drop(MemoryKind::temp, kept);
      books_.drop(MemoryKind::unsharded_grad, made);
    } else if (m > 0) {
      books_.drop(MemoryKind::unsharded_grad, made);  // added to that of the micro-step before
    }
    if (has_buckets() && habits_.overlaps && is_last(m)) add_to_bucket(part);
  }

  // What is reduced is a copy, unless it is all of one owner.
  void reduce_bucket() override {
    if (bucket_.empty()) return;
    std::int64_t copies = 0;
    std::pair<std::int64_t, std::int64_t> all = owners_[bucket_.front()];
    for (const std::size_t part : bucket_) {
      all = {std::min(all.first, owners_[part].first), std::max(all.second, owners_[part].second)};
    }
    const bool is_divided = recipe_.zero.reduce_scatter && all.first != all.second;
    if (is_divided || !recipe_.zero.contiguous_gradients) copies += gradient_;
    if (formats_.sum != gradient_) copies += formats_.sum;
    books_.hold(MemoryKind::temp, copies * in_bucket_);
    for (const std::size_t part : bucket_) settle(part);
    books_.drop(MemoryKind::temp, copies * in_bucket_);
    bucket_.clear();
    in_bucket_ = 0;
  }

  // The owners copy a reduced gradient out of its bucket.
  void settle(std::size_t part) {
    const auto [first, last] = owners_[part];
    const std::int64_t nbytes = gradient_ * numel_of(part);
    const bool is_apart = !is_copied(part);
    for (std::int64_t rank = first; rank <= last; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (is_compact() || recipe_.zero.contiguous_gradients) {
        if (owned_[r] == 0) own(r);
      } else {
        hold_owned(r, nbytes);
      }
    }
    if (!is_apart) return;
    const bool waits = stage_ == 1 && recipe_.zero.contiguous_gradients;
    if (waits) {
      left_ += nbytes;
    } else {
      books_.drop(MemoryKind::unsharded_grad, nbytes);
    }
  }
  void own(std::size_t rank) {
    hold_owned(rank, is_compact() ? kFloatBytes * partition_ : gradient_ * touched_[rank]);
  }
  void own_all() {
    for (std::size_t rank = 0; rank < owned_.size(); ++rank) {
      if (owned_[rank] == 0) own(rank);
    }
  }
  void hold_owned(std::size_t rank, std::int64_t nbytes) {
    if (is_offloaded() && !is_compact()) return;  // copied to the host at once
    owned_[rank] += nbytes;
    books_.hold_own(static_cast<int>(rank), MemoryKind::sharded_grad, nbytes);
  }
  void drop_owned() {
    for (std::size_t rank = 0; rank < owned_.size(); ++rank) {
      const std::int64_t nbytes = std::exchange(owned_[rank], 0);
      books_.hold_own(static_cast<int>(rank), MemoryKind::sharded_grad, -nbytes);
    }
  }

  std::int64_t buffers() const { return bucket_bytes() * (habits_.overlaps ? 2 : 1); }
  void drop_bucket_buffers() {
    if (std::exchange(has_buffers_, false)) books_.drop(MemoryKind::reduce_scatter, buffers());
  }

  void all_reduce() {
    const std::int64_t element = sums_whole_ ? kFloatBytes : formats_.param;
    const std::int64_t copies = element + (formats_.sum == element ? 0 : formats_.sum);
    std::int64_t numel = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      numel += numel_of(i);
      if (numel <= kAllReduced && i + 1 < parts_.size()) continue;
      books_.hold(MemoryKind::temp, copies * numel);
      books_.drop(MemoryKind::temp, copies * numel);
      numel = 0;
    }
  }

  int stage_;
  std::int64_t padded_, partition_, largest_ = 0;
  bool sums_whole_;  // into one float32 tensor of the whole model (BF16_Optimizer)
  bool has_buffers_ = false;
  std::int64_t left_ = 0;  // bytes of gradients that were reduced apart from the bucket
  std::vector<std::pair<std::int64_t, std::int64_t>> owners_;  // of each part, first and last
  std::vector<std::int64_t> touched_;                          // elements of parts, by rank
  std::vector<std::int64_t> owned_, owned_before_;             // bytes of gradients, by rank
};

}  // namespace

std::unique_ptr<PartsWalk> zero_replicas(const ModelShape& shape, const MemoryOptions& options,
                                         Books& books) {
  return std::make_unique<ZeroReplicas>(shape, options, books);
}

}  // namespace fsdp::paper
