// What the planner prints without a JSON, against the formulas: the largest batch, which strategy
// when, and the picture of a sweep.
#include "paper/memory_formula.h"
#include "paper/time_formula.h"
#include "plan/largest.h"
#include "plan/machine.h"
#include "plan/quantity.h"
#include "plan/sweep.h"
#include "plan/which_strategy.h"
#include "report/palette.h"
#include "report/units.h"
#include "support/catch.h"
#include "support/printed_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing::planner_tables {
namespace {

using optim::Checkpointing;
using optim::Strategy;
using paper::MemoryFormula;
using paper::MemoryOptions;
using plan::Evaluator;

const nn::TransformerConfig kNano = nn::TransformerConfig::nano();
constexpr std::array kStrategies{
    std::pair("ddp", Strategy::ddp), std::pair("zero1", Strategy::zero1),
    std::pair("zero2", Strategy::zero2), std::pair("fsdp", Strategy::fsdp)};

std::string both(const std::string& text, const ReadText& read) {
  const std::string difference = difference_of(text, read);
  if (!difference.empty()) return difference;
  const std::string unnoticed = unnoticed_change(text, read);
  return unnoticed.empty() ? "" : "this would not be noticed: " + unnoticed;
}

std::int64_t peak_of(const MemoryOptions& options) {
  return MemoryFormula(kNano, options).peak(2).total();
}

}  // namespace

TEST_CASE("Peaks of device and host are those of the ranks that hold most of each") {
  int other_ranks = 0;
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const int ranks : {2, 3, 4}) {
      for (const bool grads : {false, true}) {
        if (grads && strategy == Strategy::zero1) continue;  // ranks hold gradients whole
        MemoryOptions options{.recipe = {.strategy = strategy, .ranks = ranks}};
        options.recipe.precision.param_dtype = DType::bfloat16;
        options.recipe.sharding.offload = {.grads = grads, .optimizer = true};
        const plan::Outcome outcome = Evaluator(kNano, {}).in_use(options);
        const auto of = [&](paper::MemorySpace space) {
          return paper::bound_bytes_by_rank(kNano, options, 2, space);
        };
        const auto device = of(paper::MemorySpace::device), host = of(paper::MemorySpace::host);
        CHECK(outcome.device.total() == std::ranges::max(device));
        CHECK(outcome.host.total() == std::ranges::max(host));
        const auto fullest = std::ranges::max_element(device) - device.begin();
        other_ranks += host[static_cast<std::size_t>(fullest)] < std::ranges::max(host) ? 1 : 0;
      }
    }
  }
  CHECK(other_ranks > 0);
}

TEST_CASE("Every number of the largest batch is that of the formula") {
  MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.ranks = 3;
  options.recipe.micro_steps = 2;
  for (const std::int64_t memory : {330'000, 420'000, 1'700'000, 10'000}) {
    Evaluator evaluator(kNano, {});
    MemoryOptions sized = options;
    while (peak_of(sized) <= memory) ++sized.batch;
    const std::int64_t fits = sized.batch - 1;
    const std::string text =
        largest_text(largest_batch(evaluator, options, memory), options, memory);
    CHECK(both(text, [&](PrintedText& lines) {
            lines.line(
                "fsdp over {} ranks, reshard always, prefetch {}, float32, {} x {} "
                "sequence{} per rank",
                {3, options.recipe.sharding.prefetch_depth, 2, std::max<std::int64_t>(fits, 1),
                 fits > 1 ? "s" : ""});
            if (fits == 0) {
              sized.batch = 1;
              lines.line(
                  "not even one sequence fits: it takes {} of {} bytes; shard over more "
                  "ranks, or checkpoint activations",
                  {peak_of(sized), memory});
              return;
            }
            sized.batch = fits;
            const std::int64_t peak = peak_of(sized);
            lines.line("largest micro-batch: {} sequence{}", {fits, fits == 1 ? "" : "s"});
            lines.row({fmt::format("{}: {} bytes ({}), of {}", fits, peak, plan::show_memory(peak),
                                   memory)});
            sized.batch = fits + 1;
            const std::int64_t over = peak_of(sized);
            lines.row({fmt::format("{}: {} bytes ({}), which is {} too many", fits + 1, over,
                                   plan::show_memory(over), over - memory)});
          }) == "");
  }
}

// ----------------------------------------------------------------------------- which strategy when

namespace {

MemoryOptions over(Strategy placement, int ranks) {
  MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.strategy = placement;
  options.recipe.ranks = ranks;
  return options;
}

std::int64_t step_of(MemoryOptions options, const CostModel& machine) {
  return Evaluator(kNano, machine).evaluate(options).step();
}

CostModel with_link(CostModel machine, double bytes_per_second) {
  machine.ranks_per_box = 0;
  machine.link_ps_per_byte = 1e12 / bytes_per_second;
  return machine;
}

/// From which of `speeds` on the second takes at most the time of the first.
std::string crossover(const std::string& first, const std::string& second,
                      const std::vector<double>& speeds, const std::vector<std::int64_t>& a,
                      const std::vector<std::int64_t>& b) {
  std::size_t from = speeds.size();
  while (from > 0 && b[from - 1] <= a[from - 1]) --from;
  bool ever = false;
  for (std::size_t i = 0; i < speeds.size(); ++i) ever = ever || b[i] <= a[i];
  if (from == 0) return fmt::format("{} is as fast as {} with each of these links", second, first);
  if (!ever) return fmt::format("{} is slower than {} with each of these links", second, first);
  if (from == speeds.size())
    return fmt::format("{} is slower than {} with the fastest of these links", second, first);
  return fmt::format("{} is as fast as {} from {:g} GB/s on", second, first, speeds[from]);
}

void read_sizes(PrintedText& text, std::int64_t memory) {
  text.line("1. The largest model that fits into {}: parameters, with blocks of width {}",
            {Shown::bytes(memory), kNano.hidden_size});
  text.row({"ranks", "ddp", "zero1", "zero2", "fsdp"});
  for (const int ranks : {2, 8, 64, 512}) {
    std::vector<Shown> cells{ranks};
    for (const auto& [name, placement] : kStrategies) {
      const std::int64_t blocks = plan::most_blocks(kNano, over(placement, ranks), memory);
      nn::TransformerConfig model = kNano;
      const auto options = over(placement, ranks);  // clang 14 captures no structured binding
      const auto peak_with = [&](std::int64_t count) {
        model.num_hidden_layers = count;
        return Evaluator(model, {}).memory(options).total();
      };
      CHECK(peak_with(blocks + 1) > memory);
      if (blocks > 0) CHECK(peak_with(blocks) <= memory);
      model.num_hidden_layers = blocks;
      const double billions = 1e-9 * static_cast<double>(model.parameter_count());
      cells.emplace_back(blocks == 0 ? "-" : fmt::format("{:.3g}e9", billions));
    }
    text.row(cells);
  }
}

void read_links(PrintedText& text, const CostModel& machine) {
  text.rule();
  text.line("2. The time of a step over {} ranks, by the speed of the link", {64});
  text.row({"link", "ddp", "zero1", "zero2", "fsdp"});
  const std::vector<double> speeds{12.5, 25, 50, 100, 200, 400};
  std::array<std::vector<std::int64_t>, 4> times;
  for (const double speed : speeds) {
    std::vector<Shown> cells{fmt::format("{:g} GB/s", speed)};
    for (std::size_t i = 0; i < kStrategies.size(); ++i) {
      MemoryOptions options = over(kStrategies.at(i).second, 64);
      options.recipe.zero.reduce_buffer_bytes =
          static_cast<std::size_t>(options.recipe.bucket_bytes);
      times.at(i).push_back(step_of(options, with_link(machine, 1e9 * speed)));
      cells.push_back(Shown::time(times.at(i).back()));
    }
    text.row(cells);
  }
  text.line("   {}", {crossover("ddp", "zero1", speeds, times[0], times[1])});
  text.line("   {}", {crossover("ddp", "zero2", speeds, times[0], times[2])});
  text.line("   {}", {crossover("zero2", "fsdp", speeds, times[2], times[3])});
}

void read_meshes(PrintedText& text, CostModel machine) {
  text.rule();
  text.line(
      "3. The time of a step over {} ranks in boxes of {} with {} GB/s inside, by the link "
      "between boxes",
      {64, 8, 400});
  text.line("  far link fsdp over all mesh of boxes");
  const std::vector<double> speeds{3.125, 6.25, 12.5, 25, 50, 100, 200};
  std::vector<std::int64_t> flat, mesh;
  machine.ranks_per_box = 8;
  machine.link_ps_per_byte = 1e12 / 400e9;
  machine.far_alpha_ps = 4 * machine.alpha_ps;
  const MemoryOptions all = over(Strategy::fsdp, 64);
  MemoryOptions boxes = all;
  boxes.recipe.replicas = 8;
  for (const double speed : speeds) {
    machine.far_link_ps_per_byte = 1e12 / (1e9 * speed);
    flat.push_back(step_of(all, machine));
    mesh.push_back(step_of(boxes, machine));
    text.row({fmt::format("{:g} GB/s", speed), Shown::time(flat.back()), Shown::time(mesh.back()),
              fmt::format("memory {} and {}", plan::show_memory(peak_of(all)),
                          plan::show_memory(peak_of(boxes)))});
  }
  text.line("   {}", {crossover("the mesh", "fsdp over all ranks", speeds, mesh, flat)});
}

void read_batches(PrintedText& text, const CostModel& machine) {
  text.rule();
  text.line(
      "4. {} sequences per rank on {} ranks of fsdp: the fastest that fits, without and with "
      "checkpointed blocks",
      {16, 64});
  text.row({"memory", "without", "with"});
  for (const int gigabytes : {20, 40, 80, 160, 320}) {  // everything fits
    std::vector<Shown> cells{fmt::format("{} GB", gigabytes)};
    for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::inside}) {
      std::optional<std::pair<std::int64_t, std::int64_t>> best;
      for (const std::int64_t batch : {1, 2, 4, 8, 16}) {
        MemoryOptions options = over(Strategy::fsdp, 64);
        options.recipe.checkpointing = checkpointing;
        options.batch = batch;
        options.recipe.micro_steps = static_cast<int>(16 / batch);
        const std::pair made(step_of(options, machine), batch);
        if (!best || made.first < best->first) best = made;
      }
      cells.emplace_back(fmt::format("{} ({} x {})", plan::show_time(best->first),
                                     16 / best->second, best->second));
    }
    text.row(cells);
  }
}

}  // namespace

TEST_CASE("Every number of the tables of strategies is that of the formulas") {
  if (FSDP_SANITIZED != 0) return;  // formulas alone, at length
  plan::MachineText machine;
  machine.flops = "3G";
  machine.hbm = "70GB/s";
  const std::int64_t memory = 500'000;
  const std::string text = plan::which_strategy_text(kNano, machine.cost_model(), {}, memory);
  CHECK(difference_of(text, [&](PrintedText& lines) {
          read_sizes(lines, memory);
          read_links(lines, machine.cost_model());
          read_meshes(lines, machine.cost_model());
          read_batches(lines, machine.cost_model());
        }) == "");
}

// -------------------------------------------------------------------------- the picture of a sweep

namespace {

/// What stands between `open` and `close`, each time.
std::vector<std::string> all_between(const std::string& text, const std::string& open,
                                     const std::string& close) {
  std::vector<std::string> found;
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    found.push_back(text.substr(at, text.find(close, at) - at));
  }
  return found;
}

}  // namespace

TEST_CASE("Every number in the picture of a sweep is one of its points") {
  plan::MachineText machine;
  Evaluator evaluator(kNano, machine.cost_model());
  const plan::Sweep sweep =
      make_sweep(evaluator, "nano", over(Strategy::fsdp, 2), plan::parse_sweep("world=2..8"));
  const std::string svg = sweep_svg(sweep);
  std::vector<std::string> tips, labels;
  std::int64_t most_memory = 0, most_time = 0;
  for (const plan::SweepPoint& point : sweep.points) {
    most_memory = std::max(most_memory, point.outcome.memory());
    most_time = std::max(most_time, point.outcome.step());
  }
  const auto ticks = [&](std::int64_t highest, const report::Unit& unit) {
    for (std::int64_t tick = 0; tick <= highest; tick += report::tick_step(highest, 5)) {
      labels.push_back(report::in_unit(tick, unit, 2));
    }
  };
  ticks(most_memory, report::byte_unit(most_memory));
  ticks(most_time, report::time_unit(most_time));
  for (const plan::SweepPoint& point : sweep.points) {
    for (const MemoryKind kind : report::kStack) {
      const std::int64_t nbytes = point.outcome.device[kind];
      if (nbytes == 0) continue;
      tips.push_back(fmt::format("{}, {}", report::title_of(kind), plan::show_memory(nbytes)));
    }
    tips.push_back(plan::show_time(point.outcome.step()));
    labels.push_back(std::to_string(point.outcome.options.recipe.ranks));
  }
  std::vector<std::string> titles = all_between(svg, "<title>", "</title>");
  REQUIRE_FALSE(titles.empty());
  titles.erase(titles.begin());  // of the picture
  CHECK(titles == tips);
  std::vector<std::string> numbers;
  for (const std::string& each : all_between(svg, "<text ", "</text>")) {
    const std::string shown = each.substr(each.find('>') + 1);
    if (shown.find_first_of("0123456789") == 0) numbers.push_back(shown);
  }
  CHECK(numbers == labels);
}

}  // namespace fsdp::testing::planner_tables
