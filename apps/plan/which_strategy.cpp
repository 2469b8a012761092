#include "plan/which_strategy.h"

#include "plan/choices.h"
#include "plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::plan {

using paper::Checkpointing;
using paper::MemoryOptions;
using paper::Strategy;

namespace {

constexpr Strategy kStrategies[] = {Strategy::ddp, Strategy::zero1, Strategy::zero2,
                                    Strategy::fsdp};
constexpr double kPicosecondsPerSecond = 1e12;

MemoryOptions with(MemoryOptions options, Strategy strategy, int ranks) {
  options.recipe.strategy = strategy;
  options.recipe.ranks = ranks;
  options.batch = 1;
  options.recipe.micro_steps = options.recipe.micro_steps_per_reduction = 1;
  options.recipe.replicas = 1;
  options.recipe.sharding.reshard_after_forward = ReshardAfterForward::always();
  options.recipe.sharding.offload = {};
  return options;
}

/// "3.95e9" parameters; "> 3.95e9" if the search ended there, "-" if nothing fits.
std::string largest_model(const nn::TransformerConfig& model, const MemoryOptions& options,
                          std::int64_t memory) {
  nn::TransformerConfig largest = model;
  largest.num_hidden_layers = most_blocks(model, options, memory);
  if (largest.num_hidden_layers == 0) return "-";
  return fmt::format("{}{:.3g}e9", largest.num_hidden_layers == kMostBlocks ? "> " : "",
                     1e-9 * static_cast<double>(largest.parameter_count()));
}

std::string sizes(const nn::TransformerConfig& model, const MemoryOptions& base,
                  std::int64_t memory) {
  std::string text = fmt::format(
      "1. The largest model that fits into {}: parameters, with blocks of width {}\n{:>8}",
      show_memory(memory), model.hidden_size, "ranks");
  for (const Strategy strategy : kStrategies) {
    text += fmt::format("{:>12}", value_of(Choice::strategy, with(base, strategy, 2)));
  }
  text += "\n";
  for (const int ranks : {2, 8, 64, 512}) {
    text += fmt::format("{:>8}", ranks);
    for (const Strategy strategy : kStrategies) {
      text += fmt::format("{:>12}", largest_model(model, with(base, strategy, ranks), memory));
    }
    text += "\n";
  }
  return text;
}

/// "zero1 is as fast as ddp from 400 GB/s on": the first of `values` from which on the second of
/// two never takes longer.
std::string crossover(const std::string& first, const std::string& second,
                      const std::vector<double>& values,
                      const std::vector<std::pair<std::int64_t, std::int64_t>>& times) {
  const auto is_slower = [](const auto& each) { return each.second > each.first; };
  const auto slower = std::ranges::count_if(times, is_slower);
  if (slower == 0) {
    return fmt::format("   {} is as fast as {} with each of these links\n", second, first);
  }
  if (slower == std::ssize(times)) {
    return fmt::format("   {} is slower than {} with each of these links\n", second, first);
  }
  std::size_t begin = times.size();
  while (begin > 0 && !is_slower(times[begin - 1])) --begin;
  if (begin == times.size()) {
    return fmt::format("   {} is slower than {} with the fastest of these links\n", second, first);
  }
  return fmt::format("   {} is as fast as {} from {:g} GB/s on\n", second, first, values[begin]);
}

std::string links(const nn::TransformerConfig& model, const CostModel& machine,
                  const MemoryOptions& base) {
  std::string text = "\n2. The time of a step over 64 ranks, by the speed of the link\n";
  text += fmt::format("{:>10}{:>12}{:>12}{:>12}{:>12}\n", "link", "ddp", "zero1", "zero2", "fsdp");
  const std::vector<double> speeds{12.5, 25, 50, 100, 200, 400};
  std::vector<std::vector<std::int64_t>> times;  // by speed, then strategy
  for (const double gigabytes : speeds) {
    times.emplace_back();
    CostModel linked = machine;
    linked.ranks_per_box = 0;
    linked.link_ps_per_byte = kPicosecondsPerSecond / (1e9 * gigabytes);
    Evaluator evaluator(model, linked);
    text += fmt::format("{:>10}", fmt::format("{:g} GB/s", gigabytes));
    for (const Strategy strategy : kStrategies) {
      MemoryOptions options = with(base, strategy, 64);
      options.recipe.zero.reduce_buffer_bytes = options.recipe.bucket_bytes;
      times.back().push_back(evaluator.evaluate(options).step());
      text += fmt::format("{:>12}", show_time(times.back().back()));
    }
    text += "\n";
  }
  for (const auto& [first, second] : {std::pair<std::size_t, std::size_t>(0, 1), {0, 2}, {2, 3}}) {
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    pairs.reserve(times.size());
    for (const auto& each : times) pairs.emplace_back(each[first], each[second]);
    text +=
        crossover(value_of(Choice::strategy, with(base, kStrategies[first], 64)),
                  value_of(Choice::strategy, with(base, kStrategies[second], 64)), speeds, pairs);
  }
  return text;
}

std::string meshes(const nn::TransformerConfig& model, const CostModel& machine,
                   const MemoryOptions& base) {
  constexpr int kBox = 8, kRanks = 64;
  std::string text = fmt::format(
      "\n3. The time of a step over {} ranks in boxes of {} with 400 GB/s inside, by the link "
      "between "
      "boxes\n{:>10}{:>14}{:>14}\n",
      kRanks, kBox, "far link", "fsdp over all", "mesh of boxes");
  const std::vector<double> speeds{3.125, 6.25, 12.5, 25, 50, 100, 200};
  std::vector<std::pair<std::int64_t, std::int64_t>> times;
  for (const double gigabytes : speeds) {
    CostModel boxes = machine;
    boxes.ranks_per_box = kBox;
    boxes.link_ps_per_byte = kPicosecondsPerSecond / 400e9;
    boxes.far_link_ps_per_byte = kPicosecondsPerSecond / (1e9 * gigabytes);
    boxes.far_alpha_ps = 4 * boxes.alpha_ps;
    Evaluator evaluator(model, boxes);
    MemoryOptions options = with(base, Strategy::fsdp, kRanks);
    const Outcome flat = evaluator.evaluate(options);
    options.recipe.replicas = kRanks / kBox;
    const Outcome mesh = evaluator.evaluate(options);
    times.emplace_back(mesh.step(), flat.step());
    text +=
        fmt::format("{:>10}{:>14}{:>14}  memory {} and {}\n", fmt::format("{:g} GB/s", gigabytes),
                    show_time(flat.step()), show_time(mesh.step()), show_memory(flat.memory()),
                    show_memory(mesh.memory()));
  }
  return text + crossover("the mesh", "fsdp over all ranks", speeds, times);
}

std::string batches(const nn::TransformerConfig& model, const CostModel& machine,
                    const MemoryOptions& base) {
  constexpr std::int64_t kShare = 16;  // sequences of a rank and step
  std::string text = fmt::format(
      "\n4. {} sequences per rank on 64 ranks of fsdp: the fastest that fits, without and with "
      "checkpointed blocks\n{:>10}{:>26}{:>26}\n",
      kShare, "memory", "without", "with");
  Evaluator evaluator(model, machine);
  for (const std::int64_t gigabytes : {20, 40, 80, 160, 320}) {
    text += fmt::format("{:>10}", fmt::format("{} GB", gigabytes));
    for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::inside}) {
      std::string best = "does not fit";
      std::int64_t least = 0;
      for (std::int64_t batch = 1; batch <= kShare; batch *= 2) {
        MemoryOptions options = with(base, Strategy::fsdp, 64);
        options.recipe.checkpointing = checkpointing;
        options.recipe.checkpoint_every = 1;
        options.batch = batch;
        options.recipe.micro_steps = static_cast<int>(kShare / batch);
        const Outcome outcome = evaluator.evaluate(options);
        if (outcome.memory() > gigabytes * 1'000'000'000) continue;
        if (least != 0 && outcome.step() >= least) continue;
        least = outcome.step();
        best = fmt::format("{} ({} x {})", show_time(least), options.recipe.micro_steps, batch);
      }
      text += fmt::format("{:>26}", best);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::int64_t most_blocks(const nn::TransformerConfig& model, const MemoryOptions& options,
                         std::int64_t memory) {
  const auto fits = [&](std::int64_t blocks) {
    nn::TransformerConfig sized = model;
    sized.num_hidden_layers = blocks;
    return Evaluator(sized, {}).memory(options).total() <= memory;
  };
  if (!fits(1)) return 0;
  if (fits(kMostBlocks)) return kMostBlocks;
  std::int64_t enough = 1, over = 2;
  while (over < kMostBlocks && fits(over)) {
    enough = std::exchange(over, std::min(2 * over, kMostBlocks));
  }
  while (over - enough > 1) {
    const std::int64_t middle = enough + (over - enough) / 2;
    (fits(middle) ? enough : over) = middle;
  }
  return enough;
}

std::string which_strategy_text(const nn::TransformerConfig& model, const CostModel& machine,
                                const MemoryOptions& base, std::int64_t memory) {
  return sizes(model, base, memory) + links(model, machine, base) + meshes(model, machine, base) +
         batches(model, machine, base);
}

}  // namespace fsdp::plan
