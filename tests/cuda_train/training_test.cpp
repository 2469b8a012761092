// Trainings with training.device cuda, as unshard-train runs them, on cards of the stand-in.
#include "comm/gather_texts.h"
#include "cuda_stand_in/plans.h"
#include "estimate/device_bound.h"
#include "estimate/estimate.h"
#include "support/temporary_folder.h"
#include "train/evaluation.h"
#include "train/memory_check.h"
#include "train/trainer.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

namespace fsdp::train::cuda_train_test {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

constexpr int kVocabulary = 13;

// Bytes below 13, so that the model is small.
TokenData some_tokens() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>((i * i + i / 7) % kVocabulary);
  return TokenData::from_text(text, "some tokens", kVocabulary);
}

/// A model of which no size is one that vectors, blocks or ranks divide. Later words count more.
Words small_model_with(const std::vector<Words>& parts) {
  Words words = {"--model.vocab_size=13",
                 "--model.hidden_size=12",
                 "--model.num_hidden_layers=2",
                 "--model.num_attention_heads=2",
                 "--model.num_key_value_heads=1",
                 "--model.intermediate_size=17",
                 "--model.max_position_embeddings=5",
                 "--training.local_batch_size=1",
                 "--training.device=cuda"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return words;
}

/// Two steps of four micro-batches.
config::TrainConfig configure(std::vector<Words> parts) {
  parts.insert(parts.begin(),
               {"--training.steps=2", "--training.global_batch_size=4", "--optimizer.lr=1e-2"});
  return config::load_config(std::nullopt, small_model_with(parts));
}

Words placed(const std::string& strategy, int ranks) {
  return {"--parallel.strategy=" + strategy, "--parallel.ranks=" + std::to_string(ranks)};
}

/// On two cards, which end well.
RunResult train(const Plan& plan, const std::vector<Words>& parts, const RunOptions& options = {}) {
  Session session(plan);
  const RunResult result = run_training(configure(parts), some_tokens(), options);
  session.finish();
  return result;
}

Plan two_cards(Mode mode, std::uint64_t seed) { return {.mode = mode, .seed = seed, .devices = 2}; }

// Either is the plan that CUDA_ON_HOST names, if it is set.
Plan lazy() { return requested_or(two_cards(Mode::lazy, 0)); }
Plan interleaved() { return requested_or(two_cards(Mode::random, 3)); }

void check_equal(const RunResult& result, const RunResult& expected) {
  CHECK(result.losses == expected.losses);
  CHECK(result.param_sha256 == expected.param_sha256);
  CHECK(result.sample == expected.sample);
}

void check_near(const std::vector<float>& losses, const std::vector<float>& expected) {
  REQUIRE(losses.size() == expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CHECK(std::abs(losses[i] - expected[i]) <= 1e-5F);
  }
}

}  // namespace

TEST_CASE("on cards, every strategy trains the bits of a single process", "[train]") {
  const Words sampled = {"--sample.max_new_tokens=7", "--sample.prompt=\x03\x01"};
  const RunResult expected = train(two_cards(Mode::eager, 17), {sampled});
  for (const auto& [strategy, ranks] : {std::pair("single", 1),
                                        {"ddp", 2},
                                        {"zero1", 2},
                                        {"zero2", 4},
                                        {"fsdp", 1},
                                        {"fsdp", 2},
                                        {"fsdp", 4}}) {
    if (FSDP_SANITIZED && ranks == 1) continue;
    CAPTURE(strategy, ranks);
    check_equal(train(ranks == 2 ? lazy() : interleaved(), {sampled, placed(strategy, ranks)}),
                expected);
  }
  const RunResult on_cpu = run_training(configure({{"--training.device=cpu"}}), some_tokens());
  check_near(expected.losses, on_cpu.losses);
  CHECK(expected.param_sha256 != on_cpu.param_sha256);  // it was computed elsewhere
}

TEST_CASE("the peak on a card is that of an estimate, to the byte", "[train]") {
  for (const auto& [strategy, ranks] :
       {std::pair("single", 1), {"ddp", 2}, {"zero2", 2}, {"fsdp", 2}, {"fsdp", 3}}) {
    for (const char* format : {"float32", "bfloat16"}) {
      if (FSDP_SANITIZED && ranks != 3) continue;
      CAPTURE(strategy, ranks, format);
      const std::vector<Words> parts = {
          placed(strategy, ranks),
          {"--training.global_batch_size=" + std::to_string(2 * ranks),
           std::string("--training.mixed_precision_param=") + format}};
      CHECK(train(lazy(), parts).peak_bytes == estimate::device_bound_bytes(configure(parts)));
    }
  }
}

TEST_CASE("on cards, options of a training change no bit of FSDP", "[train]") {
  for (const Words& options :
       {Words{"--lora.rank=2", "--training.max_norm=0"},
        {"--training.mixed_precision_param=float16", "--fp16.initial_scale_power=8"},
        {"--training.activation_checkpoint=block", "--training.no_sync=true"}}) {
    CAPTURE(options[0]);
    check_equal(train(lazy(), {options, placed("fsdp", 2)}), train(interleaved(), {options}));
    if (FSDP_SANITIZED != 0) return;  // the rest is seen without cards
  }
  const Words mesh = {"--parallel.data_parallel_replicate_degree=2"};
  check_equal(train(interleaved(), {placed("fsdp", 4), mesh}), train(lazy(), {}));
}

TEST_CASE("on cards, ranks tell rank 0 of their last step", "[train]") {
  std::vector<std::string> texts;
  RunOptions options;
  options.on_finished = [&](ProcessGroup* group) {
    const std::string own = "rank " + std::to_string(group->rank());
    const std::vector<std::string> all = gather_texts(*group, own, {"a test", Phase::none});
    if (group->rank() == 0) texts = all;
  };
  train(lazy(), {placed("fsdp", 3), {"--training.global_batch_size=3", "--training.steps=1"}},
        options);
  CHECK(texts == Words{"rank 0", "rank 1", "rank 2"});
}

TEST_CASE("three ranks on two cards train what three ranks on the CPU do", "[train]") {
  const std::vector<Words> parts = {placed("fsdp", 3), {"--training.global_batch_size=6"}};
  const RunResult on_cpu =
      run_training(configure({parts[0], parts[1], {"--training.device=cpu"}}), some_tokens());
  check_near(train(lazy(), parts).losses, on_cpu.losses);
}

TEST_CASE("with NCCL, ranks with a card each train the same up to rounding", "[train][cards]") {
  const RunResult expected = train(lazy(), {});
  const Words nccl = {"--parallel.device_collectives=nccl"};
  for (const char* strategy : {"ddp", "fsdp"}) {
    CAPTURE(strategy);
    check_near(train(interleaved(), {nccl, placed(strategy, 2)}).losses, expected.losses);
  }
}

TEST_CASE("more micro-batches make the host wait no more", "[train][stand-in]") {
  // A step reads its norm, its losses and what the ranks tell each other.
  const auto waits = [](int micro_batches) {
    std::vector<std::int64_t> at;
    RunOptions options;
    options.on_step = [&](const StepReport&) { at.push_back(cuda_on_host::host_waits()); };
    train(interleaved(), {{"--training.global_batch_size=" + std::to_string(micro_batches)}},
          options);
    return at.at(1) - at.at(0);
  };
  const std::int64_t of_one = waits(1);
  CHECK(of_one > 0);
  CHECK(waits(5) == of_one);
}

TEST_CASE("offload moves shards to the memory of the host, and changes no bit", "[train]") {
  const std::vector<Words> parts = {placed("fsdp", 2), {"--training.max_norm=0.1"}};
  const RunResult expected = train(lazy(), parts);
  for (const char* grads : {"false", "true"}) {
    CAPTURE(grads);
    const RunResult result = train(
        interleaved(),
        {parts[0],
         parts[1],
         {"--parallel.offload_params=true", std::string("--parallel.offload_grads=") + grads}});
    check_equal(result, expected);
    CHECK(result.peak_bytes < expected.peak_bytes);
  }
}

TEST_CASE("ZeRO steps in the memory of the host, and changes no bit", "[train]") {
  const Words clip = {"--training.max_norm=0.1"};
  const RunResult expected = train(lazy(), {clip});
  for (const char* strategy : {"zero1", "zero2"}) {
    CAPTURE(strategy);
    const Words where = placed(strategy, 2);
    Words offload = {"--parallel.offload_optimizer=true", "--parallel.zero_partition=flat"};
    if (where.front().ends_with("zero2")) offload.emplace_back("--parallel.offload_grads=true");
    const RunResult result = train(interleaved(), {where, clip, offload});
    check_equal(result, expected);
    CHECK(result.peak_bytes < train(lazy(), {where, clip}).peak_bytes);
  }
}

TEST_CASE("a training goes through cards and the CPU, and its model too", "[train][long]") {
  const RunResult expected = train(lazy(), {{"--training.steps=4"}});
  TemporaryFolder folder;
  const Words saved = {"--checkpoint.folder=" + (folder.path() / "checkpoints").string()};
  RunOptions options;
  options.export_folder = (folder.path() / "model").string();
  train(interleaved(), {saved, placed("fsdp", 2)}, options);
  const RunResult result = train(lazy(), {saved, placed("ddp", 2), {"--training.steps=4"}});
  CHECK(result.first_step == 2);
  CHECK(result.losses == std::vector(expected.losses.begin() + 2, expected.losses.end()));
  CHECK(result.param_sha256 == expected.param_sha256);

  const RunResult on_cpu = run_training(
      configure({saved, {"--training.device=cpu", "--training.steps=5"}}), some_tokens());
  CHECK(on_cpu.first_step == 4);
  CHECK(on_cpu.losses.at(0) < expected.losses.at(0));

  const auto loss = [&](const Words& more) {
    return run_evaluation(configure({saved, more}), some_tokens()).loss;
  };
  const float expected_loss = loss({"--training.device=cpu"});
  Session session(interleaved());
  const float on_device = loss(placed("fsdp", 2));
  session.finish();
  check_near({on_device}, {expected_loss});
}

TEST_CASE("a training that no card can hold is refused", "[train][stand-in]") {
  Plan plan = lazy();
  plan.device_nbytes = std::size_t{64} << 20;
  Session session(plan);
  // Each rank needs 32 MiB beside the formula, for products.
  const auto complaint = [](int ranks) {
    const config::TrainConfig config =
        configure({placed("fsdp", ranks), {"--training.global_batch_size=12"}});
    return message_of<InputError>([&] { check_memory(config, free_memory(config)); });
  };
  CHECK(complaint(2).empty());
  CHECK_THAT(complaint(4), contains("this training needs 135.4 MB") &&
                               contains("for its 4 ranks, and there are 134.2 MB") &&
                               contains("free memory of cuda:0, which 2 ranks share"));
}

TEST_CASE("a training whose shards no host can hold is refused", "[train][stand-in]") {
  Session session(lazy());
  const auto complaint = [](const Words& more) {
    const config::TrainConfig config =
        configure({placed("fsdp", 2), {"--model.hidden_size=1000000"}, more});
    return message_of<InputError>([&] { check_memory(config, free_memory(config)); });
  };
  CHECK_THAT(complaint({"--parallel.offload_params=true"}),
             contains("parallel.offload_params: the memory of the host must hold"));
  CHECK_THAT(complaint({}), contains("free memory of cuda:0"));
}

TEST_CASE("the host must hold all that is offloaded, at its highest", "[train][stand-in]") {
  Session session(lazy());
  for (const Words& more : {Words{"--parallel.offload_params=true"},
                            {"--parallel.offload_params=true", "--lora.rank=2"},
                            {"--parallel.offload_optimizer=true", "--parallel.strategy=zero2"}}) {
    for (const Purpose purpose : {Purpose::training, Purpose::evaluation}) {
      const config::TrainConfig config =
          configure({placed("fsdp", 3), {"--training.global_batch_size=6"}, more});
      std::int64_t offloaded = 0;
      for (const std::int64_t nbytes :
           bound_bytes_by_rank(config, purpose, paper::MemorySpace::host)) {
        offloaded += nbytes;
      }
      const bool trains = purpose == Purpose::training;
      CAPTURE(more.back(), trains);
      // A training has the gradients there too: more than the weights and their state.
      const std::int64_t weights = 4 * config.model.parameter_count();
      if (trains && !config.recipe.has_lora()) CHECK(offloaded > 3 * weights);
      if (!trains && config.recipe.is_zero()) CHECK(offloaded == weights);  // each has an owner
      const auto complaint = [&](std::int64_t nbytes) {
        return message_of<InputError>([&] {
          check_memory(config, free_memory(config), purpose, {nbytes, "a test's limit"});
        });
      };
      CHECK(complaint(offloaded).empty());
      CHECK_THAT(complaint(offloaded - 1),
                 contains(more.front().substr(2, more.front().find('=') - 2) +
                          ": the memory of the host must hold") &&
                     contains("of what is offloaded and 0 B of data") &&
                     contains("(a test's limit); leave more on the cards"));
    }
  }
}

TEST_CASE("with cards, the data that the host cannot hold are named", "[train][stand-in]") {
  Session session(lazy());
  const TemporaryFolder folder;
  const std::string file = (folder / "text").string();
  std::ofstream(file) << std::string(1000, 'x');  // and as many tokens of two bytes
  for (const Purpose purpose : {Purpose::training, Purpose::evaluation}) {
    const bool trains = purpose == Purpose::training;
    const config::TrainConfig config =
        configure({{(trains ? "--data.path=" : "--data.validation=") + file}});
    CHECK_THAT(message_of<InputError>([&] {
                 check_memory(config, free_memory(config), purpose, {2999, "a test's limit"});
               }),
               contains((trains ? "data.path: " : "--eval: ") + file + ": reading it takes 3"));
  }
}

TEST_CASE("only what is sharded is offloaded", "[train][stand-in]") {
  Session session(lazy());
  for (const std::string strategy : {"ddp", "zero1", "zero2"}) {
    CHECK_THAT(message_of<InputError>([&] {
                 configure({placed(strategy, 2), {"--parallel.offload_params=true"}});
               }),
               contains(strategy == "ddp" ? "strategy ddp has no shards to move; use fsdp"
                                          : "each forward reads whole parameters on every rank"));
  }
}

TEST_CASE("NCCL needs a card for each rank", "[train][stand-in]") {
  Session session(lazy());
  CHECK(message_of<InputError>([] {
          configure({placed("fsdp", 4), {"--parallel.device_collectives=nccl"}});
        }) ==
        "command line: parallel.device_collectives: is nccl, which needs a card for each of "
        "the 4 ranks, and this machine has 2; use canonical, with which ranks share cards");
}

TEST_CASE("real mode of an estimate measures on the cards what the bound says",
          "[estimate][long]") {
  for (const Words& placed_on :
       {Words{}, placed("ddp", 2), placed("zero2", 3), placed("fsdp", 4)}) {
    for (const Words& more : {Words{},
                              {"--training.mixed_precision_param=bfloat16"},
                              {"--parallel.offload_params=true"}}) {
      const bool is_offload = !more.empty() && more.front().find("offload") != std::string::npos;
      if (is_offload && placed_on != placed("fsdp", 4)) continue;
      if (FSDP_SANITIZED && more.empty()) continue;
      const Words words =
          small_model_with({{"--memory_estimation.disable_fake_mode=true"}, placed_on, more});
      CAPTURE(words);
      Session session(lazy());
      const estimate::EstimatorConfig config =
          estimate::load_estimator_config(std::nullopt, words, {});
      CHECK(config.train.training.device == "cuda");
      const estimate::Estimate made = estimate::make_estimate(config);
      session.finish();
      CHECK_FALSE(made.opinion.is_comparable);
      // All but the losses, which only a training keeps.
      CHECK(made.run.tracker_max() == estimate::device_bound_bytes(config.train) - 512);
      CHECK(made.run.allocator.peak_active == made.run.tracker_max());
      if (is_offload) CHECK(made.run.iterations.back().host_peak.total() > 0);
    }
  }
}

}  // namespace fsdp::train::cuda_train_test
