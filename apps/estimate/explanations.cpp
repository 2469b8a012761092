#include "estimate/explanations.h"

#include "report/palette.h"
#include "report/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace fsdp::estimate {
namespace {

std::string_view reason_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::sharded_param:
      return "the masters that the optimizer steps: 4 N / shards";
    case MemoryKind::unsharded_param:
      return "gathered units: the one that computes, those gathered ahead, the last one";
    case MemoryKind::sharded_grad:
      return "reduced gradients until the step";
    case MemoryKind::unsharded_grad:
      return "gradients before their reduction";
    case MemoryKind::all_gather:
      return "copies of shards while they are gathered";
    case MemoryKind::reduce_scatter:
      return "results of reductions in flight, and copies for the wire";
    case MemoryKind::activation:
      return "what the tape keeps for backward";
    case MemoryKind::temp:
      return "gradients of activations, and the kernels' scratch";
    case MemoryKind::optimizer:
      return "the optimizer's state: 8 N / shards for AdamW";
    case MemoryKind::buffer:
      return "the tables of rotary positions";
  }
  return "";
}

// Between the units there is only the loss.
std::string holder_of(const Holding& holding) {
  if (!holding.unit.empty()) return holding.unit;
  const bool is_computed =
      holding.kind == MemoryKind::temp || holding.kind == MemoryKind::activation;
  return is_computed ? "the loss" : "(no unit)";
}

}  // namespace

std::string exact(std::int64_t nbytes) { return report::grouped(nbytes) + " B"; }

double percent_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string where_is_the_peak(const Estimate& estimate, const ByteScale& scale) {
  const int index = estimate.run.peak_iteration();
  const IterationMemory& iteration = estimate.run.iterations[static_cast<std::size_t>(index)];
  const PhaseMemory& phase = iteration.highest_phase();
  std::string text =
      fmt::format("iteration {}, {}{}", index, phase.name,
                  phase.micro_step < 0 ? "" : fmt::format(" of micro-step {}", phase.micro_step));
  if (!phase.module.empty()) {
    text += fmt::format(", while the {} of {} runs", phase.is_backward ? "backward" : "forward",
                        phase.module);
  }
  const Holding& last = estimate.last;
  if (last.nbytes == 0) return text + "; nothing was allocated\n";
  text += fmt::format("; it is reached by {} of {}{}\n", exact(last.nbytes), name_of(last.kind),
                      last.unit.empty() ? "" : " for " + last.unit);
  std::vector<MemoryKind> kinds(report::kStack.begin(), report::kStack.end());
  std::ranges::stable_sort(kinds, std::greater<>(),
                           [&](MemoryKind kind) { return phase.peak[kind]; });
  TextTable table({"why", scale.unit().data(), "%", "<what it is"});
  for (const MemoryKind kind : kinds) {
    if (!scale.shows(phase.peak[kind])) continue;
    table.add({std::string(name_of(kind)), scale.show(phase.peak[kind]),
               fmt::format("{:.1f}", percent_of(phase.peak[kind], phase.peak.total())),
               std::string(reason_of(kind))});
  }
  return text + table.text();
}

std::string hot_spots(const Estimate& estimate, const ByteScale& scale) {
  constexpr std::size_t kShown = 10;
  TextTable table({"held at the peak by", "<kind", std::string(scale.unit())});
  for (std::size_t i = 0; i < std::min(kShown, estimate.at_peak.size()); ++i) {
    const Holding& each = estimate.at_peak[i];
    if (!scale.shows(each.nbytes)) continue;
    table.add({holder_of(each), std::string(name_of(each.kind)), scale.show(each.nbytes)});
  }
  std::string text = table.text();
  // Of modules inside of units: where the local peak is.
  const IterationMemory& iteration = estimate.run.iterations.back();
  std::vector<const ModuleMemory*> inner;
  for (const ModuleMemory& each : iteration.modules) {
    if (!each.is_unit) inner.push_back(&each);
  }
  constexpr auto kBefore = static_cast<std::size_t>(nn::CallState::before_pre_backward);
  const auto rise = [](const ModuleMemory* each) {
    return each->columns[kPeakBackward].total() - each->columns[kBefore].total();
  };
  std::ranges::stable_sort(inner, std::greater<>(), rise);
  inner.resize(std::min<std::size_t>(inner.size(), 3));
  for (const ModuleMemory* each : inner) {
    if (!scale.shows(rise(each))) continue;
    text += fmt::format("backward of {} rises by {} above what was held before it\n", each->name,
                        scale.with_unit(rise(each)));
  }
  return text;
}

std::string communication_buffers(const Estimate& estimate, const ByteScale& scale) {
  std::vector<std::string> header{"highest by itself, " + std::string(scale.unit())};
  for (std::size_t i = 0; i < estimate.run.iterations.size(); ++i) {
    header.push_back(fmt::format("iter {}", i));
  }
  TextTable table(header);
  bool has_rows = false;
  for (const MemoryKind kind : {MemoryKind::all_gather, MemoryKind::unsharded_param,
                                MemoryKind::reduce_scatter, MemoryKind::unsharded_grad}) {
    std::vector<std::string> row{std::string(name_of(kind))};
    bool is_shown = false;
    for (const IterationMemory& each : estimate.run.iterations) {
      row.push_back(scale.show(each.highest[kind]));
      is_shown = is_shown || scale.shows(each.highest[kind]);
    }
    if (!is_shown) continue;
    table.add(row);
    has_rows = true;
  }
  return has_rows ? table.text() : "none\n";
}

std::string describe_savings(const Estimate& estimate, const ByteScale& scale) {
  if (estimate.savings.empty()) return "no single change of the configuration lowers the peak\n";
  TextTable table({"one change", "then " + std::string(scale.unit()), "saves", "<because"});
  for (const Saving& each : estimate.savings) {
    table.add({each.change, scale.show(each.peak), scale.show(each.saved), each.meaning});
  }
  return table.text();
}

}  // namespace fsdp::estimate
