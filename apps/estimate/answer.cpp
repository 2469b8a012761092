#include "estimate/answer.h"

#include "estimate/estimate.h"
#include "estimate/explanations.h"
#include "estimate/text_table.h"
#include "paper/memory_formula.h"
#include "plan/choices.h"
#include "report/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdp::estimate {
namespace {

/// In the largest unit of which there are ten.
std::string own_unit(std::int64_t nbytes) {
  return nbytes == 0 ? "-" : ByteScale(nbytes).with_unit(nbytes);
}

std::string memory_line(const Answer& answer) {
  if (answer.is_given) return own_unit(answer.memory) + ", as --memory says";
  return own_unit(answer.memory) + ", what a card of 80 GB has (H100, A100); --memory says another";
}

std::string verdict(const Answer& answer) {
  const std::int64_t left = answer.memory - answer.needed();
  const std::string margin =
      answer.margin == 0 ? "" : fmt::format(", with a margin of {:.0f} %", 100 * answer.margin);
  if (answer.fits()) {
    return fmt::format("fits{}: {} are left, {:.0f} %", margin, own_unit(left),
                       percent_of(left, answer.memory));
  }
  if (left >= 0) {
    return fmt::format("does NOT fit{}: only {} are left, {:.0f} %", margin, own_unit(left),
                       percent_of(left, answer.memory));
  }
  return fmt::format("does NOT fit: {} are missing", own_unit(-left));
}

std::string reached(const Estimate& estimate) {
  const EstimateRun& run = estimate.run;
  const int index = run.peak_iteration();
  const PhaseMemory& phase = run.iterations[static_cast<std::size_t>(index)].highest_phase();
  std::string text = fmt::format("iteration {}, {}", index, phase.name);
  if (phase.micro_step >= 0) text += fmt::format(" of micro-step {}", phase.micro_step);
  if (!phase.module.empty()) text += " in " + phase.module;
  std::vector<MemoryKind> kinds(report::kStack.begin(), report::kStack.end());
  std::ranges::stable_sort(kinds, std::greater<>(),
                           [&](MemoryKind kind) { return phase.peak[kind]; });
  kinds.resize(3);
  for (const MemoryKind kind : kinds) {
    if (phase.peak[kind] == 0) continue;
    text += fmt::format("{}{} {:.0f} %", kind == kinds.front() ? ": " : ", ", name_of(kind),
                        percent_of(phase.peak[kind], phase.peak.total()));
  }
  return text;
}

std::string remedy_line(const Answer& answer, const EstimatorConfig& config) {
  if (answer.fits()) return "nothing has to change";
  if (!answer.remedy) {
    return "no change or pair of changes is enough that leaves the training as it is";
  }
  return fmt::format("{}{} (peak then {} active, {} reserved)", config.command,
                     answer.remedy->options, own_unit(answer.remedy->peak),
                     own_unit(answer.remedy->reserved));
}

}  // namespace

std::string training_of(const EstimatorConfig& config) {
  return fmt::format("{}, sequences of {} tokens: {}", config.train.model_name(),
                     config.train.sequence_length(), plan::describe(memory_options(config)));
}

Answer answer_of(const EstimatorConfig& config, const EstimateRun& run) {
  Answer answer;
  answer.active = run.allocator.peak_active;
  answer.reserved = run.allocator.peak_reserved;
  answer.outside = config.framework == paper::Framework::unshard ? 0 : paper::kOutsideBytes;
  answer.margin = config.margin;
  if (config.memory > 0) {
    answer.memory = static_cast<std::int64_t>(config.memory);
    answer.is_given = true;
  }
  if (answer.fits()) return answer;
  const double room = static_cast<double>(answer.memory) / (1 + config.margin);
  answer.remedy = remedy_of(config, static_cast<std::int64_t>(room) - answer.outside,
                            answer.reserved - answer.active);
  return answer;
}

std::string to_text(const Answer& answer, const Estimate& estimate) {
  const EstimatorConfig& config = estimate.config;
  std::string peak =
      fmt::format("{} active, {} reserved", own_unit(answer.active), own_unit(answer.reserved));
  if (answer.outside > 0) {
    peak += fmt::format("; outside of the allocator about {} more", own_unit(answer.outside));
  }
  std::string text;
  const std::pair<const char*, std::string> lines[] = {
      {"framework", fmt::format("{}: {}", paper::name_of(config.framework),
                                paper::meaning_of(config.framework))},
      {"peak", std::move(peak)},
      {"memory", memory_line(answer)},
      {"verdict", verdict(answer)},
      {"reached", reached(estimate)},
      {"to fit", remedy_line(answer, config)},
      {"training", training_of(config)}};
  for (const auto& [name, line] : lines) text += fmt::format("{:<11}{}\n", name, line);
  return text;
}

}  // namespace fsdp::estimate
