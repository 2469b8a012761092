// A plan for reading: the front, why the fastest takes what it takes, and what else it could be.
#include "plan/machine.h"
#include "plan/plan.h"
#include "plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::plan {

using paper::TimePart;

namespace {

std::string line_of(const Outcome& outcome) {
  return fmt::format("{:>10}  {:>9}  {}\n", show_time(outcome.step()),
                     show_memory(outcome.memory()), describe(outcome.options));
}

std::vector<std::pair<TimePart, std::int64_t>> parts_of(const Outcome& outcome) {
  std::vector<std::pair<TimePart, std::int64_t>> parts;
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    parts.emplace_back(static_cast<TimePart>(i), outcome.time.split.ps[i]);
  }
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.second > b.second; });
  return parts;
}

std::string shares(const Outcome& outcome, bool waiting) {
  std::string text;
  for (const auto& [part, ps] : parts_of(outcome)) {
    if (ps == 0 || paper::is_waiting(part) != waiting) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", paper::name_of(part),
                        show_share(ps, outcome.step()));
  }
  return text.empty() ? "none" : text;
}

std::int64_t waiting(const Outcome& outcome) {
  std::int64_t all = 0;
  for (const auto& [part, ps] : parts_of(outcome)) all += paper::is_waiting(part) ? ps : 0;
  return all;
}

/// Which term of the time formula binds.
std::string time_bound(const Outcome& outcome) {
  const std::int64_t waits = waiting(outcome);
  const auto& [latency, transfer] = outcome.time.channels;
  if (2 * waits < outcome.step()) {
    return fmt::format("computation binds: {} of the step; a rank waits {} of it",
                       show_share(outcome.step() - waits, outcome.step()),
                       show_share(waits, outcome.step()));
  }
  const auto parts = parts_of(outcome);
  const auto longest =
      std::ranges::find_if(parts, [](const auto& part) { return paper::is_waiting(part.first); });
  return fmt::format("waiting for {} binds, and of it {}: a rank waits {} of the step",
                     paper::name_of(longest->first),
                     latency > transfer ? "the latency of the hops" : "the speed of the link",
                     show_share(waits, outcome.step()));
}

std::string kinds_text(const Outcome& outcome) {
  const Breakdown& bytes = outcome.device;
  std::vector<std::pair<std::int64_t, MemoryKind>> kinds;
  for (std::size_t i = 0; i < bytes.nbytes.size(); ++i) {
    if (bytes.nbytes[i] > 0) kinds.emplace_back(bytes.nbytes[i], static_cast<MemoryKind>(i));
  }
  std::ranges::stable_sort(kinds, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [nbytes, kind] : kinds) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", fsdp::name_of(kind), show_memory(nbytes));
  }
  if (outcome.beside == 0) return text;
  return text + fmt::format("; {} are kept by the allocator, or are outside of it",
                            show_memory(outcome.beside));
}

/// Whether memory stops the next larger micro-batch.
std::string memory_bound(const Plan& plan, Evaluator& evaluator) {
  const Outcome& best = plan.best();
  std::string text = fmt::format("  peak {} of {}: {}\n", show_memory(best.memory()),
                                 show_memory(plan.request.memory), kinds_text(best));
  const std::optional<Outcome> next = larger_micro_batch(plan, evaluator);
  if (!next) return text;
  const bool fits = next->memory() <= plan.request.memory;
  return text + fmt::format("  a micro-batch of {}: {} and {}{}\n", next->options.batch,
                            show_memory(next->memory()), show_time(next->step()),
                            fits ? "" : ", so memory binds it");
}

std::string difference(const Outcome& best, const Outcome& other) {
  const double slower =
      100.0 * static_cast<double>(other.step() - best.step()) / static_cast<double>(best.step());
  const std::int64_t more = other.memory() - best.memory();
  return fmt::format("{:+.2f} % time, {}{} memory", slower, more < 0 ? "-" : "+",
                     show_memory(more < 0 ? -more : more));
}

std::string alternatives_text(const Plan& plan) {
  std::string text;
  for (const Alternative& each : plan.alternatives) {
    text += fmt::format("  {:<14} {:<36}", name_of(each.choice), each.value);
    text += each.index == Alternative::kNone
                ? " nothing fits\n"
                : fmt::format(" {}\n", difference(plan.best(), plan.outcomes[each.index]));
  }
  return text;
}

}  // namespace

std::string plan_text(const Plan& plan, Evaluator& evaluator) {
  const PlanRequest& request = plan.request;
  std::string text = fmt::format(
      "{} ({:.4g} parameters), {} sequences of {} tokens per step\n{} per rank: {}\n"
      "{} configurations, of which {} fit\n",
      request.model_name, static_cast<double>(evaluator.model().parameter_count()),
      request.global_batch, request.base.length_of(evaluator.model()), show_memory(request.memory),
      describe(evaluator.machine()), plan.outcomes.size(), plan.fitting);
  if (!plan.is_feasible()) {
    const Outcome& least = plan.smallest();
    return text + fmt::format("None fits. The least memory is that of\n{}  peak: {}\n",
                              line_of(least), kinds_text(least));
  }
  text += "\nNothing is both faster and smaller than one of these:\n";
  for (const std::size_t index : plan.front) text += line_of(plan.outcomes[index]);
  const Outcome& best = plan.best();
  text += "\nThe fastest: " + describe(best.options) + "\n";
  text += "  " + time_bound(best) + "\n";
  text += "  computing: " + shares(best, false) + "\n";
  text += "  waiting: " + shares(best, true) + "\n";
  const auto& [latency, transfer] = best.time.channels;
  text += fmt::format("  links in use {}: {} transfer, {} latency\n",
                      show_share(latency + transfer, best.step()), show_time(transfer),
                      show_time(latency));
  text += memory_bound(plan, evaluator);
  if (plan.next_best != Alternative::kNone) {
    const Outcome& next = plan.outcomes[plan.next_best];
    text +=
        fmt::format("\nThe next best: {}\n  {}\n", describe(next.options), difference(best, next));
  }
  return text + "\nWith another choice, the fastest that fits:\n" + alternatives_text(plan);
}

}  // namespace fsdp::plan
