#include "paper/live_parameters.h"

#include "base/check.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

LiveParameters::LiveParameters(std::vector<Parameter> parameters, std::vector<std::size_t> order,
                               const ZeroHabits& habits, Books& books)
    : parameters_(std::move(parameters)),
      order_(std::move(order)),
      habits_(habits),
      books_(books),
      lives_(parameters_.size()) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    lives_[i].is_live = parameters_[i].is_persistent;
  }
}

void LiveParameters::fetch() {
  FSDP_CHECK(next_ < order_.size(), "use {} of an order of {}", next_, order_.size());
  const std::size_t parameter = order_[next_];
  if (!lives_[parameter].is_live) gather({parameter});
  wait(parameter);
  if (lives_[parameter].known_until < static_cast<std::int64_t>(next_)) {
    lives_[parameter].known_until = static_cast<std::int64_t>(queue_++);
  }
  prefetch();
  ++next_;
}

// Up to a number of elements; the last parameter may go beyond it.
void LiveParameters::prefetch() {
  const std::int64_t room = std::min(habits_.live_limit - available_, habits_.prefetch_bucket);
  std::vector<std::size_t> ahead;
  for (std::int64_t numel = 0; queue_ < order_.size() && numel < room; ++queue_) {
    const std::size_t parameter = order_[queue_];
    Life& life = lives_[parameter];
    life.known_until = std::max(life.known_until, static_cast<std::int64_t>(queue_));
    if (life.is_live || std::ranges::find(ahead, parameter) != ahead.end()) continue;
    ahead.push_back(parameter);
    numel += parameters_[parameter].numel;
  }
  if (!ahead.empty()) gather(ahead);
}

// What is gathered alone is gathered in place.
void LiveParameters::gather(const std::vector<std::size_t>& parameters) {
  std::int64_t shards = 0;
  for (const std::size_t each : parameters) shards += parameters_[each].shard;
  books_.hold(MemoryKind::temp, shards);
  auto together = std::make_shared<Gather>();
  together->parameters = parameters;
  together->unused = parameters.size();
  const bool is_apart = habits_.gathers_apart || parameters.size() == 1;
  for (const std::size_t each : parameters) {
    Life& life = lives_[each];
    life.is_live = true;
    available_ += parameters_[each].numel;
    if (is_apart) {
      books_.hold(MemoryKind::unsharded_param, life.nbytes = parameters_[each].gathered);
    } else {
      together->nbytes += parameters_[each].gathered;
      life.gather = together;
    }
  }
  books_.hold(MemoryKind::all_gather, together->nbytes);
  books_.drop(MemoryKind::temp, shards);
}

// The first to be used copies all parameters out of what was gathered.
void LiveParameters::wait(std::size_t parameter) {
  const std::shared_ptr<Gather> gather = std::exchange(lives_[parameter].gather, nullptr);
  if (gather == nullptr) return;
  if (!std::exchange(gather->is_copied, true)) {
    for (const std::size_t each : gather->parameters) {
      books_.hold(MemoryKind::unsharded_param, lives_[each].nbytes = parameters_[each].nbytes);
    }
  }
  if (--gather->unused == 0) books_.drop(MemoryKind::all_gather, gather->nbytes);
}

// Also if a fetch for that use was left out because the parameter is there.
bool LiveParameters::is_used_soon(std::size_t parameter) const {
  if (lives_[parameter].known_until > static_cast<std::int64_t>(next_)) return true;
  std::int64_t distance = 0;
  for (std::size_t i = next_; i < order_.size() && distance < habits_.reuse_distance; ++i) {
    if (order_[i] == parameter) return true;
    distance += parameters_[order_[i]].numel;
  }
  return false;
}

void LiveParameters::release() {
  const std::size_t parameter = order_[next_ - 1];
  if (!parameters_[parameter].is_persistent && !is_used_soon(parameter)) drop(parameter);
}

void LiveParameters::drop(std::size_t parameter) {
  Life& life = lives_[parameter];
  books_.drop(MemoryKind::unsharded_param, std::exchange(life.nbytes, 0));
  life.is_live = false;
  available_ -= parameters_[parameter].numel;
}

void LiveParameters::finish() {
  for (std::size_t i = 0; i < lives_.size(); ++i) {
    wait(i);
    lives_[i].known_until = kNever;
    if (lives_[i].is_live && !parameters_[i].is_persistent) drop(i);
  }
  next_ = queue_ = 0;
  available_ = 0;
}

}  // namespace fsdp::paper
