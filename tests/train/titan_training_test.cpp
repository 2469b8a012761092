// Trainings that a file of torchtitan describes.
#include "base/check.h"
#include "config/config.h"
#include "config/explain.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/program.h"
#include "train/short_training.h"

#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using short_training::Words;
using testing::TemporaryFolder;

// The sizes come from the command line, so that a step is short.
const std::string kFile = R"(
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "debugmodel"
tokenizer_path = "./tokenizer.model"
[optimizer]
name = "AdamW"
lr = 4e-3
[lr_scheduler]
warmup_steps = 1
decay_ratio = 0.5
decay_type = "sqrt"
lr_min = 0.25
[training]
batch_size = 1
seq_len = 7
steps = 4
[parallelism]
data_parallel_shard_degree = -1
[checkpoint]
enable_checkpoint = false
folder = "checkpoint"
interval = 500
[activation_checkpoint]
mode = "full"
)";
const Words kNano = {"--model.preset=nano", "--model.vocab_size=127"};

config::TrainConfig load(const std::string& text, const Words& words,
                         const config::Environment& environment = {}) {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "llama.toml", text);
  return config::load_config(folder / "llama.toml", words, {}, {.environment = environment});
}

}  // namespace

TEST_CASE("a training by torchtitan's file is the one in our keys", "[train][titan]") {
  for (const int ranks : {1, 2, 3, 4}) {
    INFO("ranks " << ranks);
    const std::string count = std::to_string(ranks);
    // Which blocks are computed again changes no bit.
    Words theirs_words = kNano;
    if (ranks == 2) theirs_words.emplace_back("--activation_checkpoint.mode=selective");
    if (ranks == 3) theirs_words.emplace_back("--activation_checkpoint.selective_ac_option=op");
    if (ranks == 3) theirs_words.emplace_back("--activation_checkpoint.mode=selective");
    const RunResult theirs =
        short_training::train(load(kFile, theirs_words, {.ngpu = count})).result;
    Words words = kNano;
    words.insert(words.end(),
                 {"--parallel.ranks=" + count, "--parallel.strategy=fsdp",
                  "--training.mixed_precision_param=bfloat16", "--training.seq_len=7",
                  "--training.local_batch_size=1", "--training.steps=4", "--training.max_norm=1",
                  "--training.activation_checkpoint=block", "--optimizer.name=adamw",
                  "--optimizer.lr=0.004", "--optimizer.beta2=0.95", "--optimizer.weight_decay=0.1",
                  "--lr_scheduler.kind=warmup_stable_sqrt", "--lr_scheduler.warmup_steps=1",
                  "--lr_scheduler.decay_steps=2", "--lr_scheduler.min_lr=0.001"});
    const RunResult ours = short_training::train(config::load_config(std::nullopt, words)).result;
    CHECK(theirs.param_sha256 == ours.param_sha256);
    CHECK(theirs.losses == ours.losses);
  }
}

TEST_CASE("torchtitan's environment counts beside its file alone", "[train][titan]") {
  CHECK(load(kFile, kNano).recipe.ranks == 8);
  CHECK(load(kFile, kNano, {.ngpu = "2", .nnodes = "3"}).recipe.ranks == 6);
  CHECK(load(kFile, {"--model.preset=nano", "--parallel.ranks=2"}, {.ngpu = "4"}).recipe.ranks ==
        2);
  const std::string ours = "[model]\npreset = \"nano\"\n";
  CHECK(load(ours, {}, {.ngpu = "4"}).recipe.ranks == 1);
  CHECK(load(ours, {}, {.ngpu = "four"}).recipe.ranks == 1);
  CHECK_THAT(message_of<InputError>([&] { load(kFile, kNano, {.ngpu = "four"}); }),
             contains("environment: NGPU: is four, must be a whole number"));
}

TEST_CASE("what torchtitan's file switches off is off in a training", "[train][titan]") {
  const config::TrainConfig config = load(kFile, kNano);
  CHECK(config.checkpoint.folder.empty());
  std::string notes;
  for (const std::string& remark : config.remarks) notes += remark + "\n";
  CHECK_THAT(notes, contains("model.tokenizer_path: has no effect here: data.path says") &&
                        contains("is torchtitan's, whose defaults count"));
  std::string offload = kFile;
  offload.replace(offload.find("batch_size"), 0, "enable_cpu_offload = true\n");
  const config::TrainConfig on_cpu = load(offload, kNano);
  CHECK_FALSE(on_cpu.recipe.sharding.offload.params);
  std::string said;
  for (const std::string& remark : on_cpu.remarks) said += remark + "\n";
  CHECK_THAT(said, contains("training.enable_cpu_offload: has no effect on a CPU"));
}

TEST_CASE("the program trains by torchtitan's file, and explains it", "[train][program][titan]") {
  const TemporaryFolder folder;
  const std::string file = folder / "llama.toml";
  io::write_text_atomically(file, kFile);
  io::write_text_atomically(folder / "text.txt", std::string(400, 'a') + "bcd");
  const auto run = [&](const std::string& words) {
    return testing::run_command(folder, "cd '" + folder.path().string() +
                                            "' && unset NNODES CONFIG_FILE && NGPU=2 "
                                            "'" FSDP_TRAIN_PROGRAM "' " +
                                            words);
  };
  const testing::Finished trained =
      run("--job.config_file llama.toml --data.path text.txt --model.preset nano "
          "--model.vocab_size 128");
  INFO(trained.err);
  CHECK(trained.code == 0);
  CHECK_THAT(trained.out, contains("strategy fsdp, 2 rank(s)") && contains("step 4/4"));
  const testing::Finished explained = run("--explain llama.toml");
  CHECK(explained.code == 0);
  CHECK_THAT(explained.out, contains("lr_scheduler.kind = warmup_stable_sqrt"));
  io::write_text_atomically(file, kFile + "[experimental]\ncontext_parallel_degree = 2\n");
  const testing::Finished refused = run("--explain llama.toml");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.out, contains("refused"));
  CHECK_THAT(refused.err, contains("experimental.context_parallel_degree: is 2, must be 1"));
}

}  // namespace fsdp::train
