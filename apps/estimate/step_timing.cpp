#include "estimate/step_timing.h"

#include "tensor/exact_norm.h"

namespace fsdp::estimate {

namespace {

constexpr std::int64_t kCounterBytes = 8 * ExactSquareSum::kCounters;

double real(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

double update_flops(std::string_view optimizer) {
  if (optimizer == "sgd") return 4;
  if (optimizer == "adagrad") return 8;
  if (optimizer == "adamax") return 11;
  if (optimizer == "adadelta") return 16;
  return 15;  // adamw, adam
}

const SegmentTimes& StepTiming::times_of(std::size_t segment) const {
  if (is_block(segment)) return kernels_.block;
  return segment == 0 ? kernels_.embedding : kernels_.head;
}

void StepTiming::run_micro_step(int m, const std::function<void()>& body) {
  if (!is_repeatable()) return body();
  const int group = options_.micro_steps_per_reduction;
  const std::tuple key{additions_of_push(m / group), additions_of_push(m % group),
                       (m + 1) % group == 0};
  const auto known = known_.find(key);
  if (known != known_.end()) return clock_.repeat(known->second);
  const StepTime before = clock_.spent();
  body();
  known_.emplace(key, clock_.spent() - before);
}

void StepTiming::move(TimePart part, double flops, double nbytes, bool on_host, bool is_half) {
  if (on_host) return clock_.compute_on_host(part, nbytes);
  clock_.compute(part, {.flops = flops, .nbytes = nbytes, .is_half = is_half});
}

void StepTiming::add(std::int64_t numel, int count, bool on_host) {
  for (int i = 0; i < count; ++i) {
    move(TimePart::gradients, real(numel), 3 * real(numel * formats_.sum), on_host,
         formats_.sum == 2);
  }
}

void StepTiming::scale(std::int64_t numel, bool on_host) {
  move(TimePart::gradients, real(numel), 2 * real(numel * kFloatBytes), on_host);
}

void StepTiming::fill(TimePart part, std::int64_t numel, std::int64_t element, bool on_host) {
  move(part, 0, real(numel * element), on_host);
}

void StepTiming::square(std::int64_t numel, bool on_host) {
  move(TimePart::optimizer, 2 * real(numel), real(numel * kFloatBytes), on_host);
}

void StepTiming::update(std::int64_t numel, bool is_first, bool on_host) {
  const int states = options_.optimizer_states;
  for (int i = 0; is_first && i < states; ++i) {
    fill(TimePart::optimizer, numel, kFloatBytes, on_host);
  }
  const double by_default = update_flops(states == 2 ? "adamw" : "sgd");
  const double flops = options_.update_flops == 0 ? by_default : options_.update_flops;
  // Parameter, gradient and states are read; parameter and states are written.
  const double elements = states == 2 ? 7 : states == 1 ? 5 : 3;
  move(TimePart::optimizer, flops * real(numel), elements * real(numel * kFloatBytes), on_host);
}

void StepTiming::sum_counters(const GroupShape& group) {
  const std::int64_t nbytes = 2 * kCounterBytes * (group.size - 1) / group.size;
  clock_.wait(TimePart::updates, clock_.start_collective(group, nbytes));
}

}  // namespace fsdp::estimate
