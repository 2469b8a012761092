#include "estimate/comparison.h"

#include "estimate/explanations.h"
#include "estimate/framework_choice.h"
#include "estimate/text_table.h"
#include "paper/memory_formula.h"
#include "paper/segments.h"
#include "report/palette.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

namespace fsdp::estimate {
namespace {

/// One engine's column.
struct Column {
  EstimatorConfig config;
  EstimateRun run;
  Answer answer;
  paper::TapedModel parts;

  const IterationMemory& highest() const {
    return run.iterations[static_cast<std::size_t>(run.peak_iteration())];
  }
  const PhaseMemory& phase() const { return highest().highest_phase(); }
};

Column column_of(const EstimatorConfig& config) {
  Column column{.config = config, .run = run_estimate(config), .answer = {}, .parts = {}};
  column.answer = answer_of(config, column.run);
  column.parts = paper::taped_model(config.train.model, memory_options(config));
  return column;
}

using Columns = std::vector<Column>;
using BytesOf = std::function<std::int64_t(const Column&)>;

void add_row(TextTable& table, const std::string& name, const Columns& columns,
             const ByteScale& scale, const BytesOf& bytes_of) {
  std::vector<std::string> row{name};
  bool is_shown = false;
  const std::int64_t first = bytes_of(columns.front());
  for (const Column& each : columns) {
    row.push_back(scale.show(bytes_of(each)));
    is_shown = is_shown || scale.shows(bytes_of(each));
  }
  for (std::size_t i = 1; i < columns.size(); ++i) {
    const std::int64_t more = bytes_of(columns[i]) - first;
    row.push_back(scale.shows(std::abs(more)) ? (more < 0 ? "-" : "+") + scale.show(std::abs(more))
                                              : "-");
  }
  if (is_shown) table.add(std::move(row));
}

TextTable table_for(const std::string& title, const Columns& columns) {
  std::vector<std::string> header{title};
  for (const Column& each : columns) header.emplace_back(paper::name_of(each.config.framework));
  for (std::size_t i = 1; i < columns.size(); ++i) {
    header.push_back(fmt::format("{} more", paper::name_of(columns[i].config.framework)));
  }
  return TextTable(header);
}

std::int64_t highest_of(const std::vector<paper::MemoryPoint>& points) {
  std::int64_t highest = 0;
  for (const paper::MemoryPoint& each : points) {
    highest = std::max(highest, each.activation + each.temp);
  }
  return highest;
}

std::string categories(const Columns& columns, const ByteScale& scale) {
  TextTable table = table_for("at the peak, " + std::string(scale.unit()), columns);
  for (const MemoryKind kind : report::kStack) {
    add_row(table, std::string(name_of(kind)), columns, scale,
            [kind](const Column& each) { return each.phase().peak[kind]; });
  }
  table.rule();
  add_row(table, "active", columns, scale, [](const Column& each) { return each.answer.active; });
  add_row(table, "kept free by the allocator", columns, scale,
          [](const Column& each) { return each.answer.reserved - each.answer.active; });
  add_row(table, "outside of the allocator", columns, scale,
          [](const Column& each) { return each.answer.outside; });
  add_row(table, "in all", columns, scale, [](const Column& each) { return each.answer.needed(); });
  return table.text();
}

std::string reasons(const Columns& columns, const ByteScale& scale) {
  TextTable table = table_for("why, " + std::string(scale.unit()), columns);
  const auto add = [&](const std::string& name, const BytesOf& bytes_of) {
    add_row(table, name, columns, scale, bytes_of);
  };
  const auto add_highest = [&](const std::string& name, MemoryKind kind) {
    add(name, [kind](const Column& each) { return each.highest().highest[kind]; });
  };
  add("all blocks keep for backward", [](const Column& each) {
    std::int64_t sum = 0;
    for (std::size_t i = 1; i + 1 < each.parts.segments.size(); ++i) {
      sum += each.parts.segments[i]->kept();
    }
    return sum;
  });
  add("the head keeps for backward",
      [](const Column& each) { return each.parts.segments.back()->kept(); });
  add("the loss and the logits, at their highest", [](const Column& each) {
    return std::max(highest_of(each.parts.loss.forward), highest_of(each.parts.loss.backward));
  });
  add_highest("gathered units, at their highest", MemoryKind::unsharded_param);
  add_highest("buffers of gathers, at their highest", MemoryKind::all_gather);
  add_highest("buffers of reductions, at their highest", MemoryKind::reduce_scatter);
  add_highest("gradients before reduction, at their highest", MemoryKind::unsharded_grad);
  return table.text();
}

/// What would have other bytes, and how many: of a card with PyTorch, else what is in use.
struct Guess {
  std::string what;
  std::int64_t nbytes;
};

std::int64_t bytes_of(const EstimatorConfig& config) {
  if (config.framework == paper::Framework::unshard) return column_of(config).answer.needed();
  return needed_bytes(config.train.model, memory_options(config));
}

void add_guess(const EstimatorConfig& config, const std::string& what,
               const std::function<void(EstimatorConfig&)>& change, std::vector<Guess>& guesses) {
  EstimatorConfig changed = config;
  change(changed);
  changed.train.settle();
  if (paper::unknown_of(memory_options(changed))) return;
  guesses.push_back({what, bytes_of(changed)});
}

std::vector<Guess> guesses_for(const EstimatorConfig& config) {
  using optim::Checkpointing;
  std::vector<Guess> guesses;
  const auto add = [&](const std::string& what,
                       const std::function<void(EstimatorConfig&)>& change) {
    add_guess(config, what, change, guesses);
  };
  for (const paper::Framework each : paper::all_frameworks()) {
    if (each == config.framework) continue;
    add(fmt::format("framework {}", paper::name_of(each)), [each](EstimatorConfig& changed) {
      changed.framework = each;
      changed.habits = paper::habits_of(each);
    });
  }
  if (config.framework != paper::Framework::unshard) {
    for (const auto& [what, habit] : paper::torch_habits(config.framework)) {
      const char* now = config.habits.*habit ? "not so: " : "";
      add(now + std::string(what), [habit = habit](EstimatorConfig& changed) {
        changed.habits.*habit = !(changed.habits.*habit);
      });
    }
  }
  for (const auto& [what, checkpointing] :
       {std::pair{"no activation checkpointing", Checkpointing::none},
        {"checkpointing of operations", Checkpointing::operations},
        {"checkpointing of whole blocks", Checkpointing::inside}}) {
    if (config.train.recipe.checkpointing == checkpointing) continue;
    add(what, [checkpointing = checkpointing](EstimatorConfig& changed) {
      changed.train.recipe.checkpointing = checkpointing;
      changed.train.recipe.checkpoint_every = 1;
    });
  }
  if (config.train.recipe.precision.param_dtype) {
    add("parameters in float32",
        [](EstimatorConfig& changed) { changed.train.recipe.precision.param_dtype.reset(); });
  }
  const std::int64_t batch = config.train.training.local_batch_size;
  for (const std::int64_t other : {batch - 1, batch + 1, 2 * batch}) {
    if (other < 1) continue;
    add(fmt::format("micro-batches of {}", other), [&config, other](EstimatorConfig& changed) {
      changed.train.training.global_batch_size = config.train.micro_batches() * other;
      changed.train.training.local_batch_size = other;
    });
  }
  return guesses;
}

std::string signed_percent(std::int64_t part, std::int64_t whole) {
  return fmt::format("{:+.1f}", percent_of(part, whole));
}

}  // namespace

std::string comparison_text(const std::vector<EstimatorConfig>& configs) {
  Columns columns;
  for (const EstimatorConfig& each : configs) columns.push_back(column_of(each));
  const auto needed = [](const Column& each) { return each.answer.needed(); };
  const ByteScale scale(std::ranges::max(columns, {}, needed).answer.needed());
  std::string text;
  for (const Column& each : columns) {
    text += fmt::format("framework  {}: {}\n", paper::name_of(each.config.framework),
                        paper::meaning_of(each.config.framework));
  }
  for (const std::string& warning : configs.front().warnings) text += "warning: " + warning + '\n';
  text += '\n' + categories(columns, scale);
  for (const Column& each : columns) {
    text += fmt::format("{}: the peak is in {}{}\n", paper::name_of(each.config.framework),
                        each.phase().name,
                        each.phase().module.empty() ? "" : ", " + each.phase().module);
  }
  return text + '\n' + reasons(columns, scale);
}

std::string measured_text(const Estimate& estimate, std::int64_t measured) {
  const ByteScale scale(std::max(measured, estimate.answer.needed()));
  TextTable counters({"measured " + scale.with_unit(measured), std::string(scale.unit()),
                      "measured is more by", "%"});
  const auto add = [&](const char* name, std::int64_t nbytes) {
    const std::int64_t more = measured - nbytes;
    counters.add({name, scale.show(nbytes), (more < 0 ? "-" : "") + scale.with_unit(std::abs(more)),
                  signed_percent(more, nbytes)});
  };
  add("estimated active (max_memory_allocated)", estimate.answer.active);
  add("estimated reserved (max_memory_reserved)", estimate.answer.reserved);
  add("estimated of the card (nvidia-smi)", estimate.answer.needed());
  std::string text = counters.text();

  const std::int64_t missing = std::abs(measured - estimate.answer.reserved);
  const EstimateRun& run = estimate.run;
  const PhaseMemory& phase =
      run.iterations[static_cast<std::size_t>(run.peak_iteration())].highest_phase();
  std::vector<std::string> large;
  for (const MemoryKind kind : report::kStack) {
    if (phase.peak[kind] < missing) continue;
    large.push_back(fmt::format("{} {}", name_of(kind), scale.with_unit(phase.peak[kind])));
  }
  text += fmt::format("categories that are large enough to hide {}: {}\n", scale.with_unit(missing),
                      large.empty() ? "none by itself" : fmt::format("{}", fmt::join(large, ", ")));

  std::vector<Guess> guesses = guesses_for(estimate.config);
  std::ranges::stable_sort(
      guesses, {}, [measured](const Guess& each) { return std::abs(measured - each.nbytes); });
  guesses.resize(std::min<std::size_t>(guesses.size(), 6));
  TextTable table(
      {"what comes nearest, of the card", std::string(scale.unit()), "measured is more by %"});
  for (const Guess& each : guesses) {
    table.add(
        {each.what, scale.show(each.nbytes), signed_percent(measured - each.nbytes, each.nbytes)});
  }
  return text + table.text();
}

}  // namespace fsdp::estimate
