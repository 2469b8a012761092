// Hybrid sharding through unshard-train: the bits of a single process, and the bytes of a formula.
#include "io/file_io.h"
#include "io/safetensors.h"
#include "paper/memory_formula.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/evaluation.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <string>
#include <vector>

namespace fsdp::train::mesh_test {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

config::TrainConfig configure(const Words& more) {
  Words words = {"--model.preset=nano",  "--model.vocab_size=128",
                 "--training.seq_len=7", "--training.local_batch_size=1",
                 "--training.steps=5",   "--training.global_batch_size=8"};
  words.insert(words.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, words);
}

RunResult train(const Words& more) { return run_training(configure(more), some_text()); }

Words mesh(int replicas, int shards, const Words& more = {}) {
  Words words = {"--parallel.strategy=fsdp",
                 "--parallel.ranks=" + std::to_string(replicas * shards),
                 "--parallel.data_parallel_replicate_degree=" + std::to_string(replicas)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("a mesh of replicas gives the bits of a single process", "[train][mesh]") {
  for (const Words& how :
       {Words{},
        {"--training.mixed_precision_param=bfloat16"},
        {"--training.activation_checkpoint=block", "--training.mixed_precision_param=bfloat16"},
        {"--training.mixed_precision_param=float16", "--fp16.initial_scale_power=17",
         "--fp16.hysteresis=1"},  // some steps are skipped
        {"--training.no_sync=true", "--parallel.reshard_after_forward=false"}}) {
    Words alone = how;
    if (!how.empty() && how[0] == "--training.no_sync=true") alone = {};
    int skipped = 0;
    RunOptions options;
    options.on_step = [&](const StepReport& step) { skipped += step.is_skipped ? 1 : 0; };
    const RunResult single = run_training(configure(alone), some_text(), options);
    CHECK((skipped > 0) == configure(alone).scales_loss());
    for (const auto& [replicas, shards] : {std::pair(2, 2), {4, 2}, {2, 4}, {4, 1}}) {
      const RunResult result = train(mesh(replicas, shards, how));
      INFO(replicas << " replicas of " << shards);
      CHECK(result.losses == single.losses);
      CHECK(result.param_sha256 == single.param_sha256);
      CHECK(result.peak_bytes == bound_bytes(configure(mesh(replicas, shards, how))));
    }
    // Three ranks in a replica add up in another order; the bytes are as foreseen all the same.
    const Words odd = mesh(2, 3, {"--training.global_batch_size=12"});
    CHECK(train(odd).peak_bytes == bound_bytes(configure(odd)));
  }
}

TEST_CASE("a mesh transfers shards between its replicas, once a reduction", "[train][mesh]") {
  constexpr std::int64_t kMicroSteps = 2;
  const RunResult shards = train(mesh(1, 2, {"--training.global_batch_size=4"}));
  const RunResult both = train(mesh(2, 2, {"--training.global_batch_size=8"}));
  const config::TrainConfig config = configure(mesh(1, 2));
  paper::MemoryOptions two;
  two.recipe = {.strategy = optim::Strategy::fsdp, .ranks = 2};
  const std::int64_t shard_bytes =
      paper::MemoryFormula(config.model, two).before_training()[MemoryKind::sharded_param];
  // In each micro-step 2·(R-1)/R·4·n bytes of a shard of n elements. And a rank receives M losses
  // and two flags from three others instead of one.
  const std::int64_t told = 2 * 4 * (kMicroSteps + 2);
  CHECK(both.comm_bytes - shards.comm_bytes ==
        config.training.steps * (kMicroSteps * shard_bytes + told));
  const RunResult less = train(mesh(2, 2, {"--training.no_sync=true"}));
  CHECK(both.comm_bytes - less.comm_bytes >= config.training.steps * shard_bytes);
}

TEST_CASE("a mesh receives the bytes of the formula", "[train][mesh]") {
  constexpr std::int64_t kMicroSteps = 2;
  struct Policy {
    const char* param;
    std::int64_t param_bytes;
  };
  for (const auto& [param, param_bytes] : {Policy{"float32", 4}, {"bfloat16", 2}}) {
    for (const auto& [replicas, shards] : {std::pair(1, 4), {2, 2}, {4, 2}, {2, 4}, {4, 1}}) {
      for (const bool reshards : {true, false}) {
        for (const bool no_sync : {true, false}) {
          const std::int64_t W = replicas * shards, R = replicas, S = shards;
          const config::TrainConfig config = configure(mesh(
              replicas, shards,
              {"--training.global_batch_size=" + std::to_string(kMicroSteps * W),
               "--training.max_norm=0", "--training.steps=2",
               std::string("--training.mixed_precision_param=") + param,
               std::string("--parallel.reshard_after_forward=") + (reshards ? "true" : "false"),
               std::string("--training.no_sync=") + (no_sync ? "true" : "false")}));
          const nn::TransformerConfig& model = config.model;
          const std::int64_t N = model.parameter_count();  // every S divides every unit
          const std::int64_t kept = model.vocab_size * model.hidden_size + model.hidden_size;
          const std::int64_t gathered = kMicroSteps * (reshards ? 2 * N - kept : N) * param_bytes;
          const std::int64_t reduced = (no_sync ? 1 : kMicroSteps) * N * 4;
          const std::int64_t told = (W - 1) * 4 * (kMicroSteps + 2);  // losses, and two flags
          INFO(param << " R=" << R << " S=" << S << " " << reshards << no_sync);
          CHECK(run_training(config, some_text()).comm_bytes ==
                config.training.steps *
                    ((gathered + reduced) * (S - 1) / S + 2 * (R - 1) * reduced / (R * S) + told));
        }
      }
    }
  }
}

TEST_CASE("a training goes on from a mesh as anything, and as a mesh from anything",
          "[train][mesh][checkpoint]") {
  const RunResult whole = train({});
  const std::vector<std::pair<Words, Words>> cases = {
      {mesh(2, 2), mesh(1, 4)},
      {mesh(2, 2), {}},
      {{}, mesh(4, 2)},
      {{"--parallel.strategy=ddp", "--parallel.ranks=2"}, mesh(2, 2)},
      {mesh(2, 4), mesh(4, 1)}};
  for (const auto& [first, second] : cases) {
    const TemporaryFolder folder;
    const auto there = [&](Words words) {
      words.push_back("--checkpoint.folder=" + folder.path().string());
      return words;
    };
    Words begin = there(first);
    begin.emplace_back("--training.steps=2");
    train(begin);
    const RunResult rest = train(there(second));
    CHECK(rest.first_step == 2);
    CHECK(rest.param_sha256 == whole.param_sha256);
    const config::TrainConfig config = configure(there(mesh(2, 2)));
    const EvaluationResult found = run_evaluation(config, some_text());
    CHECK(found.steps_done == 5);
    CHECK(found.loss == run_evaluation(configure(there({})), some_text()).loss);
    CHECK(found.peak_bytes <= bound_bytes(config, Purpose::evaluation));
  }
}

TEST_CASE("a training goes through meshes, shards and one process, and back",
          "[train][mesh][checkpoint]") {
  for (const char* param : {"float32", "bfloat16"}) {
    const std::string precision = std::string("--training.mixed_precision_param=") + param;
    const Words all = {precision, "--training.max_norm=0.5"};
    const RunResult whole = train(all);
    const TemporaryFolder folder;
    const Words alone = {"--parallel.strategy=single"};
    int steps = 0;
    for (Words words :
         {mesh(2, 2), mesh(1, 4, {"--training.no_sync=true"}), alone, mesh(1, 4), mesh(2, 2)}) {
      words.insert(words.end(), all.begin(), all.end());
      words.push_back("--checkpoint.folder=" + folder.path().string());
      words.push_back("--training.steps=" + std::to_string(++steps));
      const RunResult part = train(words);
      CHECK(part.first_step == steps - 1);
      CHECK(part.losses ==
            std::vector<float>{whole.losses.at(static_cast<std::size_t>(steps - 1))});
      if (steps == 5) CHECK(part.param_sha256 == whole.param_sha256);
    }
  }
}

TEST_CASE("one replica exports the model", "[train][mesh][export]") {
  const TemporaryFolder home;
  const auto exported = [&](const Words& words, const char* name) {
    RunOptions options;
    options.export_folder = (home / name).string();
    run_training(configure(words), some_text(), options);
    return io::read_text(home / name / "model.safetensors");
  };
  CHECK(exported(mesh(2, 2), "mesh") == exported({}, "single"));
}

TEST_CASE("replicas must fit the ranks", "[config][mesh]") {
  const auto complaint = [](const Words& words) {
    return message_of<InputError>([&] { configure(words); });
  };
  CHECK(complaint(mesh(2, 2)).empty());
  CHECK_THAT(complaint({"--parallel.strategy=fsdp", "--parallel.ranks=4",
                        "--parallel.data_parallel_replicate_degree=3"}),
             contains("parallel.data_parallel_replicate_degree: is 3, must divide parallel.ranks "
                      "4"));
  CHECK_THAT(complaint(mesh(2, 2, {"--parallel.reshard_after_forward=2"})),
             contains("is 2, must be true, false, or a number that divides the 2 ranks of a "
                      "replica and lies strictly between 1 and 2"));
  CHECK(complaint(mesh(2, 4, {"--parallel.reshard_after_forward=2"})).empty());
  const config::TrainConfig ddp = configure({"--parallel.strategy=ddp", "--parallel.ranks=4",
                                             "--parallel.data_parallel_replicate_degree=2"});
  REQUIRE(ddp.remarks.size() == 1);
  CHECK_THAT(ddp.remarks[0], contains("without parallel.strategy fsdp"));
  CHECK(ddp.recipe.shards() == 4);
}

}  // namespace fsdp::train::mesh_test
