// The walk by PyTorch's rules beside what PyTorch's own FSDPMemTracker counted, without a card.
// tests/oracle/pytorch_memory.py has made the counts; it needs PyTorch, and these tests do not.
#include "estimate/framework_choice.h"
#include "estimate/goldens.h"
#include "estimate/modes.h"
#include "paper/memory_formula.h"
#include "plan/largest.h"
#include "plan/plan.h"
#include "plan/quantity.h"
#include "support/catch.h"
#include "train/program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace fsdp::estimate {
namespace {

using Json = nlohmann::json;
using paper::Checkpointing;

constexpr const char* kCounts = "pytorch_memory.json";

EstimatorConfig configuration(const Json& all, const Json& run) {
  EstimatorConfig config;
  config.train.model = model_of(all, run);
  config.train.training.local_batch_size = run.at("batch");
  const std::string units = run.at("units"), reshard = run.at("reshard");
  config.framework = paper::Framework::pytorch;
  config.habits = {.root_holds_ends = units == "2024",
                   .keeps_last_block = units != "2025" && reshard != "always",
                   .frees_head = reshard == "always",
                   .norm_in_float32 = run.at("norm") == "float32",
                   .computes_float8 = run.contains("float8"),
                   .gathers_float8 = run.value("float8", "") == "gathered"};
  optim::Recipe& recipe = config.train.recipe;
  recipe.strategy = optim::Strategy::fsdp;
  recipe.ranks = run.at("world");
  if (run.at("precision") == "bfloat16") recipe.precision.param_dtype = DType::bfloat16;
  const std::string checkpoint = run.at("checkpoint");
  if (checkpoint == "full" || checkpoint == "2") recipe.checkpointing = Checkpointing::inside;
  if (checkpoint == "2") recipe.checkpoint_every = 2;
  if (checkpoint == "op") recipe.checkpointing = Checkpointing::operations;
  if (run.at("lora")) recipe.lora.rank = 8;
  if (reshard == "never") {
    recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
  }
  return config;
}

bool is_near(std::int64_t ours, std::int64_t theirs, double share, std::int64_t whole) {
  return std::abs(static_cast<double>(ours - theirs)) <= share * static_cast<double>(whole);
}

/// A category of a peak, here and there.
struct Compared {
  std::string_view what;
  std::int64_t here, there;
};

/// The buffer of a collective has its category from when the collective has begun, in the tracker,
/// and from the beginning here. Until then a gather's is an activation there in forward and
/// temporary in backward, and what a reduction brings is temporary.
std::vector<Compared> categories(const Breakdown& ours, const Json& run) {
  using K = MemoryKind;
  const auto theirs = [&](const char* name) { return run.at("peak").value(name, std::int64_t{0}); };
  const std::int64_t begun = std::min(ours[K::all_gather], theirs("All Gather"));
  const std::int64_t early = ours[K::all_gather] - begun;
  const bool is_forward = run.at("at").at("phase") == "forward";
  return {{"total", ours.total(), theirs("Total")},
          {"shards", ours[K::sharded_param], theirs("Sharded Param")},
          {"parameters", ours[K::unsharded_param], theirs("Unsharded Param")},
          {"gradients", ours[K::unsharded_grad], theirs("Unsharded Grad")},
          {"reductions", ours[K::reduce_scatter], theirs("Reduce Scatter")},
          {"state", ours[K::optimizer], theirs("OptState")},
          {"buffers", ours[K::buffer], theirs("Buffer")},
          {"gathers", begun, theirs("All Gather")},
          {"activations and inputs", ours[K::activation] + (is_forward ? early : 0),
           theirs("Activation") + theirs("Inputs")},
          {"temporary bytes and shards of gradients",
           ours[K::temp] + (is_forward ? 0 : early) + ours[K::sharded_grad],
           theirs("Temp") + theirs("Sharded Grad")}};
}

/// Of the second step, as the walk has it.
Breakdown peak_of(const EstimatorConfig& config) {
  return paper::MemoryFormula(config.train.model, memory_options(config)).step(1).peak();
}

TEST_CASE("PyTorch's peak is what PyTorch's own tracker counts", "[estimator][pytorch]") {
  const Json all = goldens(kCounts);
  std::size_t equal = 0, in_float8 = 0;
  for (const Json& run : all.at("runs")) {
    INFO(run.at("name").get<std::string>());
    const EstimatorConfig config = configuration(all, run);
    const paper::MemoryOptions options = memory_options(config);
    const Breakdown peak = peak_of(config);
    const std::int64_t total = run.at("peak").at("Total");
    INFO("here " << to_string(peak));
    for (const Compared& each : categories(peak, run)) {
      INFO(each.what << ": " << each.here << ", the tracker has " << each.there);
      CHECK(is_near(each.here, each.there, 0.02, total));
    }
    // Blocks that are alike are walked once.
    CHECK(paper::peak_of_training(config.train.model, options) ==
          paper::MemoryFormula(config.train.model, options).peak(2));
    CHECK(is_near(peak.total(), total, 0.01, total));
    if (run.contains("float8")) {
      ++in_float8;
      // Beside the scales, which are numbers.
      CHECK(is_near(peak.total(), total, 0.0016, total));
    } else if (peak.total() == total) {
      ++equal;
    }
  }
  CHECK(equal + 3 == all.at("runs").size() - in_float8);  // to the byte
  CHECK(in_float8 == 16);
}

TEST_CASE("the largest and the median difference to PyTorch's tracker", "[.ratios]") {
  const Json all = goldens(kCounts);
  std::map<std::string_view, std::vector<double>> shares;  // of the total, by category
  for (const Json& run : all.at("runs")) {
    const double total = run.at("peak").at("Total");
    for (const Compared& each : categories(peak_of(configuration(all, run)), run)) {
      shares[each.what].push_back(std::abs(static_cast<double>(each.here - each.there)) / total);
    }
  }
  for (auto& [what, of_runs] : shares) {
    std::ranges::sort(of_runs);
    WARN(fmt::format("{}: {:.4f} of the total at most, {:.4f} in the median, none in {} of {}",
                     what, of_runs.back(), of_runs[of_runs.size() / 2],
                     std::ranges::count(of_runs, 0.0), of_runs.size()));
  }
}

TEST_CASE("the largest batch of PyTorch is that whose reserved bytes fit", "[estimator][pytorch]") {
  EstimatorConfig config =
      configured({"--model.preset=llama3_8b", "--parallel.strategy=fsdp", "--parallel.ranks=8",
                  "--training.seq_len=8192", "--training.mixed_precision_param=bfloat16",
                  "--training.activation_checkpoint=block"});
  choose_framework("pytorch", config);
  const plan::Evaluator evaluator(config.train.model, machine(), needed_bytes);
  const plan::LargestBatch found =
      plan::largest_batch(evaluator, memory_options(config), kCardBytes);
  CHECK(found.batch == 3);
  config.train.training.local_batch_size = found.batch;
  const Estimate fits = make_estimate(config);
  CHECK(fits.answer.needed() == found.nbytes);
  CHECK(fits.answer.fits());
  config.train.training.local_batch_size = found.batch + 1;
  const Estimate over = make_estimate(config);
  CHECK(over.answer.needed() == found.over);
  CHECK_FALSE(over.answer.fits());
  REQUIRE(over.answer.remedy);
  CHECK_THAT(over.answer.remedy->options, contains("--training.local_batch_size 2"));
}

TEST_CASE("a sweep and a plan of PyTorch compare with --memory what an estimate needs",
          "[estimator][pytorch]") {
  for (const auto& [batch, micro_steps, shards] : {std::tuple{1, 1, 8}, {2, 1, 8}, {1, 7, 4}}) {
    const EstimatorConfig config = [&, batch = batch, micro_steps = micro_steps, shards = shards] {
      EstimatorConfig made =
          configured({"--model.preset=llama3_8b", "--model.num_hidden_layers=5",
                      "--parallel.strategy=fsdp", "--parallel.ranks=8", "--training.seq_len=4096",
                      "--training.mixed_precision_param=bfloat16",
                      fmt::format("--parallel.data_parallel_replicate_degree={}", 8 / shards),
                      fmt::format("--training.local_batch_size={}", batch),
                      fmt::format("--training.global_batch_size={}", 8 * batch * micro_steps)});
      choose_framework("pytorch", made);
      return made;
    }();
    plan::Evaluator evaluator(config.train.model, machine(), needed_bytes);
    const plan::Outcome outcome = evaluator.evaluate(memory_options(config));
    const Answer answer = make_estimate(config).answer;
    CHECK(outcome.memory() == answer.needed());
    CHECK(outcome.device.total() == answer.active);
    plan::PlanRequest request{.base = memory_options(config),
                              .memory = answer.needed(),
                              .ranks = {8},
                              .global_batch = config.train.training.global_batch_size};
    const plan::Plan plan = plan::make_plan(evaluator, request);
    REQUIRE(plan.is_feasible());
    for (const std::size_t index : plan.front) {
      const plan::Outcome& each = plan.outcomes[index];
      CHECK(each.memory() == needed_bytes(config.train.model, each.options));
      CHECK(each.beside > paper::kOutsideBytes);
    }
  }
}

TEST_CASE("where nothing fits, a plan of PyTorch shows what needs least", "[estimator][pytorch]") {
  EstimatorConfig config = configured({"--model.preset=llama3_8b", "--parallel.strategy=fsdp",
                                       "--parallel.ranks=2", "--training.seq_len=512"});
  choose_framework("pytorch", config);
  plan::Evaluator evaluator(config.train.model, machine(), needed_bytes);
  const plan::Plan none = plan::make_plan(
      evaluator, {.base = memory_options(config), .memory = 1, .ranks = {2}, .global_batch = 16});
  REQUIRE_FALSE(none.is_feasible());
  std::vector<std::int64_t> all;
  for (const plan::Outcome& each : none.outcomes) {
    all.push_back(needed_bytes(config.train.model, each.options));
  }
  CHECK(none.smallest().memory() == std::ranges::min(all));
  const auto in_use = [](const plan::Outcome& each) { return each.device.total(); };
  CHECK(in_use(none.smallest()) > in_use(std::ranges::min(none.outcomes, {}, in_use)));
}

// Counted down, one by one.
std::int64_t largest_by_hand(const plan::Evaluator& evaluator, EstimatorConfig config,
                             std::int64_t memory) {
  std::int64_t& batch = config.train.training.local_batch_size;
  for (batch = 40; batch > 0; --batch) {
    plan::Outcome outcome = evaluator.in_use(memory_options(config));
    evaluator.add_beside(outcome);
    if (outcome.memory() <= memory) break;
  }
  return batch;
}

TEST_CASE("a larger batch may need less of PyTorch's allocator, and is found",
          "[estimator][pytorch]") {
  EstimatorConfig config =
      configured({"--model.preset=llama3_8b", "--model.num_hidden_layers=4",
                  "--parallel.strategy=fsdp", "--parallel.ranks=8", "--training.seq_len=512",
                  "--training.mixed_precision_param=bfloat16"});
  choose_framework("pytorch", config);
  const plan::Evaluator evaluator(config.train.model, machine(), needed_bytes);
  const plan::LargestBatch found =
      plan::largest_batch(evaluator, memory_options(config), 27'000'000'000);
  config.train.training.local_batch_size = found.batch - 1;
  CHECK_FALSE(make_estimate(config).answer.needed() <= 27'000'000'000);
  config.train.training.local_batch_size = found.batch;
  CHECK(make_estimate(config).answer.needed() == found.nbytes);
  CHECK(found.nbytes <= 27'000'000'000);
  // Also where one sequence needs more than several.
  config = configured({"--model.preset=llama3_8b", "--model.num_hidden_layers=2",
                       "--parallel.strategy=fsdp", "--parallel.ranks=8", "--training.seq_len=128",
                       "--training.activation_checkpoint=block"});
  choose_framework("pytorch", config);
  const plan::Evaluator small(config.train.model, machine(), needed_bytes);
  int found_beyond = 0;
  for (std::int64_t memory = 15'300'000'000; memory < 15'800'000'000; memory += 50'000'000) {
    const std::int64_t expected = largest_by_hand(small, config, memory);
    CHECK(plan::largest_batch(small, memory_options(config), memory).batch == expected);
    config.train.training.local_batch_size = 1;
    if (expected > 1 && make_estimate(config).answer.needed() > memory) ++found_beyond;
  }
  CHECK(found_beyond > 0);
}

TEST_CASE("with what the answer says to change, a training of PyTorch fits",
          "[estimator][pytorch]") {
  int remedies = 0;
  for (const int batch : {1, 2, 3}) {
    for (const char* memory : {"79.1GiB", "50GiB", "60GiB"}) {
      Words words = {"--model.preset=llama3_8b",
                     "--parallel.strategy=fsdp",
                     "--parallel.ranks=8",
                     "--training.seq_len=8192",
                     "--training.mixed_precision_param=bfloat16",
                     fmt::format("--training.local_batch_size={}", batch)};
      const auto answer_with = [&](const Words& all) {
        EstimatorConfig config = configured(all);
        choose_framework("pytorch", config);
        config.memory = static_cast<std::size_t>(plan::parse_bytes("--memory", memory));
        return make_estimate(config).answer;
      };
      const Answer answer = answer_with(words);
      if (!answer.remedy) continue;
      ++remedies;
      std::istringstream options(answer.remedy->options);
      for (std::string option, value; options >> option >> value;) {
        words.push_back(option + "=" + value);
      }
      const Answer changed = answer_with(words);
      CAPTURE(batch, memory, answer.remedy->options);
      CHECK(changed.fits());
      CHECK(changed.active == answer.remedy->peak);
      CHECK(changed.reserved == answer.remedy->reserved);
    }
  }
  CHECK(remedies > 3);
}

// The tracker's names of our columns, in our order.
constexpr std::array<const char*, kColumns> kTheirColumns = {
    "Before Pre-Forward",  "After Pre-Forward",  "Before Post-Forward",  "After Post-Forward",
    "Before Pre-Backward", "After Pre-Backward", "Before Post-Backward", "After Post-Backward",
    "Peak Forward",        "Peak Backward"};

const ModuleMemory* row_of(const IterationMemory& iteration, const std::string& theirs) {
  const std::string name = theirs == "tok_embeddings" ? "model.embed_tokens" : "model." + theirs;
  for (const ModuleMemory& each : iteration.modules) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

/// What is told at another moment there: of a unit whose input has no gradient, the end of backward
/// comes with that of the whole model; and a tied table is gathered for the embedding, not before.
bool is_told_elsewhere(const std::string& module, std::size_t column, bool is_tied) {
  const bool is_first = module == "tok_embeddings" || module == "layers.0";
  const bool is_end = column == static_cast<std::size_t>(nn::CallState::before_post_backward) ||
                      column == static_cast<std::size_t>(nn::CallState::after_post_backward) ||
                      column == kPeakBackward;
  return (is_first && is_end) || (is_tied && module == "tok_embeddings");
}

/// The unit whose backward is next has been gathered, and the one before that is under way, when
/// the tracker closes a block's backward.
std::int64_t peak_until_next(const IterationMemory& iteration, const std::string& module) {
  const std::string block = "layers.";
  const std::int64_t own = row_of(iteration, module)->columns[kPeakBackward].total();
  if (!module.starts_with(block) || module == "layers.0") return own;
  const int next = std::stoi(module.substr(block.size())) - 1;
  const ModuleMemory* row = row_of(iteration, block + std::to_string(next));
  constexpr auto kGathered = static_cast<std::size_t>(nn::CallState::after_pre_backward);
  return row == nullptr ? own : std::max(own, row->columns[kGathered].total());
}

TEST_CASE("PyTorch's modules hold what its tracker says of them", "[estimator][pytorch]") {
  const Json all = goldens(kCounts);
  int compared = 0;
  for (const Json& run : all.at("runs")) {
    INFO(run.at("name").get<std::string>());
    const EstimatorConfig config = configuration(all, run);
    EstimateRun made;
    run_on_paper(config, made);
    for (const auto& [module, columns] : run.at("modules").items()) {
      const ModuleMemory* row = row_of(made.iterations.at(1), module);
      if (row == nullptr) continue;  // the head is one module here, and two there
      for (std::size_t i = 0; i < kColumns; ++i) {
        if (!columns.contains(kTheirColumns[i]) || !row->is_seen[i]) continue;
        if (is_told_elsewhere(module, i, config.train.model.tie_word_embeddings)) continue;
        const std::int64_t theirs = columns.at(kTheirColumns[i]);
        const std::int64_t ours = i == kPeakBackward
                                      ? peak_until_next(made.iterations.at(1), module)
                                      : row->columns[i].total();
        ++compared;
        INFO(module << ", " << kTheirColumns[i] << ": " << ours << ", the tracker has " << theirs);
        CHECK(is_near(ours, theirs, 0.02, theirs));
      }
    }
  }
  CHECK(compared > 3'000);
}

}  // namespace
}  // namespace fsdp::estimate
