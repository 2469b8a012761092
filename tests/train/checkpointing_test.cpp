// Activation checkpointing through unshard-train: the same bits, fewer bytes, as foreseen.
#include "paper/memory_formula.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/evaluation.h"
#include "train/memory_check.h"
#include "train/program.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::train::activation_checkpoint_test {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

const std::string kBlock = "--training.activation_checkpoint=block";
const std::string kOperations = "--training.activation_checkpoint=operations";

config::TrainConfig configure(const Words& more, const std::string& checkpoint = "") {
  Words words = {"--model.preset=nano",
                 "--model.vocab_size=128",
                 "--model.num_hidden_layers=6",
                 "--training.seq_len=7",
                 "--training.steps=4",
                 "--training.local_batch_size=4",
                 "--training.global_batch_size=16"};
  words.insert(words.end(), more.begin(), more.end());
  if (!checkpoint.empty()) words.push_back(checkpoint);
  return config::load_config(std::nullopt, words);
}

RunResult train(const config::TrainConfig& config) { return run_training(config, some_text()); }

const Words kSingle = {};
const Words kDdp = {"--parallel.strategy=ddp", "--parallel.ranks=4"};
const Words kFsdp = {"--parallel.strategy=fsdp", "--parallel.ranks=4"};
const Words kMesh = {"--parallel.strategy=fsdp", "--parallel.ranks=4",
                     "--parallel.data_parallel_replicate_degree=2"};

}  // namespace

TEST_CASE("activation checkpoints change no bit, and the peak is the formula's", "[train]") {
  for (const Words& how :
       {Words{}, {"--training.mixed_precision_param=bfloat16"}, {"--lora.rank=2"}}) {
    const RunResult plain = train(configure(how));
    for (const Words& where : {kSingle, kDdp, kFsdp, kMesh}) {
      Words words = how;
      words.insert(words.end(), where.begin(), where.end());
      const std::int64_t without = train(configure(words)).peak_bytes;
      std::int64_t higher = without;
      for (const std::string& which : {kOperations, kBlock}) {  // which keeps less
        const config::TrainConfig config = configure(words, which);
        const RunResult result = train(config);
        CAPTURE(words.size(), config.recipe.strategy, which);
        CHECK(result.losses == plain.losses);
        CHECK(result.param_sha256 == plain.param_sha256);
        CHECK(result.peak_bytes == bound_bytes(config));
        CHECK(result.peak_bytes < without);
        CHECK(result.peak_bytes <= higher);
        higher = result.peak_bytes;
      }
    }
  }
}

TEST_CASE("activation checkpoints transfer no byte more", "[train]") {
  CHECK(train(configure(kFsdp, kBlock)).comm_bytes == train(configure(kFsdp)).comm_bytes);
}

TEST_CASE("a training goes on with activation checkpoints, and without", "[train][checkpoint]") {
  const RunResult whole = train(configure(kFsdp));
  for (const bool first : {false, true}) {
    const TemporaryFolder folder;
    const auto there = [&](const Words& where, bool checkpoints) {
      Words words = where;
      words.push_back("--checkpoint.folder=" + folder.path().string());
      if (checkpoints) words.push_back(kBlock);
      return words;
    };
    Words begin = there(kFsdp, first);
    begin.emplace_back("--training.steps=2");
    train(configure(begin));
    const RunResult rest = train(configure(there(kSingle, !first)));
    CHECK(rest.first_step == 2);
    CHECK(rest.param_sha256 == whole.param_sha256);
    const config::TrainConfig config = configure(there(kFsdp, true));
    const EvaluationResult found = run_evaluation(config, some_text());
    CHECK(found.loss == run_evaluation(configure(there(kSingle, false)), some_text()).loss);
    CHECK(found.peak_bytes <= bound_bytes(config, Purpose::evaluation));
  }
}

TEST_CASE("an activation checkpoint that there is not is refused", "[config]") {
  CHECK(message_of<InputError>([] { configure({"--training.activation_checkpoint=full"}); }) ==
        "command line: training.activation_checkpoint: is \"full\", must be one of none, block, "
        "operations");
  CHECK_THAT(message_of<InputError>([] { configure({"--training.kept_operations=q_proj,wq"}); }),
             contains("training.kept_operations: has 'wq', which is no operation of a block; use "
                      "some of q_proj, k_proj"));
  CHECK_THAT(message_of<InputError>([] { configure({"--training.checkpoint_every=0"}); }),
             contains("training.checkpoint_every: is 0"));
  CHECK(configure({}).recipe.checkpointing == optim::Checkpointing::none);
}

TEST_CASE("FairScale's sums in float32 need mixed precision", "[config]") {
  const std::string sums = "--training.fp32_reduce_scatter=true";
  CHECK_THAT(message_of<InputError>([&] { configure({sums}); }),
             contains("training.fp32_reduce_scatter: is true, but without mixed precision"));
  const std::string half = "--training.mixed_precision_param=bfloat16";
  CHECK(configure({sums, half}).recipe.precision.reduce_dtype_for(DType::float32) ==
        DType::float32);
  CHECK_THAT(message_of<InputError>([&] {
               configure({sums, half, "--training.mixed_precision_reduce=bfloat16"});
             }),
             contains("training.fp32_reduce_scatter: is true, but training.mixed_precision_reduce "
                      "is bfloat16; leave one of them out"));
}

TEST_CASE("a training that does not fit is told what activation checkpoints would save",
          "[train][memory]") {
  const auto refusal = [](const Words& more) {
    const config::TrainConfig config = configure(more);
    return message_of<InputError>(
        [&] { check_memory(config, {.nbytes = 1 << 20, .limit = "a limit"}); });
  };
  const std::string advice = "with training.activation_checkpoint block it is";
  CHECK_THAT(refusal({"--training.local_batch_size=16"}), contains(advice));
  CHECK(refusal({"--training.local_batch_size=16", kBlock}).find(advice) == std::string::npos);
  CHECK(refusal({"--model.vocab_size=100000"}).find(advice) == std::string::npos);
}

}  // namespace fsdp::train::activation_checkpoint_test
