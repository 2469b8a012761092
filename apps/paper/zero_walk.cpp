#include "paper/zero_walk.h"

#include "paper/whole_walk.h"

#include <algorithm>

namespace fsdp::paper {

int zero_stage(Strategy strategy) {
  switch (strategy) {
    case Strategy::fsdp:
      return 3;
    case Strategy::zero2:
      return 2;
    case Strategy::zero1:
      return 1;
    default:
      return 0;
  }
}

std::unique_ptr<PartsWalk> parts_walk(const ModelShape& shape, const Segments& segments,
                                      const MemoryOptions& options, const Schedule& schedule,
                                      Books& books) {
  if (options.framework != Framework::deepspeed) {
    return std::make_unique<WholeWalk>(shape, options, schedule, books);
  }
  if (zero_stage(options.recipe.strategy) < 3) return zero_replicas(shape, options, books);
  return zero_shards(shape, segments, options, books);
}

ZeroWalk::ZeroWalk(const ModelShape& shape, const MemoryOptions& options, Books& books)
    : shape_(shape), options_(options), books_(books), formats_(options.recipe.precision) {}

std::int64_t ZeroWalk::total() const {
  std::int64_t numel = 0;
  for (const WholePart& part : parts_) numel += part.numel;
  return numel;
}

bool ZeroWalk::is_tied() const { return parts_.back().operation != "lm_head"; }

std::optional<std::size_t> ZeroWalk::used_by(std::size_t segment,
                                             std::string_view operation) const {
  if (is_tied() && operation == "lm_head") return 0;
  auto found = std::ranges::lower_bound(parts_, segment, {}, &WholePart::segment);
  while (found != parts_.end() && found->segment == segment && found->operation != operation) {
    ++found;
  }
  if (found == parts_.end() || found->segment != segment) return std::nullopt;
  return static_cast<std::size_t>(found - parts_.begin());
}

// Of a tied table, when both of its gradients have been added.
void ZeroWalk::complete(std::size_t segment, std::size_t /*place*/, std::string_view operation,
                        int m) {
  const bool is_sum = operation == "sum";
  if (is_tied() && (operation == "lm_head" || operation == "embed_tokens")) return;
  const std::optional<std::size_t> part =
      is_sum ? std::optional<std::size_t>(0) : used_by(segment, operation);
  if (!part) return;
  books_.set_owner(kWholeModel);
  books_.relabel(MemoryKind::temp, MemoryKind::unsharded_grad, formats_.param * numel_of(*part));
  add_gradient(*part, m);
}

void ZeroWalk::add_to_bucket(std::size_t part) {
  if (in_bucket_ + numel_of(part) > habits_.reduce_bucket) reduce_bucket();
  if (is_copied(part)) books_.drop(MemoryKind::unsharded_grad, gradient_ * numel_of(part));
  bucket_.push_back(part);
  in_bucket_ += numel_of(part);
}

void ZeroWalk::update(bool is_first) {
  if (is_first) {
    const std::int64_t state = kFloatBytes * recipe_.optimizer.states();
    books_.hold(MemoryKind::optimizer, state * stepped_, steps());
  }
  books_.update(stepped_, is_first, steps());
}

}  // namespace fsdp::paper
