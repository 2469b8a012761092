// Fake mode, real mode and the formula agree to the byte.
#include "estimate/modes.h"

#include "base/check.h"
#include "estimate/memory_instrument.h"
#include "plan/machine.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace fsdp::estimate {
namespace {

const Words kTiny = {"--model.preset=tiny", "--training.local_batch_size=2",
                     "--training.seq_len=24"};

Words tiny(const Words& more) {
  Words words = kTiny;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("fake, real and formula have the same bytes for every strategy", "[estimator]") {
  check_modes(tiny({}));
  for (const char* ranks : {"--parallel.ranks=2", "--parallel.ranks=3"}) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      check_modes(tiny({ranks, std::string("--parallel.strategy=") + strategy}));
    }
  }
  check_modes(tiny({"--parallel.ranks=3", "--parallel.strategy=zero1"}), 2);
}

TEST_CASE("fake, real and formula have the same bytes for every option", "[estimator]") {
  const Words sharded = {"--parallel.strategy=fsdp", "--parallel.ranks=3"};
  for (const Words& more :
       {Words{"--training.mixed_precision_param=bfloat16"},
        {"--training.mixed_precision_param=bfloat16", "--training.mixed_precision_reduce=bfloat16"},
        {"--training.global_batch_size=18", "--training.no_sync=true"},
        {"--training.global_batch_size=12", "--parallel.prefetch_depth=2"},
        {"--parallel.reshard_after_forward=false", "--training.max_norm=0"},
        {"--optimizer.name=sgd", "--optimizer.momentum=0.9", "--optimizer.decay_norms=false"},
        {"--lora.rank=3", "--training.mixed_precision_param=bfloat16"},
        {"--model.tie_word_embeddings=true", "--lr_scheduler.kind=warmup_linear",
         "--lr_scheduler.warmup_steps=1"}}) {
    Words words = tiny(sharded);
    words.insert(words.end(), more.begin(), more.end());
    check_modes(words);
  }
}

TEST_CASE("offload is estimated on the device and on its host", "[estimator]") {
  const Estimate made =
      estimated(tiny({"--parallel.strategy=fsdp", "--parallel.ranks=2",
                      "--parallel.offload_params=true", "--parallel.offload_grads=true"}));
  CHECK(made.opinion.difference == "");
  CHECK(made.opinion.host_peaks.size() == kIterations);
  CHECK(made.run.iterations[1].peak[MemoryKind::sharded_param] == 0);
  CHECK(made.run.iterations[1].host_peak[MemoryKind::optimizer] > 0);
}

TEST_CASE("a difference from the formula is found and named", "[estimator]") {
  EstimatorConfig config = configured(tiny({"--parallel.strategy=fsdp", "--parallel.ranks=2"}));
  EstimateRun run = run_estimate(config);
  CHECK(second_opinion(config, run).difference == "");
  run.iterations[1].as_formula.micro_steps[0].snapshots[9].bytes[MemoryKind::temp] += 1;
  const SecondOpinion opinion = second_opinion(config, run);
  CHECK(opinion.difference.find("iteration 1, micro-step 0, ") == 0);
  CHECK(opinion.difference.find("the formula says") != std::string::npos);
}

TEST_CASE("group, model, tracker and inputs are made in this order", "[estimator]") {
  const Estimate made = estimated(tiny({"--parallel.strategy=fsdp", "--parallel.ranks=4"}));
  std::vector<std::string> names;
  for (const Stage& stage : made.run.stages) names.push_back(stage.name);
  CHECK(names == std::vector<std::string>{"group", "model", "tracker", "inputs"});
  CHECK(made.run.stages[0].highest == 0);
  // On meta: a model of N parameters never had 4 N bytes, only its shards, tables and scratch.
  CHECK(made.run.stages[1].highest == made.run.stages[1].held);
  CHECK(made.run.stages[1].held < 4 * made.run.parameters / 2);
  CHECK(made.run.stages[2].held == made.run.stages[1].held);
  CHECK(made.run.stages[3].held == made.run.stages[2].held + 2 * 2 * 24 * 4);
}

TEST_CASE("optimizer state appears in the first step, 8 N / W of it", "[estimator]") {
  const Estimate made =
      estimated({"--model.preset=tiny", "--training.local_batch_size=1", "--training.seq_len=8",
                 "--parallel.strategy=fsdp", "--parallel.ranks=4"});
  const auto& iterations = made.run.iterations;
  CHECK(iterations[0].before[MemoryKind::optimizer] == 0);
  CHECK(iterations[0].after[MemoryKind::optimizer] == 8 * made.run.parameters / 4);
  CHECK(iterations[1].before[MemoryKind::optimizer] == 8 * made.run.parameters / 4);
  CHECK(iterations[0].before[MemoryKind::sharded_param] == 4 * made.run.parameters / 4);
}

TEST_CASE("the temporaries of the clip are seen, and only if there is a clip", "[estimator]") {
  constexpr std::int64_t kCounters = 514 * 8;
  for (const bool clips : {true, false}) {
    const Estimate made = estimated({"--model.preset=nano", "--parallel.ranks=2",
                                     clips ? "--training.max_norm=1" : "--training.max_norm=0"});
    const auto& phases = made.run.iterations[1].phases;
    const auto clip = std::ranges::find(phases, "clip", &PhaseMemory::name);
    REQUIRE((clip != phases.end()) == clips);
    if (!clips) continue;
    const std::int64_t before = made.run.iterations[1].before[MemoryKind::temp];
    CHECK(clip->peak[MemoryKind::temp] == before + kCounters);
  }
}

TEST_CASE("twice the ranks halve what is sharded", "[estimator]") {
  const auto at_rest = [&](const Words& more) {
    Words words = {"--model.preset=tiny", "--training.local_batch_size=1", "--training.seq_len=8",
                   "--parallel.strategy=fsdp"};
    words.insert(words.end(), more.begin(), more.end());
    return estimated(words).run.iterations[1].after;
  };
  const Breakdown at_2 = at_rest({"--parallel.ranks=2"});
  const Breakdown at_4 = at_rest({"--parallel.ranks=4"});
  for (const MemoryKind kind : {MemoryKind::sharded_param, MemoryKind::optimizer}) {
    CHECK(at_2[kind] == 2 * at_4[kind]);
  }
  CHECK(at_2[MemoryKind::buffer] == at_4[MemoryKind::buffer]);
}

TEST_CASE("sizes are rounded up to the granularity of the device", "[estimator]") {
  EstimatorConfig config = configured(tiny({"--parallel.strategy=fsdp", "--parallel.ranks=3"}));
  const std::int64_t exact = run_estimate(config).tracker_max();
  config.granularity = 512;
  const Estimate rounded = make_estimate(config);
  CHECK(rounded.run.tracker_max() > exact);
  for (const auto& entry : rounded.run.record.ranks[0].memory) {
    // The kernels' scratch comes from no allocator.
    if (entry.kind != MemoryKind::temp) CHECK(entry.nbytes % 512 == 0);
  }
  CHECK_FALSE(rounded.opinion.is_comparable);
}

TEST_CASE("a limit of the device's memory is a retry and an error that says where", "[estimator]") {
  for (const bool is_real : {false, true}) {
    EstimatorConfig config = configured(tiny({"--parallel.strategy=fsdp", "--parallel.ranks=2"}));
    const std::int64_t peak = run_estimate(config).tracker_max();
    config.is_real = is_real;
    config.limit = static_cast<std::size_t>(peak);
    const Estimate enough = make_estimate(config);
    CHECK(enough.run.allocator.retries == 0);
    CHECK(enough.is_good());
    config.limit -= 1;
    const Estimate little = make_estimate(config);
    CHECK(little.run.allocator.retries == 1);
    CHECK_FALSE(little.is_good());
    CHECK(little.run.out_of_memory.find("out of memory") != std::string::npos);
    CHECK(to_text(little, Detail::few_modules).find("num_retries: 1") != std::string::npos);
  }
}

TEST_CASE("every saving that is named holds, to the byte", "[estimator]") {
  const Words ranks = {"--parallel.strategy=fsdp", "--parallel.ranks=2"};
  const std::string shards = "--parallelism.data_parallel_shard_degree=";
  const std::string replicas = "--parallelism.data_parallel_replicate_degree=2";
  const Words titan = {shards + "2", replicas, "--activation_checkpoint.mode=none"};
  for (const Words& more :
       {ranks,
        {"--parallel.strategy=fsdp", "--parallel.ranks=2", "--training.global_batch_size=12"},
        titan,
        {shards + "2", replicas, "--parallel.ranks=4", "--training.activation_checkpoint=none",
         "--activation_checkpoint.mode=none"},
        {shards + "1", replicas},
        {"--parallel.strategy=ddp", "--parallel.ranks=4",
         "--parallel.data_parallel_replicate_degree=2"}}) {
    Words words = tiny({});
    words.insert(words.end(), more.begin(), more.end());
    const Estimate made = estimated(words);
    REQUIRE(made.savings.size() > 5);
    std::set<std::string> changes;
    for (const Saving& saving : made.savings) {
      INFO(saving.change);
      CHECK(changes.insert(saving.change).second);
      Words changed = words;
      std::istringstream parts(saving.change);
      for (std::string part; parts >> part;) changed.push_back(part);
      CHECK(estimated(changed).run.tracker_max() == saving.peak);
      CHECK(made.run.tracker_max() - saving.peak == saving.saved);
    }
  }
}

TEST_CASE("an optimizer that keeps two states could be one that keeps one", "[estimator]") {
  const std::set<std::string> with_two = {"adamw", "adam", "adamax", "adadelta"};
  for (const std::string& name : ops::optimizer_names()) {
    CAPTURE(name);
    const auto savings = savings_of(configured(tiny({"--optimizer.name=" + name})));
    CHECK(std::ranges::any_of(savings, [](const Saving& each) {
            return each.change.starts_with("--optimizer.name sgd");
          }) == with_two.contains(name));
  }
}

TEST_CASE("what 64 bits cannot count is refused", "[estimator]") {
  const auto refusal = [](const Words& words) {
    return message_of<InputError>([&] { estimated(words); });
  };
  const std::string preset = "--model.preset=llama3_405b";
  CHECK_THAT(refusal({preset, "--training.local_batch_size=1000000"}),
             contains("command line: training.local_batch_size: micro-batches of 1000000 sequences "
                      "of 131072 tokens take up to"));
  CHECK_THAT(refusal({preset, "--training.local_batch_size=10000"}),
             contains("picoseconds on the modeled machine"));
  CHECK_THAT(
      refusal({preset, "--training.local_batch_size=8", "--training.global_batch_size=8000000"}),
      contains("command line: training.global_batch_size: two iterations"));
  // What is recorded of every micro-batch would fill the memory of this machine.
  CHECK_THAT(
      refusal({"--training.global_batch_size=4000000"}),
      contains("training.global_batch_size: is 4000000, which is") && contains("use at most"));
  CHECK_THAT(refusal({"--model.hidden_size=1000000000", "--model.vocab_size=1000000000"}),
             contains("model.hidden_size"));
  CHECK_THAT(refusal({"--model.max_position_embeddings=1000000000",
                      "--training.local_batch_size=1000000000"}),
             contains("use a smaller batch"));
  // Nothing that is asked for in earnest is.
  const Estimate large =
      estimated({preset, "--parallel.ranks=1024", "--training.local_batch_size=4"});
  CHECK(large.opinion.difference == "");
}

TEST_CASE("the machine of the curve is that of the planner", "[estimator]") {
  const Estimate made = estimated({"--model.preset=nano"});
  const CostModel planned = plan::MachineText().cost_model();
  REQUIRE(made.run.record.cost_model.has_value());
  CHECK(made.run.record.cost_model->ps_per_byte == planned.ps_per_byte);
  CHECK(made.run.record.cost_model->ps_per_flop == planned.ps_per_flop);
}

TEST_CASE("what is held at the peak adds up to it", "[estimator]") {
  const Estimate made = estimated(tiny({"--parallel.strategy=ddp", "--parallel.ranks=2"}));
  std::int64_t sum = 0;
  for (const Holding& each : made.at_peak) sum += each.nbytes;
  CHECK(sum == made.run.tracker_max());
}

}  // namespace fsdp::estimate
