// An estimate as text, section by section.
#include "comm/processes/launch.h"
#include "estimate/estimate.h"
#include "estimate/explanations.h"
#include "estimate/text_table.h"
#include "estimate/zero_states.h"
#include "report/palette.h"
#include "report/units.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::estimate {
namespace {

std::string heading(const std::string& title) { return "\n" + title + "\n"; }

std::string placement_of(const config::TrainConfig& config) {
  const optim::Recipe& recipe = config.recipe;
  if (recipe.replicas == 1) return name_of(recipe.strategy);
  return fmt::format("{}, {} replicas of {} shards", name_of(recipe.strategy), recipe.replicas,
                     recipe.shards());
}

std::string describe_mode(const EstimatorConfig& config) {
  if (config.framework != paper::Framework::unshard) {
    return "mode paper: the rules of the framework are walked through, operation by operation\n";
  }
  if (!config.is_real) return "mode fake: bytes are counted, none are allocated\n";
  return fmt::format("mode real: ranks are {}, with bytes\n",
                     processes::launched() ? "processes" : "threads");
}

std::string describe_config(const Estimate& estimate) {
  const config::TrainConfig& config = estimate.config.train;
  std::string text = fmt::format("{}: {}, {} parameters\n", config.source, config.model_name(),
                                 report::grouped(estimate.run.parameters));
  text +=
      fmt::format("strategy {}, rank {} of {}, {} micro-batch(es) of {} sequences of {} tokens\n",
                  placement_of(config), estimate.config.rank, config.recipe.ranks,
                  config.micro_batches() / config.recipe.ranks, config.training.local_batch_size,
                  config.sequence_length());
  text += describe_mode(estimate.config);
  for (const std::string& warning : estimate.config.warnings) text += "warning: " + warning + "\n";
  if (!config.origins.empty()) text += heading("Effective configuration");
  TextTable table({"key", "<value", "<given in"});
  for (const auto& [key, origin] : config.origins) {
    table.add({key, config.settings.at(key), origin});
  }
  return text + (config.origins.empty() ? "" : table.text());
}

std::string describe_order(const Estimate& estimate, const ByteScale& scale) {
  TextTable table({"made, in order", "held after " + std::string(scale.unit()), "highest so far"});
  for (const Stage& stage : estimate.run.stages) {
    table.add({stage.name, scale.show(stage.held), scale.show(stage.highest)});
  }
  return table.text();
}

std::string peak_table(const Estimate& estimate, const ByteScale& scale) {
  std::vector<std::string> header{"peak memory, " + std::string(scale.unit())};
  const auto& iterations = estimate.run.iterations;
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    header.push_back(fmt::format("iter {}", i));
    header.emplace_back("%");
  }
  TextTable table(header);
  const auto add = [&](const std::string& name, auto bytes_of) {
    std::vector<std::string> row{name};
    for (const IterationMemory& each : iterations) {
      const std::int64_t nbytes = bytes_of(each.peak);
      row.push_back(scale.show(nbytes));
      row.push_back(fmt::format("{:.1f}", percent_of(nbytes, each.peak.total())));
    }
    table.add(row);
  };
  for (const MemoryKind kind : report::kStack) {
    const bool is_shown = std::ranges::any_of(
        iterations, [&](const IterationMemory& each) { return scale.shows(each.peak[kind]); });
    if (!is_shown) continue;
    add(std::string(name_of(kind)), [&](const Breakdown& peak) { return peak[kind]; });
  }
  table.rule();
  add("total", [](const Breakdown& peak) { return peak.total(); });
  std::string text = table.text();
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    const IterationMemory& each = iterations[i];
    text += fmt::format("iter {}: peak {}", i, exact(each.peak.total()));
    if (each.host_peak.total() > 0) text += fmt::format(", host {}", exact(each.host_peak.total()));
    text +=
        fmt::format("; OPTIMIZER {} before, {} after", exact(each.before[MemoryKind::optimizer]),
                    exact(each.after[MemoryKind::optimizer]));
    if (each.learning_rate) text += fmt::format("; learning rate {:.6g}", *each.learning_rate);
    text += '\n';
  }
  return text;
}

std::string phase_table(const Estimate& estimate, const ByteScale& scale) {
  TextTable table({"peak of a phase, " + std::string(scale.unit()), "iter", "peak", "TEMP",
                   "ACTIVATION", "<in module"});
  for (std::size_t i = 0; i < estimate.run.iterations.size(); ++i) {
    for (const PhaseMemory& phase : estimate.run.iterations[i].phases) {
      const bool is_late = phase.micro_step > 0;  // all micro-steps are much alike
      if (is_late) continue;
      table.add({phase.name, std::to_string(i), scale.show(phase.peak.total()),
                 exact(phase.peak[MemoryKind::temp]),
                 scale.show(phase.peak[MemoryKind::activation]),
                 phase.module.empty() ? "-" : phase.module});
    }
  }
  return table.text();
}

/// The first two, the last two, and the highest; all if there are few.
std::vector<const ModuleMemory*> shown_modules(const IterationMemory& iteration, bool all) {
  std::vector<const ModuleMemory*> units;
  for (const ModuleMemory& each : iteration.modules) {
    if (each.is_unit) units.push_back(&each);
  }
  if (all || units.size() <= 7) return units;
  const auto highest_of = [](const ModuleMemory* each) {
    return std::max(each->columns[kPeakForward].total(), each->columns[kPeakBackward].total());
  };
  const ModuleMemory* highest = *std::ranges::max_element(units.begin() + 1, units.end(), {},
                                                          highest_of);  // the root is first
  std::vector<const ModuleMemory*> shown(units.begin(), units.begin() + 4);
  shown.insert(shown.end(), units.end() - 2, units.end());
  if (std::ranges::find(shown, highest) == shown.end()) shown.insert(shown.end() - 2, highest);
  return shown;
}

std::string module_table(const Estimate& estimate, const ByteScale& scale, bool all) {
  const IterationMemory& iteration = estimate.run.iterations.back();
  std::vector<std::string> header{fmt::format("module, {}", scale.unit())};
  for (std::size_t i = 0; i < kColumns; ++i) header.emplace_back(name_of_column(i));
  TextTable table(header);
  for (const ModuleMemory* module : shown_modules(iteration, all)) {
    std::vector<std::string> total{module->name};
    for (std::size_t i = 0; i < kColumns; ++i) {
      total.push_back(module->is_seen[i] ? scale.show(module->columns[i].total()) : "none");
    }
    table.rule();
    table.add(total);
    for (const MemoryKind kind : report::kStack) {
      std::vector<std::string> row{"  " + std::string(name_of(kind))};
      bool is_shown = false;
      for (std::size_t i = 0; i < kColumns; ++i) {
        row.push_back(module->is_seen[i] ? scale.show(module->columns[i][kind]) : "none");
        is_shown = is_shown || scale.shows(module->columns[i][kind]);
      }
      if (is_shown) table.add(row);
    }
  }
  return table.text();
}

std::string summary_lines(const Estimate& estimate, const ByteScale& scale) {
  const AllocatorCounts& counts = estimate.run.allocator;
  const std::int64_t most = estimate.run.tracker_max();
  std::string text = fmt::format("peak active: {} | peak reserved: {} | num_retries: {}\n",
                                 scale.with_unit(counts.peak_active),
                                 scale.with_unit(counts.peak_reserved), counts.retries);
  text += fmt::format("Tracker Max: {}\n", scale.with_unit(most));
  text += fmt::format("Tracker Accuracy: {:.2f}{}\n", estimate.run.tracker_accuracy(),
                      most == counts.peak_active ? " (equal)" : "");
  text += fmt::format(
      "exactly: active {} (of which {} are the kernels' scratch), reserved - active {} "
      "(fragmentation), tracker {}\n",
      exact(counts.peak_active), exact(counts.scratch), exact(counts.fragmentation()), exact(most));
  text += fmt::format("the log of {} events {} the same peak\n",
                      report::grouped(std::ssize(estimate.run.record.ranks[0].memory)),
                      estimate.replays ? "replays to" : "DOES NOT replay to");
  return text;
}

std::string formula_lines(const Estimate& estimate) {
  const SecondOpinion& opinion = estimate.opinion;
  std::string text;
  for (std::size_t i = 0; i < opinion.peaks.size(); ++i) {
    text += fmt::format("iter {}: the formula says {}", i, exact(opinion.peaks[i].total()));
    if (i < opinion.host_peaks.size()) {
      text += fmt::format(", host {}", exact(opinion.host_peaks[i].total()));
    }
    text += '\n';
  }
  if (!opinion.is_comparable) {
    return text + "not compared: " +
           (estimate.config.granularity != 1 || estimate.config.train.training.device != "cpu"
                ? "the formula does not round sizes\n"
                : "the run ended early\n");
  }
  if (opinion.difference.empty()) {
    return text + fmt::format("equal, byte for byte and kind for kind, at {} states and peaks\n",
                              report::grouped(static_cast<std::int64_t>(opinion.compared)));
  }
  return text + "DIFFERENT: " + opinion.difference + '\n';
}

std::string states_table(const std::vector<StatesLine>& lines, const ByteScale& scale) {
  TextTable table(
      {"said by", "of a card " + std::string(scale.unit()), "of a node's host", "<what"});
  for (const StatesLine& each : lines) {
    table.add({each.who, scale.show(each.device), scale.show(each.host), each.what});
  }
  return table.text();
}

}  // namespace

std::string to_text(const Estimate& estimate, Detail detail) {
  const ByteScale scale(estimate.run.tracker_max());
  std::string text = to_text(estimate.answer, estimate);
  if (detail == Detail::answer) return text;
  text += '\n' + describe_config(estimate);
  text += heading("Order") + describe_order(estimate, scale);
  text += heading("Peak memory per iteration") + peak_table(estimate, scale);
  text += heading("Phases") + phase_table(estimate, scale);
  const bool is_early = estimate.run.iterations.size() < kIterations;
  text += heading(fmt::format("Modules and states ({})",
                              is_early ? "until memory ran out" : "second iteration")) +
          module_table(estimate, scale, detail == Detail::all_modules);
  text += heading("Summary") + summary_lines(estimate, scale);
  text += heading("Where the peak is") + where_is_the_peak(estimate, scale);
  text += heading("Hot spots") + hot_spots(estimate, scale);
  text += heading("Communication buffers") + communication_buffers(estimate, scale);
  text += heading("What would lower the peak (by formula)") + describe_savings(estimate, scale);
  if (const auto lines = states_lines(estimate.config, estimate.run); !lines.empty()) {
    text += heading("Parameters, gradients and state alone") + states_table(lines, scale);
  }
  if (estimate.config.framework == paper::Framework::unshard) {
    text += heading("Second opinion") + formula_lines(estimate);
  }
  if (!estimate.run.out_of_memory.empty()) {
    text += heading("Out of memory") + estimate.run.out_of_memory + '\n';
  }
  text +=
      fmt::format("\nthis estimate took {} of resident memory\n", exact(estimate.resident_bytes));
  return text;
}

}  // namespace fsdp::estimate
