#include "estimate/measured_step.h"

#include "base/check.h"

#include <algorithm>

namespace fsdp::estimate {
namespace {

constexpr double kPicosecond = 1e-12;

double seconds(std::int64_t picoseconds) { return kPicosecond * static_cast<double>(picoseconds); }

}  // namespace

MeasuredStep::MeasuredStep(const EstimatorConfig& config) : run_(run_estimate(config)) {
  spans_ = report::spans_of(run_.record, run_.record.ranks.at(0));
  std::erase_if(spans_, [&](const report::Span& each) { return each.begin < run_.ended.at(0); });
}

const Breakdown& MeasuredStep::at(const std::string& module, nn::CallState state) const {
  const auto& modules = memory().modules;
  const auto found = std::ranges::find(modules, module, &ModuleMemory::name);
  FSDP_CHECK(found != modules.end(), "no module {} was called", module);
  return found->columns.at(static_cast<std::size_t>(state));
}

const Breakdown& MeasuredStep::peak_of_phase(const std::string& phase) const {
  const auto found = std::ranges::find(memory().phases, phase, &PhaseMemory::name);
  FSDP_CHECK(found != memory().phases.end(), "the step has no phase {}", phase);
  return found->peak;
}

std::int64_t MeasuredStep::received_bytes() const {
  std::int64_t total = 0;
  for (const report::Span& each : spans_) {
    if (each.lane == report::Lane::compute || each.phase == Phase::optimizer) continue;
    total += each.nbytes;
  }
  return total;
}

std::int64_t MeasuredStep::reductions() const {
  return std::ranges::count(spans_, Phase::gradient, &report::Span::phase);
}

double MeasuredStep::step() const { return seconds(run_.ended.at(1) - run_.ended.at(0)); }

double MeasuredStep::length(const report::Span& span) { return seconds(span.end - span.begin); }

double MeasuredStep::gather(const std::string& unit) const {
  return length(transfer(unit, Phase::forward));
}

double MeasuredStep::reduction(const std::string& unit) const {
  return length(transfer(unit, Phase::gradient));
}

double MeasuredStep::forward_of(const std::string& first, const std::string& last) const {
  return seconds(computation(last, false).end - transfer(first, Phase::forward).begin);
}

double MeasuredStep::backward_of(const std::string& first, const std::string& last) const {
  return seconds(computation(first, true).end - computation(last, true).begin);
}

double MeasuredStep::pause(const std::string& unit, const std::string& next) const {
  return seconds(computation(next, false).begin - computation(unit, false).end);
}

double MeasuredStep::backward_pace(const std::string& unit, const std::string& next) const {
  return seconds(computation(next, true).begin - computation(unit, true).begin);
}

const report::Span& MeasuredStep::transfer(const std::string& unit, Phase phase) const {
  const auto found = std::ranges::find_if(spans_, [&](const report::Span& each) {
    return each.lane != report::Lane::compute && each.unit == unit && each.phase == phase;
  });
  FSDP_CHECK(found != spans_.end(), "nothing was communicated for {}/{}", unit, name_of(phase));
  return *found;
}

const report::Span& MeasuredStep::computation(const std::string& unit, bool is_backward) const {
  const report::Activity activity =
      is_backward ? report::Activity::backward : report::Activity::forward;
  const auto found = std::ranges::find_if(spans_, [&](const report::Span& each) {
    return each.activity == activity && each.unit == unit;
  });
  FSDP_CHECK(found != spans_.end(), "{} did not compute", unit);
  return *found;
}

}  // namespace fsdp::estimate
