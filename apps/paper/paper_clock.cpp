#include "paper/paper_clock.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

std::string_view name_of(TimePart part) {
  static constexpr std::array<std::string_view, kTimeParts> kNames{
      "forward", "recomputation", "backward", "gradients", "optimizer",
      "gathers", "reductions",    "updates",  "copies"};
  return kNames.at(static_cast<std::size_t>(part));
}

StepTime StepTime::operator-(const StepTime& other) const {
  StepTime result = *this;
  for (std::size_t i = 0; i < kTimeParts; ++i) result.split.ps[i] -= other.split.ps[i];
  result.channels.latency -= other.channels.latency;
  result.channels.transfer -= other.channels.transfer;
  return result;
}

void PaperClock::compute(TimePart part, Cost cost) {
  const std::int64_t begin = clock_.now();
  clock_.compute(cost);
  step_.split[part] += clock_.now() - begin;
}

void PaperClock::compute_for(TimePart part, std::int64_t ps) {
  clock_.wait_until(clock_.now() + ps);
  step_.split[part] += ps;
}

void PaperClock::compute_on_host(TimePart part, double nbytes) {
  const std::int64_t begin = clock_.now();
  clock_.compute_on_host(nbytes);
  step_.split[part] += clock_.now() - begin;
}

std::int64_t PaperClock::start_collective(const GroupShape& group, std::int64_t nbytes,
                                          std::int64_t ready) {
  const CostModel& model = clock_.model();
  const std::int64_t latency =
      (group.size - 1) * (group.is_far ? model.far_alpha_ps : model.alpha_ps);
  const std::int64_t begin = std::max({clock_.now(), clock_.channel_free(group.is_far), ready});
  const std::int64_t end = clock_.start_collective(group.size, nbytes, group.is_far, ready);
  step_.channels.latency += latency;
  step_.channels.transfer += end - begin - latency;
  return end;
}

void PaperClock::wait(TimePart part, std::int64_t end) {
  const std::int64_t begin = clock_.now();
  clock_.wait_until(end);
  step_.split[part] += clock_.now() - begin;
}

void PaperClock::repeat(const StepTime& time, std::int64_t times) {
  for (std::size_t i = 0; i < kTimeParts; ++i) step_.split.ps[i] += times * time.split.ps[i];
  step_.channels.latency += times * time.channels.latency;
  step_.channels.transfer += times * time.channels.transfer;
}

StepTime PaperClock::take() { return std::exchange(step_, {}); }

}  // namespace fsdp::paper
