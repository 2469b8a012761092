// The walk by PyTorch's rules beside what PyTorch's own FSDPMemTracker counted, without a card.
// tests/oracle/pytorch_memory.py has made the counts; it needs PyTorch, and these tests do not.
#include "estimate/framework_choice.h"
#include "estimate/modes.h"
#include "paper/memory_formula.h"
#include "plan/largest.h"
#include "support/catch.h"
#include "train/program.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp::estimate {
namespace {

using Json = nlohmann::json;
using paper::Checkpointing;

Json counts() {
  return Json::parse(testing::contents(std::string(FSDP_PROJECT_ROOT) +
                                       "/tests/estimate/data/pytorch_memory.json"));
}

EstimatorConfig configuration(const Json& run, const Json& shape) {
  EstimatorConfig config;
  nn::TransformerConfig& model = config.train.model;
  model.vocab_size = shape.at("vocab");
  model.hidden_size = shape.at("dim");
  model.num_hidden_layers = shape.at("layers");
  model.num_attention_heads = shape.at("heads");
  model.num_key_value_heads = shape.at("kv_heads");
  model.intermediate_size = shape.at("ffn");
  model.tie_word_embeddings = shape.at("tied");
  model.max_position_embeddings = run.at("tokens");
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

std::int64_t count_of(const Json& peak, const char* category) {
  return peak.value(category, std::int64_t{0});
}

bool is_near(std::int64_t ours, std::int64_t theirs, double share, std::int64_t whole) {
  return std::abs(static_cast<double>(ours - theirs)) <= share * static_cast<double>(whole);
}

/// The buffer of a collective has its category from when the collective has begun, in the tracker,
/// and from the beginning here: so two categories each are compared as one.
void check_categories(const Breakdown& ours, const Json& peak) {
  using K = MemoryKind;
  const auto theirs = [&](const char* name) { return count_of(peak, name); };
  const std::int64_t total = theirs("Total");
  const auto check = [&](std::string_view what, std::int64_t here, std::int64_t there) {
    INFO(what << ": " << here << ", the tracker has " << there);
    CHECK(is_near(here, there, 0.02, total));
  };
  check("shards", ours[K::sharded_param], theirs("Sharded Param"));
  check("parameters", ours[K::unsharded_param], theirs("Unsharded Param"));
  check("gradients", ours[K::unsharded_grad], theirs("Unsharded Grad"));
  check("reductions", ours[K::reduce_scatter], theirs("Reduce Scatter"));
  check("state", ours[K::optimizer], theirs("OptState"));
  check("buffers", ours[K::buffer], theirs("Buffer"));
  check("activations, inputs and gathers", ours[K::activation] + ours[K::all_gather],
        theirs("Activation") + theirs("Inputs") + theirs("All Gather"));
  check("temporary bytes and shards of gradients", ours[K::temp] + ours[K::sharded_grad],
        theirs("Temp") + theirs("Sharded Grad"));
}

TEST_CASE("PyTorch's peak is what PyTorch's own tracker counts", "[estimator][pytorch]") {
  const Json all = counts();
  std::size_t equal = 0, in_float8 = 0;
  for (const Json& run : all.at("runs")) {
    INFO(run.at("name").get<std::string>());
    const EstimatorConfig config =
        configuration(run, all.at("shapes").at(run.at("shape").get<std::string>()));
    const paper::MemoryOptions options = memory_options(config);
    const Breakdown peak = paper::MemoryFormula(config.train.model, options).step(1).peak();
    const std::int64_t total = run.at("peak").at("Total");
    INFO("here " << to_string(peak));
    CHECK(is_near(peak.total(), total, 0.01, total));
    check_categories(peak, run.at("peak"));
    // Blocks that are alike are walked once.
    CHECK(paper::peak_of_training(config.train.model, options) ==
          paper::MemoryFormula(config.train.model, options).peak(2));
    if (peak.total() == total) ++equal;
    if (run.contains("float8")) {
      ++in_float8;
      // Beside the scales, which are numbers.
      CHECK(is_near(peak.total(), total, 0.0016, total));
    }
  }
  CHECK(equal + in_float8 + 5 >= all.at("runs").size());  // to the byte
  CHECK(equal >= 70);
  CHECK(in_float8 == 16);
}

TEST_CASE("the largest batch of PyTorch is that whose reserved bytes fit", "[estimator][pytorch]") {
  EstimatorConfig config =
      configured({"--model.preset=llama3_8b", "--parallel.strategy=fsdp", "--parallel.ranks=8",
                  "--training.seq_len=8192", "--training.mixed_precision_param=bfloat16",
                  "--training.activation_checkpoint=block"});
  choose_framework("pytorch", config);
  plan::Evaluator evaluator(config.train.model, machine());
  const plan::LargestBatch found = plan::largest_batch(
      evaluator, memory_options(config), kCardBytes, [&](const paper::MemoryOptions& options) {
        return needed_bytes(config.train.model, options);
      });
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
  const Json all = counts();
  int compared = 0, near = 0;
  for (const Json& run : all.at("runs")) {
    INFO(run.at("name").get<std::string>());
    const Json& shape = all.at("shapes").at(run.at("shape").get<std::string>());
    EstimateRun made;
    run_on_paper(configuration(run, shape), made);
    for (const auto& [module, columns] : run.at("modules").items()) {
      const ModuleMemory* row = row_of(made.iterations.at(1), module);
      if (row == nullptr) continue;  // the head is one module here, and two there
      for (std::size_t i = 0; i < kColumns; ++i) {
        if (!columns.contains(kTheirColumns[i]) || !row->is_seen[i]) continue;
        if (is_told_elsewhere(module, i, shape.at("tied"))) continue;
        const std::int64_t theirs = columns.at(kTheirColumns[i]);
        const std::int64_t ours = i == kPeakBackward
                                      ? peak_until_next(made.iterations.at(1), module)
                                      : row->columns[i].total();
        ++compared;
        CHECK(is_near(ours, theirs, 0.06, theirs));
        if (is_near(ours, theirs, 0.02, theirs)) {
          ++near;
          continue;
        }
        UNSCOPED_INFO(run.at("name").get<std::string>()
                      << ": " << module << ", " << kTheirColumns[i] << ": " << ours
                      << ", the tracker has " << theirs);
      }
    }
  }
  INFO(near << " of " << compared);
  CHECK(compared > 1'000);
  CHECK(near + 3 >= compared);
}

}  // namespace
}  // namespace fsdp::estimate
