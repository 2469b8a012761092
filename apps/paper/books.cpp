#include "paper/books.h"

#include "tensor/costs.h"
#include "tensor/optimizers.h"

#include <algorithm>
#include <bit>

namespace fsdp::paper {

int held_sums(int leaves) { return std::popcount(static_cast<unsigned>(leaves)); }
int additions_of_push(int leaf) { return std::countr_one(static_cast<unsigned>(leaf)); }
int additions_of_fold(int leaves) { return held_sums(leaves) - 1; }

Books::Books(const MemoryOptions& options)
    : formats_(options.recipe.precision, options.recipe.zero.reductions.compression),
      rank_(options.rank),
      states_(static_cast<std::size_t>(options.recipe.optimizer.states())),
      update_flops_(ops::optimizer_named(options.recipe.optimizer.name).flops),
      has_mean_pass_(options.recipe.has_mean_pass()) {}

void Books::open_bytes(MemorySpace reported, RankPeaks* ranks) {
  has_bytes_ = true;
  reported_ = reported;
  if (ranks != nullptr) in(reported).count_ranks(*ranks);
}

void Books::open_clock(const CostModel& machine, const KernelTimes& kernels) {
  clock_.emplace(machine);
  kernels_ = kernels;
  ranks_per_box_ = machine.ranks_per_box;
}

void Books::hold_own(int owner, MemoryKind kind, std::int64_t nbytes, MemorySpace space) {
  if (owner != kEachRank && space == reported_ && counts_all_ranks()) {
    return reported().ranks()->add_own(owner, nbytes);
  }
  if (is_mine(owner)) hold(kind, nbytes, space);
}

// --------------------------------------------------------------------------------------- the clock

template <class Spend>
void Books::spend(TimePart part, std::string_view what, Spend&& spend) {
  if (!clock_) return;
  const std::int64_t begin = clock_->now();
  spend();
  if (observer_ != nullptr) tell(Span::Stream::compute, part, what, begin, clock_->now());
}

void Books::compute(TimePart part, std::string_view what, const Cost& cost, MemorySpace space) {
  spend(part, what, [&] {
    if (space == MemorySpace::host) return clock_->compute_on_host(part, cost.nbytes);
    clock_->compute(part, cost);
  });
}

void Books::cast(TimePart part, std::int64_t numel, std::int64_t from, std::int64_t to,
                 MemorySpace space) {
  compute(part, "cast", costs::copy(numel * from, numel * to), space);
}

void Books::fill(TimePart part, std::int64_t numel, std::int64_t element, MemorySpace space) {
  compute(part, "zeros", costs::fill(numel, static_cast<std::size_t>(element)), space);
}

void Books::add(std::int64_t numel, int count, MemorySpace space) {
  const Cost cost = costs::add(numel, static_cast<std::size_t>(formats_.sum));
  for (int i = 0; i < count; ++i) compute(TimePart::gradients, "sum", cost, space);
}

void Books::divide_mean(std::int64_t numel, MemorySpace space) {
  if (formats_.widens_sums) cast(TimePart::gradients, numel, formats_.sum, kFloatBytes, space);
  if (!has_mean_pass_) return;
  compute(TimePart::gradients, "mean", costs::scale(numel, kFloatBytes), space);
}

void Books::square(std::int64_t numel, MemorySpace space) {
  compute(TimePart::optimizer, "norm", costs::add_squares(numel), space);
}

void Books::update(std::int64_t numel, bool is_first, MemorySpace space) {
  for (std::size_t i = 0; is_first && i < states_; ++i) {
    fill(TimePart::optimizer, numel, kFloatBytes, space);
  }
  compute(TimePart::optimizer, "update", costs::update(numel, update_flops_, states_, kFloatBytes),
          space);
}

void Books::compute_for(TimePart part, std::int64_t ps, std::string_view what) {
  spend(part, what, [&] { clock_->compute_for(part, ps); });
}

void Books::wait(TimePart part, std::int64_t end) {
  spend(part, owner_.unit, [&] { clock_->wait(part, end); });
}

std::int64_t Books::start_copy(std::int64_t nbytes) {
  if (!clock_) return 0;
  const std::int64_t begin = std::max(clock_->now(), clock_->bus_free());
  const std::int64_t end = clock_->start_copy(nbytes);
  if (observer_ != nullptr) tell(Span::Stream::bus, TimePart::copies, owner_.unit, begin, end);
  return end;
}

const SegmentTimes& Books::times_of(std::size_t segment, std::size_t segments) const {
  if (segment == 0) return kernels_.embedding;
  return segment + 1 < segments ? kernels_.block : kernels_.head;
}

const SegmentTimes& Books::times_of_loss() const { return kernels_.loss; }

GroupShape Books::group_of(int first, int size, int stride) const {
  const int box = ranks_per_box_;
  return {size, box > 0 && first / box != (first + (size - 1) * stride) / box};
}

// ------------------------------------------------------------------------------------------- both

std::int64_t Books::start(std::int64_t WireBytes::*what, CollectiveOp op, std::int64_t numel,
                          std::int64_t element, const GroupShape& group, std::int64_t ready) {
  const std::int64_t nbytes =
      received_bytes(op, numel, static_cast<std::size_t>(element), group.size);
  if (traffic_) *traffic_.*what += nbytes;
  if (!clock_) return 0;
  const std::int64_t begin = std::max({clock_->now(), clock_->channel_free(group), ready});
  const std::int64_t end = clock_->start_collective(group, nbytes, ready);
  if (observer_ == nullptr || group.size == 1) return end;
  const bool is_update = what == &WireBytes::norm || what == &WireBytes::broadcasts;
  const TimePart part = is_update                     ? TimePart::updates
                        : what == &WireBytes::gathers ? TimePart::gathers
                                                      : TimePart::reductions;
  tell(group.is_far ? Span::Stream::far_link : Span::Stream::link, part, owner_.unit, begin, end);
  return end;
}

void Books::add_leaf(MemoryKind kind, std::int64_t numel, int leaf, MemorySpace space, int owner) {
  hold_own(owner, kind, formats_.sum * numel * (1 - additions_of_push(leaf)), space);
  if (is_mine(owner)) add(numel, additions_of_push(leaf), space);
}

void Books::fold_leaves(MemoryKind kind, std::int64_t numel, int leaves, MemorySpace space,
                        int owner) {
  hold_own(owner, kind, -formats_.sum * numel * additions_of_fold(leaves), space);
  if (is_mine(owner)) add(numel, additions_of_fold(leaves), space);
}

// ------------------------------------------------------------------------------------- repetition

Books::Change Books::now() const {
  return {device_.now(), host_.now(),
          counts_all_ranks() ? reported().ranks()->own() : std::vector<std::int64_t>{},
          clock_ ? clock_->spent() : StepTime{}, traffic_.value_or(WireBytes{})};
}

Books::Change Books::change_since(const Change& before) const {
  Change change{device_.change_since(before.device), host_.change_since(before.host), {}, {}, {}};
  if (counts_all_ranks()) {
    change.own = reported().ranks()->own();
    for (std::size_t i = 0; i < change.own.size(); ++i) change.own[i] -= before.own[i];
  }
  if (clock_) change.time = clock_->spent() - before.time;
  if (traffic_) change.traffic = *traffic_ - before.traffic;
  return change;
}

void Books::repeat(const Change& change, std::int64_t times) {
  device_.repeat(change.device, times);
  host_.repeat(change.host, times);
  for (std::size_t i = 0; i < change.own.size(); ++i) {
    if (change.own[i] != 0) reported().ranks()->add_own(static_cast<int>(i), times * change.own[i]);
  }
  if (clock_) clock_->repeat(change.time, times);
  for (std::int64_t i = 0; traffic_ && i < times; ++i) *traffic_ += change.traffic;
}

std::array<std::int64_t, 3> Books::busy_until() const {
  return clock_ ? clock_->busy_until() : std::array<std::int64_t, 3>{};
}

}  // namespace fsdp::paper
