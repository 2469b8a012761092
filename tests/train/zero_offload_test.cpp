// ZeRO-Offload through a whole training: the bits of ZeRO without it, and its checkpoints. The host
// is made of the same memory as the device.
#include "comm/world.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/rank_trainer.h"
#include "train/short_training.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <string>
#include <vector>

namespace fsdp::train::zero_offload_test {
namespace {

using short_training::placed;
using short_training::policy;
using short_training::Words;
using testing::TemporaryFolder;

config::TrainConfig configure(const std::vector<Words>& parts) {
  Words words = {"--model.preset=nano",     "--model.vocab_size=127",
                 "--training.seq_len=7",    "--training.local_batch_size=1",
                 "--training.steps=4",      "--training.global_batch_size=12",
                 "--training.max_norm=0.5", "--parallel.zero_partition=flat",
                 "--optimizer.lr=1e-2"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return config::load_config(std::nullopt, words, {}, {.is_modeled = true});
}

/// The parameters in the end.
std::string trained(const std::vector<Words>& parts) {
  const config::TrainConfig config = configure(parts);
  const TokenData data = some_text();
  std::string fingerprint;
  run_ranks({.world_size = config.recipe.ranks, .has_cpu_host = true}, [&](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> shared = borrowed(group);
    const std::string mine = RankTrainer(config, data, {}, {shared}).run().param_sha256;
    if (group.rank() == 0) fingerprint = mine;
  });
  return fingerprint;
}

Words offloaded(const std::string& strategy, int ranks) {
  Words words = placed(strategy, ranks);
  words.emplace_back("--parallel.offload_optimizer=true");
  if (strategy == "zero2") words.emplace_back("--parallel.offload_grads=true");
  return words;
}

}  // namespace

TEST_CASE("ZeRO-Offload trains the bits of ZeRO, at every W and in every format",
          "[train][zero][offload]") {
  const Words scaled = {"--training.mixed_precision_param=float16",
                        "--training.mixed_precision_reduce=float32",
                        "--fp16.initial_scale_power=24", "--fp16.hysteresis=1"};
  const Words lora = {"--lora.rank=2"};
  for (const Words& how : {Words{}, policy("bfloat16", "float32"), scaled, lora}) {
    for (const char* strategy : {"zero1", "zero2"}) {
      for (const int ranks : {1, 2, 3, 4}) {
        if (FSDP_SANITIZED && ranks != 3) continue;
        CAPTURE(how, strategy, ranks);
        CHECK(trained({how, offloaded(strategy, ranks)}) ==
              trained({how, placed(strategy, ranks)}));
      }
    }
  }
}

TEST_CASE("a training goes on from ZeRO-Offload as anything, and as ZeRO-Offload from anything",
          "[train][zero][offload][checkpoint]") {
  Words shards = placed("fsdp", 2);
  shards.emplace_back("--parallel.offload_params=true");
  // As many ranks each time, so that sums have one order.
  const std::vector<std::pair<Words, Words>> cases = {
      {offloaded("zero2", 2), placed("zero2", 2)},
      {placed("zero2", 2), offloaded("zero2", 2)},
      {offloaded("zero1", 2), shards},
      {shards, offloaded("zero2", 2)},
      {offloaded("zero2", 4), placed("ddp", 4)},
      {placed("zero1", 4), offloaded("zero1", 4)},
      {offloaded("zero2", 2), offloaded("zero1", 2)}};
  for (const Words& how : {Words{}, policy("bfloat16", "float32")}) {
    for (const auto& [first, second] : cases) {
      CAPTURE(how, first, second);
      const TemporaryFolder folder;
      const Words saved = {"--checkpoint.folder=" + folder.path().string()};
      trained({how, first, saved, {"--training.steps=2"}});
      CHECK(trained({how, second, saved}) == trained({how, second}));
    }
  }
}

}  // namespace fsdp::train::zero_offload_test
