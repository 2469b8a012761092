#include "report/runs/zero_tables.h"

#include "parallel/partition.h"
#include "report/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace fsdp::report {
namespace {

struct Measured {
  std::int64_t time = 0;   // of rank 0, in picoseconds
  std::int64_t peak = 0;   // of the rank that holds most
  std::int64_t state = 0;  // likewise
  Traffic traffic;         // of rank 0
};

// With ZeRO, ranks own different parameters; all others do the same.
Measured measure(const ShortRun& run, const CostModel& machine) {
  const RunRecord record = record_fake(run, machine, run.recipe.is_zero() ? run.recipe.ranks : 1);
  Measured measured{record.ranks[0].end, 0, 0, traffic_of(record.ranks[0])};
  for (const RankRecord& rank : record.ranks) {
    measured.peak = std::max(measured.peak, rank.peak.total());
    measured.state = std::max(measured.state, rank.peak[MemoryKind::optimizer]);
  }
  return measured;
}

std::string milliseconds(std::int64_t time) {
  return fmt::format("{:.3f}", static_cast<double>(time) / 1e9);
}

std::string heading_of(const ShortRun& run, const CostModel& machine) {
  std::string text = fmt::format("{} over {} rank{}", run.model_name, run.recipe.ranks,
                                 run.recipe.ranks == 1 ? "" : "s");
  if (machine.ranks_per_box > 0) text += fmt::format(" in boxes of {}", machine.ranks_per_box);
  text += run.recipe.optimizer.name == "sgd" ? ", SGD" : ", AdamW";
  return text +
         fmt::format(", {} step{} on the virtual clock\n", run.steps, run.steps == 1 ? "" : "s");
}

std::string loads_text(const std::string& name, const std::vector<parallel::OwnedSlice>& slices,
                       int ranks) {
  const std::vector<std::int64_t> all = parallel::loads_of(slices, ranks);
  std::vector<std::string> shown;
  shown.reserve(all.size());
  for (const std::int64_t load : all) shown.push_back(grouped(load));
  const std::size_t most = 8;
  const bool is_cut = shown.size() > most;
  if (is_cut) shown.resize(most);
  return fmt::format("  {:20} largest {:>11}   loads {}{}\n", name, grouped(std::ranges::max(all)),
                     fmt::join(shown, " "), is_cut ? " ..." : "");
}

std::string partitions_text(const std::string& what, std::vector<std::int64_t> numels, int ranks) {
  using optim::Partition;
  std::string text = fmt::format("{} over {} rank{}\n", what, ranks, ranks == 1 ? "" : "s");
  text += loads_text("greedy", parallel::divide(Partition::greedy, numels, ranks), ranks);
  text += loads_text("flat", parallel::divide(Partition::flat, numels, ranks), ranks);
  text += loads_text("round_robin", parallel::divide(Partition::round_robin, numels, ranks), ranks);
  std::ranges::sort(numels, std::greater<>());
  return text +
         loads_text("greedy, if sorted", parallel::divide(Partition::greedy, numels, ranks), ranks);
}

}  // namespace

std::string strategies_table(const ShortRun& run, const CostModel& machine) {
  std::string text = heading_of(run, machine);
  text += fmt::format("{:8}  {:>10}  {:>13}  {:>15}  {:>13}  {:>11}\n", "strategy", "ms",
                      "highest bytes", "optimizer state", "received", "collectives");
  for (const auto& [name, strategy] :
       {std::pair("ddp", Strategy::ddp), std::pair("zero1", Strategy::zero1),
        std::pair("zero2", Strategy::zero2), std::pair("fsdp", Strategy::fsdp)}) {
    ShortRun each = run;
    each.recipe.strategy = strategy;
    if (strategy != Strategy::fsdp) each.recipe.replicas = 1;
    if (strategy != run.recipe.strategy) each.recipe.sharding.offload = {};
    const Measured measured = measure(each, machine);
    text +=
        fmt::format("{:8}  {:>10}  {:>13}  {:>15}  {:>13}  {:>11}\n", name,
                    milliseconds(measured.time), grouped(measured.peak), grouped(measured.state),
                    grouped(measured.traffic.nbytes), measured.traffic.collectives);
  }
  text.pop_back();
  return text;
}

std::string buffers_table(const ShortRun& run, const CostModel& machine) {
  std::string text = heading_of(run, machine);
  text += fmt::format("{:>13}  {:>11}  {:>13}  {:>10}\n", "reduce buffer", "collectives",
                      "highest bytes", "ms");
  // Up to a buffer that holds everything.
  const std::int64_t all = 4 * run.model.parameter_count();
  for (std::int64_t buffer = 0;; buffer = buffer == 0 ? 10'000 : 4 * buffer) {
    ShortRun each = run;
    each.recipe.strategy = Strategy::zero2;
    each.recipe.zero.reduce_buffer_bytes = static_cast<std::size_t>(buffer);
    const Measured now = measure(each, machine);
    text += fmt::format("{:>13}  {:>11}  {:>13}  {:>10}\n", grouped(buffer),
                        now.traffic.collectives, grouped(now.peak), milliseconds(now.time));
    if (buffer >= all) break;
  }
  text.pop_back();
  return text;
}

std::string owners_table(const ShortRun& run) {
  std::string text = "Elements of optimizer state per rank, by partition\n\n";
  text += partitions_text("five parameters of 1, 1, 1, 1, 4 elements", {1, 1, 1, 1, 4}, 2) + "\n";
  text += partitions_text("one giant of 1,000,000 elements beside two of 1,000",
                          {1'000'000, 1'000, 1'000}, 8) +
          "\n";
  Context context({.device = kFake});
  const ContextScope scope(context);
  nn::TransformerLM model(run.model);
  std::vector<std::int64_t> numels;
  for (const auto& [path, variable] : model.variables()) numels.push_back(variable.data().numel());
  text += partitions_text(fmt::format("{}, {} parameters", run.model_name, numels.size()), numels,
                          run.recipe.ranks);
  text.pop_back();
  return text;
}

}  // namespace fsdp::report
