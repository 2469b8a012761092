// Every number that a training and the demo print is the one that it stands for.
#include "demo/tables.h"
#include "nn/transformer.h"
#include "report/runs/short_run.h"
#include "support/catch.h"
#include "support/printed_text.h"
#include "train/data.h"
#include "train/program.h"
#include "train/summary.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using testing::PrintedText;
using testing::Shown;
using Json = nlohmann::json;

void check(const std::string& text, const testing::ReadText& read) {
  CHECK(testing::difference_of(text, read) == "");
  CHECK(testing::unnoticed_change(text, read) == "");
}

/// No number of a run is also another one's.
std::vector<BoundedRun> runs() {
  std::vector<BoundedRun> all;
  for (const char* strategy : {"single", "ddp", "fsdp"}) {
    const auto n = static_cast<std::int64_t>(all.size()) + 1;
    BoundedRun each;
    each.run.strategy = strategy;
    each.run.world_size = static_cast<int>(2 * n);
    each.run.losses = {5.125F + static_cast<float>(n), 3.5F, 4.75F,
                       2.03125F + static_cast<float>(n)};
    each.run.param_sha256 = fmt::format("{}23456789abcdef", n);
    each.run.peak_bytes = 7'000'000 + n;
    each.run.categories[MemoryKind::optimizer] = 2'000'000 + n;
    each.run.comm_bytes = 4 * (500'000 + n);
    each.run.comm_formula_bytes = 4 * (600'000 + n);
    each.run.tokens_per_second = 4321 + static_cast<double>(n);
    each.bound_bytes = 8'000'000 + n;
    all.push_back(each);
  }
  return all;
}

Shown number(const Json& json) { return json.get<double>(); }
Shown words(const Json& json) { return json.get<std::string>(); }

}  // namespace

TEST_CASE("the demo's tables are what summary.json says", "[train][demo]") {
  const std::vector<BoundedRun> all = runs();
  const Json json = Json::parse(to_json(all));
  const std::vector<std::string> names{"single", "ddp", "fsdp (mpi)"};
  check(trainings_table(names, all), [&](PrintedText& text) {
    text.row({"strategy", "W", "first loss", "last loss", "peak per rank", "the bound", "received",
              "tokens/s"});
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Json& run = json.at("runs")[i];
      text.row({names[i], number(run.at("world_size")), number(run.at("losses").front()),
                number(run.at("losses").back()), number(run.at("peak_bytes")),
                number(run.at("bound_bytes")), number(run.at("comm_bytes")),
                number(run.at("tokens_per_second"))});
    }
  });
  check(five_strategies_table(all), [&](PrintedText& text) {
    text.line("The five strategies, {} steps each:", {4});
    text.rule();
    text.row({"strategy", "W", "peak per rank", "the bound", "optimizer state", "received/step",
              "last loss", "parameters"});
    for (const Json& run : json.at("runs")) {
      text.row({words(run.at("strategy")), number(run.at("world_size")),
                number(run.at("peak_bytes")), number(run.at("bound_bytes")),
                number(run.at("categories").at("OPTIMIZER")),
                run.at("comm_bytes").get<std::int64_t>() / 4, number(run.at("losses").back()),
                run.at("param_sha256").get<std::string>().substr(0, 12)});
    }
  });
}

TEST_CASE("a line of progress is the report of its step", "[train]") {
  StepReport step{.step = 7, .steps = 1234, .loss = 5.4321F, .validation_loss = 4.5678F};
  step.lr = 1.25e-3;
  step.norm = 2.345;
  step.tokens_per_second = 876;
  step.peak_bytes = 34'560'000;
  step.seconds = {.forward = 0.0123, .backward = 0.0456, .reduce = 0.0078, .step = 0.0091};
  const Shown peak = Shown::bytes(step.peak_bytes);
  check(describe(step, true), [&](PrintedText& text) {
    text.line("step    {}/{}  loss {}  validation {}  lr {}  norm {}  {} tokens/s  peak {}",
              {7, 1234, step.loss, *step.validation_loss, step.lr, step.norm,
               step.tokens_per_second, peak});
  });
  step.validation_loss.reset();
  check(describe(step, false), [&](PrintedText& text) {
    text.line("step    {}/{}  loss {}  lr {}  {} tokens/s  peak {}",
              {7, 1234, step.loss, step.lr, step.tokens_per_second, peak});
  });
  step.is_skipped = true;
  check(describe(step, true), [&](PrintedText& text) {
    text.line("step    {}/{}  loss {}  skipped  {} tokens/s  peak {}",
              {7, 1234, step.loss, step.tokens_per_second, peak});
  });
  check(describe(step.seconds), [](PrintedText& text) {
    text.line("  forward {} ms  backward {} ms  reduce {} ms  step {} ms", {12.3, 45.6, 7.8, 9.1});
  });
}

TEST_CASE("the time left is that of the steps so far, in units that one can read", "[train]") {
  CHECK(show_left(0, 0, 100) == "");
  CHECK(show_left(50, 10, 0) == "");
  CHECK(show_left(1, 100, 3) == "about 1 s left");
  CHECK(show_left(10, 4, 17) == "about 43 s left");
  CHECK(show_left(1, 1, 99) == "about 99 s left");
  CHECK(show_left(1, 1, 100) == "about 2 min left");
  CHECK(show_left(60, 1, 99) == "about 99 min left");
  CHECK(show_left(60, 1, 100) == "about 1 h 40 min left");
  CHECK(show_left(3600, 1, 47) == "about 47 h 0 min left");
  CHECK(show_left(3600, 2, 200) == "about 4 d 4 h left");
  CHECK(show_left(1e300, 1, 1'000'000'000) == "");

  StepReport step{.step = 7, .steps = 1234};
  step.done = 3;
  step.elapsed = 1.5;
  CHECK_THAT(describe(step, false), contains(" B  about 10 min left"));
  step.done = 0;
  CHECK_THAT(describe(step, false), !contains("left"));
}

TEST_CASE("a summary's JSON has each number in its place", "[train]") {
  std::vector<BoundedRun> all = runs();
  all[1].run.evaluations = {
      {.step = 4, .loss = 2.5F}, {.step = 8, .loss = 1.25F}, {.step = 9, .loss = 0.5F}};
  const Json json = Json::parse(to_json(all)).at("runs");
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(json[i].at("comm_bytes") == all[i].run.comm_bytes);
    CHECK(json[i].at("comm_formula_bytes") == all[i].run.comm_formula_bytes);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const Evaluation& right = all[1].run.evaluations[i];
    CHECK(json[1].at("validation")[i].at("step") == right.step);
    CHECK(json[1].at("validation")[i].at("loss") == right.loss);
  }
}

TEST_CASE("an evaluation's JSON has each number in its place", "[train][eval]") {
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--parallel.strategy=ddp", "--parallel.ranks=3", "--training.seq_len=11",
                     "--training.local_batch_size=2", "--training.global_batch_size=6"});
  const TokenData data = TokenData::from_text("seventeen letters", "some.txt", 256);
  const EvaluationResult found{.loss = 1.5F, .windows = 5, .steps_done = 7, .peak_bytes = 12345};
  const Json json = Json::parse(to_json(config, data, found)).at("evaluation");
  CHECK(json.at("tokens") == 17);
  CHECK(json.at("world_size") == 3);
  CHECK(json.at("seq_len") == 11);
  CHECK(json.at("windows") == 5);
  CHECK(json.at("loss") == 1.5);
  CHECK(json.at("peak_bytes") == 12345);
  CHECK(json.at("step") == 7);
}

TEST_CASE("bytes are shown in units of a thousand", "[train]") {
  CHECK(show_bytes(999) == "999 B");
  CHECK(show_bytes(123'456) == "123.5 kB");
  CHECK(show_bytes(123'456'789) == "123.5 MB");
  CHECK(show_bytes(12'345'678'901) == "12.35 GB");
  CHECK(show_bytes(12'345'678'901'234) == "12.35 TB");
}

TEST_CASE("a training prints what its configuration and its summary say", "[train][program]") {
  if (FSDP_HAS_TASK8 == 0) return;  // a mesh
  const testing::TemporaryFolder folder;
  const nn::TransformerConfig nano = nn::TransformerConfig::nano();
  const std::string data = (folder / "data.txt").string();
  const testing::Finished made = testing::run_command(
      folder, fmt::format("seq 1000 > '{0}' && '" FSDP_TRAIN_PROGRAM
                          "' --model.preset nano --model.vocab_size 256 --data.path '{0}' "
                          "--parallel.strategy fsdp --parallel.ranks 6 "
                          "--parallel.data_parallel_replicate_degree 3 "
                          "--parallel.threads_per_rank 3 --training.steps 2 --training.seq_len 7 "
                          "--training.local_batch_size 5 --training.global_batch_size 60 "
                          "--training.mixed_precision_param bfloat16 --optimizer.lr 2e-3 "
                          "--lr_scheduler.kind warmup_linear --lr_scheduler.warmup_steps 2 "
                          "--sample.max_new_tokens 0 --summary '{1}'",
                          data, (folder / "summary.json").string()));
  INFO(made.err);
  REQUIRE(made.code == 0);
  const Json run = Json::parse(testing::contents(folder / "summary.json")).at("runs").at(0);
  nn::TransformerConfig config = nano;
  config.vocab_size = 256;
  PrintedText text(made.out);
  text.line("(defaults): nano with {} parameters on {} ({} tokens)",
            {config.parameter_count(), data, testing::contents(data).size()});
  text.line(
      "strategy fsdp, {} replicas of {} shards, {} rank(s) x {} thread(s), {} sequences of "
      "{} tokens a step in {} micro-batches",
      {3, 2, 6, 3, 60, 7, 12});
  text.line("masters in float32, the model in bfloat16, sums of gradients in float32");
  text.skip();
  text.skip();
  text.line("a rank received {} bytes per step; the formula says {}",
            {run.at("comm_bytes").get<std::int64_t>() / 2,
             run.at("comm_formula_bytes").get<std::int64_t>() / 2});
  text.line("parameters sha256 {}", {words(run.at("param_sha256"))});
  CHECK(text.difference() == "");
  for (const std::size_t step : {1U, 2U}) {
    const double lr = 2e-3 * static_cast<double>(step) / 2;
    CHECK_THAT(made.out, contains(fmt::format("step {}/2  loss {:.4f}  lr {:.2e}  norm ", step,
                                              run.at("losses")[step - 1].get<double>(), lr)));
  }
}

TEST_CASE("adapters are counted on a line of their own", "[train][program]") {
  const testing::TemporaryFolder folder;
  const nn::TransformerConfig nano = nn::TransformerConfig::nano();
  const testing::Finished made = testing::run_command(
      folder, "seq 1000 > '" + (folder / "data.txt").string() +
                  "' && '" FSDP_TRAIN_PROGRAM
                  "' --model.preset nano --model.vocab_size 256 --training.steps 1 --lora.rank 3 "
                  "--lora.targets q_proj --data.path '" +
                  (folder / "data.txt").string() + "'");
  nn::TransformerConfig config = nano;
  config.vocab_size = 256;
  const std::int64_t trained = nano.num_hidden_layers * 3 * 2 * nano.hidden_size;
  const std::int64_t all = config.parameter_count() + trained;
  CHECK_THAT(made.out,
             contains(fmt::format(
                 "LoRA of rank 3 on q_proj: {} parameters are trained, {:.4f} % of {}\n", trained,
                 100.0 * static_cast<double>(trained) / static_cast<double>(all), all)));
}

TEST_CASE("the demo says what it trains", "[train][demo]") {
  const testing::TemporaryFolder folder;
  testing::Child child({FSDP_DEMO_PROGRAM}, folder / "err");
  std::string both = child.line() + "\n";
  both += child.line();
  PrintedText text(both);
  child.close_output();
  child.wait();
  const std::int64_t read = TokenData::from_text(source_text(FSDP_PROJECT_ROOT), "", 256).size();
  text.line("A transformer with {} parameters reads the text of this repository ({} bytes):",
            {nn::TransformerConfig::tiny().parameter_count(), read});
  text.line("{} steps of {} sequences of {} bytes, in {} micro-batches.", {100, 8, 128, 8});
  CHECK(text.difference() == "");
}

TEST_CASE("the report prints what its record says", "[report][program]") {
  const testing::TemporaryFolder folder;
  const testing::Finished made =
      testing::run_command(folder, "'" FSDP_REPORT_PROGRAM
                                   "' --fake --model nano --ranks 3 --steps 2 --micro-steps 2 "
                                   "--offload all --bus 50 --out '" +
                                       folder.path().string() + "' | grep -v '^/'");
  report::ShortRun run;
  run.model_name = "nano";
  run.model = nn::TransformerConfig::nano();
  run.recipe.ranks = 3;
  run.steps = run.recipe.micro_steps = 2;
  run.recipe.sharding.offload = {.params = true, .grads = true};
  CostModel machine = report::kSmallMachine;
  machine.bus_ps_per_byte = 20;
  const report::RankRecord rank = report::record_fake(run, machine).ranks[0];
  std::int64_t received = 0, collectives = 0;
  for (const Event& event : rank.events) {
    if (event.kind != EventKind::issue || event.name.starts_with("copy_to_")) continue;
    received += event.nbytes;
    ++collectives;
  }
  check(made.out, [&](PrintedText& text) {
    text.line("{} steps of rank 0: {} ms on the virtual clock",
              {2, static_cast<double>(rank.end) / 1e9});
    text.line("highest memory: {} B on the device, {} B on its host",
              {rank.peak.total(), rank.host_peak.total()});
    text.line("received: {} B by {} collectives", {received, collectives});
  });
}

}  // namespace fsdp::train
