#include "estimate/whole_gradients.h"

#include <bit>

namespace fsdp::estimate {

namespace {

constexpr MemoryKind kKind = MemoryKind::unsharded_grad;

}  // namespace

int held_sums(int leaves) { return std::popcount(static_cast<unsigned>(leaves)); }

void push_leaf(Ledger& ledger, MemoryKind from, MemoryKind to, std::int64_t nbytes, int leaf) {
  ledger.drop(from, nbytes);
  ledger.hold(to, nbytes * more_leaves(leaf));
}

int more_leaves(int leaf) { return held_sums(leaf + 1) - held_sums(leaf); }

int folded_leaves(int leaves) { return held_sums(leaves) - 1; }

void fold_leaves(Ledger& ledger, MemoryKind kind, std::int64_t nbytes, int leaves) {
  ledger.drop(kind, nbytes * folded_leaves(leaves));
}

std::int64_t numel_of(const std::vector<WholePart>& parts) {
  std::int64_t numel = 0;
  for (const WholePart& part : parts) numel += part.numel;
  return numel;
}

std::vector<std::vector<WholePart>> ddp_buckets(const std::vector<WholePart>& parts,
                                                const MemoryOptions& options) {
  const std::int64_t element = Formats(options.mixed_precision).param;
  std::vector<std::vector<WholePart>> buckets;
  std::int64_t nbytes = 0;  // of the last bucket
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (buckets.empty() || nbytes + element * part->numel > options.bucket_bytes) {
      buckets.emplace_back();
      nbytes = 0;
    }
    nbytes += element * part->numel;
    buckets.back().push_back(*part);
  }
  return buckets;
}

WholeGradients::WholeGradients(const std::vector<WholePart>& parts, const MemoryOptions& options,
                               Ledger& ledger)
    : options_(options),
      formats_(options.mixed_precision, options.zero.reductions.compression),
      ledger_(ledger),
      numel_(numel_of(parts)),
      is_single_(options.placement == Placement::single) {
  const bool is_zero2 = options.placement == Placement::zero2;
  if (is_zero2 || options.placement == Placement::zero1) {
    owned_parts_.emplace(parts, options, ledger);
  }
  if (is_zero2) {
    gradients_.emplace(parts, options, ledger);
    return;
  }
  if (is_single_) {
    for (const WholePart& part : parts) buckets_.push_back({part.numel, 1, 0});
    return;
  }
  for (const std::vector<WholePart>& bucket : ddp_buckets(parts, options)) {
    buckets_.emplace_back();
    for (const WholePart& part : bucket) put(part);
  }
}

void WholeGradients::put(const WholePart& part) {
  buckets_.back().numel += part.numel;
  ++buckets_.back().parts;
  if (places_.size() <= part.segment) places_.resize(part.segment + 1);
  places_[part.segment].push_back({part.operation, buckets_.size() - 1});
}

void WholeGradients::begin_micro_step() {
  if (gradients_) return gradients_->begin_micro_step();
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    if (!is_single_) ledger_.hold(kKind, formats_.param * bucket.numel);
    bucket.missing = bucket.parts;
  }
}

void WholeGradients::complete(std::size_t segment, std::string_view operation, int m) {
  if (is_single_) return;
  if (gradients_) return gradients_->complete(segment, operation, m);
  if (segment >= places_.size()) return;
  for (const Place& place : places_[segment]) {
    if (place.operation == operation) --buckets_[place.bucket].missing;
  }
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) close(buckets_[next_++], m);
}

// The gradient becomes a leaf of the sums: a copy, if they have another format. What travels is a
// copy, too, if it is compressed.
void WholeGradients::close(const Bucket& bucket, int m) {
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (formats_.casts_gradients) {
    ledger_.replace(kKind, formats_.param * bucket.numel, nbytes);
  }
  if (group() > 1) {
    push_leaf(ledger_, kKind, kKind, nbytes, m % group());
    if ((m + 1) % group() != 0) return;
    fold_leaves(ledger_, kKind, nbytes, group());
  }
  if (formats_.compresses) ledger_.replace(kKind, nbytes, formats_.wire * bucket.numel);
}

// What was reduced becomes a leaf of the sums.
void WholeGradients::finish(const Bucket& bucket, int m) {
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (formats_.compresses) ledger_.replace(kKind, formats_.wire * bucket.numel, nbytes);
  push_leaf(ledger_, kKind, kKind, nbytes, m / group());
}

void WholeGradients::end_micro_step(int m) {
  if (is_single_) {
    for (const Bucket& bucket : buckets_) {
      close(bucket, m);
      if ((m + 1) % group() == 0) finish(bucket, m);
    }
    return;
  }
  if (gradients_) gradients_->end_micro_step(m);
  if ((m + 1) % group() == 0) {
    for (const Bucket& bucket : buckets_) finish(bucket, m);
  }
  if (m + 1 < options_.micro_steps) begin_micro_step();
}

void WholeGradients::finish() {
  if (gradients_) return gradients_->finish();
  for (const Bucket& bucket : buckets_) {
    fold_leaves(ledger_, kKind, formats_.sum * bucket.numel, options_.micro_steps / group());
    if (!formats_.widens_sums) continue;
    ledger_.replace(kKind, formats_.sum * bucket.numel, kFloatBytes * bucket.numel);
  }
}

void WholeGradients::zero() {
  if (gradients_) return gradients_->zero();
  for (const Bucket& bucket : buckets_) ledger_.drop(kKind, kFloatBytes * bucket.numel);
}

void WholeGradients::make_state(int tensors) {
  if (owned_parts_) return owned_parts_->make_state(kFloatBytes * tensors);
  ledger_.hold(MemoryKind::optimizer, kFloatBytes * tensors * numel_);
}

void WholeGradients::broadcast() {
  if (owned_parts_) owned_parts_->broadcast();
}

}  // namespace fsdp::estimate
