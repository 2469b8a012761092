// The walk by DeepSpeed's rules beside the ZeRO paper and DeepSpeed's own estimators, and the tape
// of Hugging Face's Llama beside what PyTorch saves of it (tests/oracle/pytorch_saved.py).
#include "estimate/framework_choice.h"
#include "estimate/goldens.h"
#include "estimate/modes.h"
#include "estimate/zero_states.h"
#include "paper/memory_formula.h"
#include "paper/segments.h"
#include "paper/step_walk.h"
#include "paper/walk_observer.h"
#include "plan/plan.h"
#include "program/program.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp::estimate {
namespace {

using Json = nlohmann::json;

/// One rank, stage 0.
paper::MemoryOptions options_of(const Json& run) {
  paper::MemoryOptions options;
  options.framework = paper::Framework::deepspeed;
  options.habits = paper::habits_of(options.framework);
  options.habits.attends_by_products = run.at("attention") == "eager";
  options.batch = run.at("batch");
  const bool is_half = run.at("precision") == "bfloat16";
  const DType format = is_half ? DType::bfloat16 : DType::float32;
  options.recipe.precision = {.param_dtype = format, .reduce_dtype = format};
  if (run.at("checkpoint") == "full") options.recipe.checkpointing = optim::Checkpointing::inside;
  return options;
}

TEST_CASE("Hugging Face's Llama keeps what PyTorch saves of it", "[estimator][deepspeed]") {
  const Json all = goldens("transformers_saved.json");
  CHECK(all.at("runs").size() == 32);
  for (const Json& run : all.at("runs")) {
    INFO(run.dump());
    const nn::TransformerConfig model = model_of(all, run);
    const paper::MemoryOptions options = options_of(run);
    const paper::TapedModel tape = paper::taped_model(model, options);
    CHECK(tape.segments.at(2)->kept() == run.at("block"));
    CHECK(tape.segments.back()->kept() == run.at("head"));
    // The sum of the labels' weights is part of the loss's value here.
    CHECK(tape.loss.kept() + 4 == run.at("loss"));
    const std::int64_t rows = options.batch * model.max_position_embeddings;
    const std::int64_t element = run.at("precision") == "float32" ? 4 : 2;
    CHECK(tape.loss_value == 8 + element * rows * model.vocab_size);  // the logits live
  }
}

TEST_CASE("Hugging Face's Llama has its peak where PyTorch's MemTracker has it",
          "[estimator][deepspeed]") {
  const Json all = goldens("transformers_saved.json");
  int near = 0;  // but for the positions, of 8 bytes each
  for (const Json& run : all.at("runs")) {
    INFO(run.dump());
    const nn::TransformerConfig model = model_of(all, run);
    paper::MemoryOptions options = options_of(run);
    options.recipe.micro_steps = 2;  // the first one reduces nothing
    const paper::MemoryFormula formula(model, options);
    const paper::MicroStepMemory first = formula.step(0).micro_steps.front();
    std::int64_t ours = std::max(first.forward_peak.total(), first.backward_peak.total());
    if (run.at("precision") == "bfloat16") ours -= 4 * model.parameter_count();  // masters
    const auto theirs = run.at("peak").get<double>();
    const double ratio = static_cast<double>(ours) / theirs;
    UNSCOPED_INFO(ours << " here, ratio " << ratio);
    CHECK(ratio > 0.995);
    CHECK(ratio < 1.005);
    if (std::abs(ours - run.at("peak").get<std::int64_t>()) <= 4096) ++near;
  }
  CHECK(near >= 24);
}

// ------------------------------------------------------------------------------ the paper's states

/// What is held when the last backward of a step has ended, and the most of gradients until then.
class States : public paper::WalkObserver {
 public:
  void on_bytes(const paper::BytesChange& change) override {
    now[change.kind] += change.nbytes;
    note();
  }
  void on_relabel(const paper::BytesChange& change, MemoryKind to) override {
    now[change.kind] -= change.nbytes;
    now[to] += change.nbytes;
    note();
  }
  void on_state(const std::string& /*module*/, nn::CallState /*state*/) override {}
  void on_phase(const char* name, int /*micro_step*/) override {
    if (std::string_view(name) == "inputs") highest_gradients = gradients();
    if (std::string_view(name) != "gradients") return;
    at_end = now;
    gradients_of_step = highest_gradients;
  }
  Breakdown now, at_end;
  std::int64_t highest_gradients = 0, gradients_of_step = 0;

 private:
  std::int64_t gradients() const {
    return now[MemoryKind::unsharded_grad] + now[MemoryKind::sharded_grad];
  }
  void note() { highest_gradients = std::max(highest_gradients, gradients()); }
};

constexpr auto kFloat = DType::float32;

struct Training {
  optim::Strategy strategy;
  DType format, sums;
  const char* optimizer;
  int ranks;
  std::string described() const {
    return fmt::format("{} {}/{} {} W={}", optim::name_of(strategy), name_of(format), name_of(sums),
                       optimizer, ranks);
  }
};

TEST_CASE("ZeRO's states are those of its paper", "[estimator][deepspeed]") {
  using optim::Strategy;
  nn::TransformerConfig model;
  model.vocab_size = 1024;
  model.hidden_size = 64;
  model.num_hidden_layers = 5;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.intermediate_size = 160;
  model.max_position_embeddings = 16;
  const std::int64_t numel = model.parameter_count();
  const double largest = 1024 * 64;
  const std::pair<DType, DType> formats[] = {{DType::bfloat16, DType::bfloat16},
                                             {DType::float16, DType::float16},
                                             {DType::bfloat16, kFloat},
                                             {DType::float16, kFloat},
                                             {kFloat, kFloat}};
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp})
    for (const auto& [format, sums] : formats)
      for (const char* optimizer : {"adamw", "sgd"})
        for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 12, 31, 64}) {
          const Training training{strategy, format, sums, optimizer, ranks};
          INFO(training.described());
          paper::MemoryOptions options;
          options.framework = paper::Framework::deepspeed;
          options.habits = paper::habits_of(options.framework);
          options.zero.persistence_threshold = 0;
          options.rank = ranks / 2;
          options.recipe.strategy = strategy;
          options.recipe.ranks = ranks;
          options.recipe.precision = {.param_dtype = format, .reduce_dtype = sums};
          options.recipe.optimizer.name = optimizer;
          States states;
          paper::Books books(options);
          books.set_observer(&states);
          paper::StepWalk walk(model, options, books);
          for (int i = 0; i < 2; ++i) walk.next_step();

          const Breakdown& held = states.at_end;
          double ours =
              static_cast<double>(held[MemoryKind::sharded_param] +
                                  held[MemoryKind::unsharded_param] + held[MemoryKind::optimizer]);
          // Stages 2 and 3 have whole gradients for a moment only.
          const bool divides = strategy == Strategy::zero2 || strategy == Strategy::fsdp;
          ours += static_cast<double>(divides ? held[MemoryKind::sharded_grad]
                                              : states.gradients_of_step);
          auto theirs = static_cast<double>(paper_states(options.recipe, numel));
          // BF16_Optimizer sums into float32, and keeps the gradients that it adds.
          if (strategy == Strategy::zero1 && format == DType::bfloat16 && sums == kFloat) {
            theirs += 2 * static_cast<double>(numel);
          }
          // A flat group is padded to 2 W elements, in stage 3 each parameter to W.
          const double parts = 5 * 9 + 3;
          double room = strategy == Strategy::fsdp ? parts * 24 : 2 * ranks * 24;
          // A rank copies the gradients out of a bucket that lie in its slice in part or whole; of
          // sums in float32 its slice alone.
          if (strategy == Strategy::zero2 && sums == format) {
            room += 2 * largest * static_cast<double>(size_of(sums));
          }
          // The slice of a gradient that is being copied is held twice.
          if (strategy == Strategy::zero1) room += largest * 6;
          if (strategy == Strategy::ddp) room = 0;
          CHECK(ours >= theirs);
          CHECK(ours <= theirs + room);
        }
}

TEST_CASE("DeepSpeed's own estimators say the same here", "[estimator][deepspeed]") {
  // What estimate_zero2_model_states_mem_needs() and estimate_zero3_model_states_mem_needs() of
  // DeepSpeed 0.19 return for Llama 3 8B, whose largest layer is the embedding.
  const std::int64_t n = 8'030'261'248, largest = std::int64_t{128'256} * 4096;
  const struct {
    ZeroCards cards;
    ZeroNeeds zero2, zero2_offload, zero3, zero3_offload, zero3_optimizer;
  } told[] = {{{8, 1},
               {34'128'610'304, 385'452'539'904},
               {16'060'522'496, 385'452'539'904},
               {20'169'434'112, 25'216'155'648},
               {2'101'346'304, 216'817'053'696},
               {4'108'911'616, 192'726'269'952}},
              {{8, 4},
               {20'577'544'448, 385'452'539'904},
               {16'060'522'496, 1'541'810'159'616},
               {6'618'368'256, 25'216'155'648},
               {2'101'346'304, 54'204'263'424},
               {2'603'237'632, 48'181'567'488}},
              {{1, 1},
               {160'605'224'960, 48'181'567'488},
               {16'060'522'496, 192'726'269'952},
               {146'646'048'768, 3'152'019'456},
               {2'101'346'304, 216'817'053'696},
               {18'161'868'800, 192'726'269'952}}};
  const auto check = [](const ZeroNeeds& ours, const ZeroNeeds& theirs) {
    CHECK(ours.device == theirs.device);
    CHECK(ours.host == theirs.host);
  };
  for (const auto& each : told) {
    check(zero2_needs(n, each.cards, false), each.zero2);
    check(zero2_needs(n, each.cards, true), each.zero2_offload);
    check(zero3_needs(n, largest, each.cards, false), each.zero3);
    check(zero3_needs(n, largest, each.cards, true), each.zero3_offload);
    check(zero3_needs(n, largest, each.cards, true, true), each.zero3_optimizer);
  }
}

// --------------------------------------------------------------------------------- its own files

/// Llama 3 8B with this file on 8 ranks, as the program takes it.
EstimatorConfig with_file(const std::string& zero, const Words& more = {},
                          const std::string& framework = "") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "ds.json";
  std::ofstream(file) << R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
                             "zero_optimization": )"
                      << zero << "}";
  Words words = {"--model.preset=llama3_8b", "--training.seq_len=4096", "--parallel.ranks=8",
                 "--training.activation_checkpoint=block"};
  words.insert(words.end(), more.begin(), more.end());
  EstimatorConfig config = load_estimator_config(std::nullopt, words, {}, file);
  choose_framework(framework, config);
  return config;
}

TEST_CASE("a file of DeepSpeed's is estimated as DeepSpeed", "[estimator][deepspeed]") {
  const EstimatorConfig made =
      with_file(R"({"stage": 3, "stage3_prefetch_bucket_size": 1e6, "reduce_bucket_size": "auto",
                    "stage3_param_persistence_threshold": "auto", "max_live_parameters": 7,
                    "sub_group_size": 5000, "stage3_max_reuse_distance": 0,
                    "overlap_comm": true})");
  CHECK(made.framework == paper::Framework::deepspeed);
  CHECK(made.zero.prefetch_bucket == 1'000'000);
  CHECK(made.zero.reduce_bucket == 4096 * 4096);  // as Hugging Face's Trainer fills it in
  CHECK(made.zero.persistence_threshold == 10 * 4096);
  CHECK(made.zero.live_limit == 7);
  CHECK(made.zero.sub_group == 5000);
  CHECK(made.zero.reuse_distance == 0);
  for (const std::string& each : made.warnings) CHECK_THAT(each, !contains("has no effect"));
  CHECK(made.zero.overlaps);
  const EstimatorConfig wide = with_file(R"({"stage": 3, "reduce_bucket_size": 1e9})");
  CHECK(wide.zero.reduce_bucket == 1'000'000'000);
  for (const std::string& each : wide.warnings) CHECK_THAT(each, !contains("has no effect"));
  const Estimate estimate = make_estimate(made);
  const std::string answer = to_text(estimate, Detail::answer);
  CHECK_THAT(answer, contains("framework  deepspeed: DeepSpeed's ZeRO"));
  CHECK_THAT(answer,
             contains("\ntraining   llama3_8b, sequences of 4096 tokens: fsdp over 8 ranks"));
  CHECK(std::ranges::count(answer, '\n') == 7);
  const Json json = Json::parse(to_json(estimate));
  CHECK(json.at("version") == std::string(program::version()));
  CHECK(json.at("framework") == "deepspeed");
  CHECK(json.at("states").size() == 3);
  CHECK_THAT(to_text(estimate, Detail::few_modules),
             contains("4 x the largest layer + 18 N / W") && contains("16 N / W"));

  const EstimatorConfig ours =
      with_file(R"({"stage": 3, "stage3_max_live_parameters": 7})", {}, "unshard");
  CHECK(ours.framework == paper::Framework::unshard);
  bool is_noted = false;
  for (const std::string& each : ours.warnings) is_noted |= each.ends_with("whatever their size");
  CHECK(is_noted);
  CHECK_THAT(message_of<InputError>([] { with_file(R"({"stage": 3, "sub_group_size": "many"})"); }),
             contains("zero_optimization.sub_group_size: is many, must be a number of elements"));
}

Breakdown highest_of(const EstimatorConfig& config) {
  EstimateRun run;
  run_on_paper(config, run);
  return run.iterations.at(1).highest;
}

TEST_CASE("each key of ZeRO changes the bytes that it names", "[estimator][deepspeed]") {
  using K = MemoryKind;
  const Breakdown zero2 = highest_of(with_file(R"({"stage": 2})"));
  CHECK(zero2[K::reduce_scatter] == 2 * 500'000'000);
  const auto of = [](const std::string& zero) { return highest_of(with_file(zero)); };
  CHECK(of(R"({"stage": 2, "reduce_bucket_size": 1e6})")[K::reduce_scatter] == 2'000'000);
  CHECK(of(R"({"stage": 2, "overlap_comm": true})")[K::reduce_scatter] == 2 * 2 * 500'000'000);
  CHECK(of(R"({"stage": 2, "contiguous_gradients": false})")[K::reduce_scatter] == 0);
  // A slice that has other ends touches other gradients.
  CHECK(of(R"({"stage": 2, "round_robin_gradients": true})")[K::sharded_grad] !=
        zero2[K::sharded_grad]);

  const Breakdown zero3 = of(R"({"stage": 3})");
  CHECK(zero3[K::reduce_scatter] == 2 * 500'000'000);  // overlap needs no second one
  // Without prefetch, and with nothing kept for its next use, one weight is whole at a time.
  const Breakdown one = of(R"({"stage": 3, "prefetch_bucket_size": 0, "max_reuse_distance": 0,
             "param_persistence_threshold": 0})");
  CHECK(one[K::unsharded_param] == std::int64_t{2} * 128'256 * 4096);
  CHECK(one[K::all_gather] == 0);
  CHECK(zero3[K::unsharded_param] > one[K::unsharded_param]);
  CHECK(zero3[K::all_gather] > 0);
  // Small ones stay whole.
  const Breakdown small = of(R"({"stage": 3, "prefetch_bucket_size": 0, "max_reuse_distance": 0})");
  CHECK(small[K::unsharded_param] - one[K::unsharded_param] == std::int64_t{2} * 65 * 4096);
  // Nothing is gathered ahead if as many are whole already.
  CHECK(of(R"({"stage": 3, "max_live_parameters": 0, "max_reuse_distance": 0})")[K::all_gather] ==
        0);
  CHECK(of(R"({"stage": 3, "stage3_allgather_sequential": true})")[K::all_gather] == 0);
  // The optimizer steps a group at a time, with gradients in float32.
  CHECK(zero3[K::sharded_grad] - of(R"({"stage": 3, "sub_group_size": 1e8})")[K::sharded_grad] ==
        std::int64_t{4} * (1'000'000'000 - 100'000'000));
  // What is used again within the reuse distance is kept from forward to backward: here all of it.
  const Breakdown kept = of(R"({"stage": 3, "max_reuse_distance": 40e9})");
  CHECK(kept[K::unsharded_param] == std::int64_t{2} * 8'030'261'248);

  const std::string cpu = R"("offload_optimizer": {"device": "cpu"})";
  CHECK(of(R"({"stage": 2, )" + cpu + "}")[K::optimizer] == 0);
  const Breakdown offloaded =
      of(R"({"stage": 3, "offload_param": {"device": "cpu"}, )" + cpu + "}");
  CHECK(offloaded[K::optimizer] == 0);
  CHECK(offloaded[K::sharded_param] == 0);
  // The optimizer alone: what is gathered stays on the device, and is not copied there first.
  const EstimatorConfig alone = with_file(R"({"stage": 3, )" + cpu + "}");
  const EstimateRun run = make_estimate(alone).run;
  const Breakdown device = highest_of(alone), host = run.iterations.back().host_peak;
  const std::int64_t n = 8'030'261'248 / 8;  // no padding: 8 divides all
  CHECK(device[K::optimizer] == 0);
  CHECK(device[K::sharded_param] == 2 * n);
  CHECK(device[K::sharded_grad] == 0);
  CHECK(host[K::sharded_param] == 4 * n);
  CHECK(host[K::optimizer] == 8 * n);
  CHECK(device.total() - offloaded.total() > n);
  CHECK_THAT(to_text(make_estimate(alone), Detail::all_modules),
             contains("4 x the largest layer + 2 N / W"));
  CHECK_THAT(to_text(make_estimate(alone), Detail::answer),
             contains("offload optimizer, bfloat16"));
  // Of our engine, shards are masters.
  for (const char* other : {"unshard", "pytorch"}) {
    CHECK_THAT(
        message_of<InputError>([&] { with_file(R"({"stage": 3, )" + cpu + "}", {}, other); }),
        contains("zero_optimization.offload_optimizer.device: is \"cpu\", but offload_param "
                 "is not: shards of parameters are the optimizer's masters here"));
  }
}

TEST_CASE("modes of the planner ask what an estimate of DeepSpeed says", "[estimator][deepspeed]") {
  const std::string cpu = R"("offload_optimizer": {"device": "cpu"})";
  const auto planned = [&](const std::string& zero) {
    const EstimatorConfig config = with_file(zero, {"--model.num_hidden_layers=3"});
    plan::Evaluator evaluator(config.train.model, machine(), needed_bytes);
    return plan::make_plan(evaluator, {.base = memory_options(config),
                                       .memory = std::int64_t{30} << 30,
                                       .ranks = {8},
                                       .global_batch = 8,
                                       .has_bus = true});
  };
  // Offload is a choice of the plan.
  const plan::Plan alone = planned(R"({"stage": 3, )" + cpu + "}");
  const plan::Plan both =
      planned(R"({"stage": 3, "offload_param": {"device": "cpu"}, )" + cpu + "}");
  REQUIRE(alone.outcomes.size() == both.outcomes.size());
  for (std::size_t i = 0; i < alone.outcomes.size(); ++i) {
    CHECK(alone.outcomes[i].memory() == both.outcomes[i].memory());
    CHECK(alone.outcomes[i].host.total() == both.outcomes[i].host.total());
  }
  // The rank whose peak in use is the highest is not the one that needs most.
  for (const char* stage : {"1", "2"}) {
    const EstimatorConfig config =
        with_file(std::string("{\"stage\": ") + stage + "}", {"--training.seq_len=2048"});
    plan::Evaluator evaluator(config.train.model, machine(), needed_bytes);
    const plan::Outcome outcome = evaluator.evaluate(memory_options(config));
    CHECK(outcome.memory() >= make_estimate(config).answer.needed());
    const std::int64_t needed = needed_bytes(config.train.model, outcome.options);
    CHECK(outcome.memory() >= needed);
    // Not even where the heap has other addresses.
    std::vector<std::vector<char>> heap;
    for (std::size_t i = 1; i < 400; ++i) {
      heap.emplace_back(48 + i % 97);
      if (i % 3 == 0) heap.erase(heap.begin() + static_cast<std::ptrdiff_t>(i / 9));
      if (i % 100 == 0) CHECK(needed_bytes(config.train.model, outcome.options) == needed);
    }
  }
}

TEST_CASE("what is not known of DeepSpeed is refused by name", "[estimator][deepspeed]") {
  const auto refused = [](const Words& words, const std::string& stage = "3") {
    return message_of<InputError>([&] { with_file("{\"stage\": " + stage + "}", words); });
  };
  CHECK_THAT(refused({"--lora.rank=8"}), contains("lora.rank") && contains("not LoRA"));
  CHECK_THAT(refused({"--parallel.data_parallel_replicate_degree=2"}), contains("MiCS"));
  CHECK_THAT(refused({"--parallel.prefetch_depth=2"}), contains("stage3_prefetch_bucket_size"));
  CHECK_THAT(refused({"--parallel.reshard_after_forward=false"}),
             contains("stage3_max_reuse_distance"));
  CHECK_THAT(refused({"--parallel.offload_optimizer=true"}, "2"), contains("offload_grads"));
  CHECK_THAT(refused({"--parallel.gradient_compression=float16"}, "2"),
             contains("communication_data_type"));
  CHECK_THAT(refused({"--memory_estimation.disable_fake_mode"}), contains("does not run here"));
  CHECK(refused({}) == "");
}

}  // namespace
}  // namespace fsdp::estimate
