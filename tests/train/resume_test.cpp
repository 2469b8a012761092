// A training that is resumed is the same training, or it is an error that names the difference.
#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/run_state.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;

config::TrainConfig configure(const TemporaryFolder& folder,
                              const std::vector<std::string>& changes) {
  std::vector<std::string> all = {"--model.preset=nano",
                                  "--model.vocab_size=128",
                                  "--training.local_batch_size=1",
                                  "--training.steps=2",
                                  "--lr_scheduler.kind=warmup_cosine",
                                  "--lr_scheduler.total_steps=8",
                                  "--lr_scheduler.warmup_steps=1",
                                  "--checkpoint.folder=" + folder.path().string()};
  all.insert(all.end(), changes.begin(), changes.end());
  return config::load_config(std::nullopt, all);
}

std::string resume(const TemporaryFolder& folder, const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  all.emplace_back("--training.steps=3");
  return message_of<InputError>([&] { run_training(configure(folder, all), some_text()); });
}

}  // namespace

TEST_CASE("what changes the numbers may not change when a training is resumed", "[train][resume]") {
  const TemporaryFolder folder;
  run_training(configure(folder, {}), some_text());
  const auto refused = [&](const std::string& key, const std::string& before,
                           const std::string& now) {
    const std::string message = resume(folder, {"--" + key + "=" + now});
    CHECK_THAT(message,
               contains((folder / "step_2").string()) &&
                   contains("was saved with " + key + " = " + before + ", now it is " + now) &&
                   contains("use the same value (--" + key + " " + before + ")"));
  };
  refused("model.num_hidden_layers", "2", "1");
  refused("model.tie_word_embeddings", "false", "true");
  refused("model.num_attention_heads", "2", "4");
  refused("model.num_key_value_heads", "2", "1");
  refused("model.head_dim", "0", "16");
  refused("model.rms_norm_eps", "1e-05", "1e-06");
  refused("model.rope_theta", "10000", "500000");
  refused("model.rope_factor", "0", "8");
  refused("model.intermediate_size", "40", "44");
  refused("model.pad_token_id", "-1", "5");
  refused("optimizer.name", "adamw", "sgd");
  refused("optimizer.beta1", "0.9", "0.8");
  refused("optimizer.beta2", "0.95", "0.99");
  refused("optimizer.eps", "1e-08", "1e-07");
  refused("optimizer.weight_decay", "0.1", "0");
  refused("optimizer.decay_norms", "true", "false");
  refused("training.max_norm", "1", "0");
  refused("training.seed", "1", "2");
  refused("training.global_batch_size", "1", "2");
  refused("training.seq_len", "8", "4");
  refused("lr_scheduler.kind", "warmup_cosine", "warmup_linear");
  refused("lr_scheduler.total_steps", "8", "9");
  refused("lr_scheduler.warmup_steps", "1", "2");
}

TEST_CASE("what does not change the numbers may change, and what says the same may be said anew",
          "[train][resume]") {
  const TemporaryFolder folder;
  run_training(configure(folder, {}), some_text());
  const config::TrainConfig config =
      configure(folder, {"--parallel.strategy=fsdp", "--parallel.threads_per_rank=2",
                         "--model.num_key_value_heads=2", "--model.head_dim=8",
                         "--model.rope_low_freq_factor=2", "--training.seq_len=8",
                         "--training.global_batch_size=1", "--model.rms_norm_eps=0.00001",
                         "--optimizer.lr=1e-4", "--training.steps=3", "--metrics.log_freq=7",
                         "--sample.max_new_tokens=1", "--checkpoint.interval=1"});
  CHECK(run_training(config, some_text()).first_step == 2);
}

TEST_CASE("every key that is not listed as free is compared", "[train][resume]") {
  const TemporaryFolder folder;
  run_training(configure(folder, {}), some_text());
  const config::TrainConfig config = configure(folder, {});
  const auto step_2 = folder / "step_2";
  CHECK(check_same_run(step_2, config, some_text()) == 2);
  int compared = 0;
  for (const auto& [key, value] : config.settings) {
    // These stand for other values, and are compared above.
    if (key == "model.num_key_value_heads" || key == "model.head_dim" ||
        key == "training.global_batch_size" || key == "training.seq_len")
      continue;
    INFO(key);
    config::TrainConfig other = config;
    other.settings[key] = "another";
    const std::string message =
        message_of<InputError>([&] { check_same_run(step_2, other, some_text()); });
    CHECK(message.empty() == may_differ(config, key));
    if (!message.empty()) {
      CHECK_THAT(message, contains(" " + key + " = " + value));
      ++compared;
    }
  }
  CHECK(compared >= 20);
}

TEST_CASE("shards of two runs of the same training do not mix", "[train][resume]") {
  const TemporaryFolder one, two;
  for (const TemporaryFolder* folder : {&one, &two}) {
    run_training(configure(*folder, {"--parallel.strategy=fsdp", "--parallel.ranks=2",
                                     "--training.global_batch_size=2"}),
                 some_text());
  }
  const std::string name = "step_2/shard-00001-of-00002.safetensors";
  CHECK(io::read_text(one / name).size() == io::read_text(two / name).size());
  std::filesystem::copy_file(two / name, one / name,
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(resume(one, {"--training.global_batch_size=2"}),
             contains((one / name).string() + ": was not saved together with"));
}

}  // namespace fsdp::train
