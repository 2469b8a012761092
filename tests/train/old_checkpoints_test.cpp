// Checkpoints in tests/golden/checkpoints, which an earlier commit wrote: every later one loads
// them, at the same place or at another, and goes on with the bits that the earlier one computed.
//
// `OLD_CHECKPOINTS=anew test_train "[old_checkpoints_anew]"` writes them anew, and what is expected
// of them. Do that only at a commit whose numbers are right. The variable is there because a filter
// that leaves something out, such as "~[program]", runs hidden cases, too.
#include "comm/world.h"
#include "io/checkpoint_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/evaluation.h"
#include "train/rank_trainer.h"
#include "train/short_training.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace fsdp::train::old_checkpoints {
namespace {

namespace fs = std::filesystem;
using short_training::placed;
using short_training::policy;
using short_training::Words;
using testing::TemporaryFolder;

constexpr int kVocabulary = 17;

/// A training that an earlier commit left after three steps.
struct Old {
  std::string name;  ///< of its folder
  Words where;
  Words how = {};
};

TokenData numbers() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * i % kVocabulary);
  return TokenData::from_text(text, "numbers", kVocabulary);
}

Words zero(const std::string& strategy, int ranks, const std::string& partition) {
  Words words = placed(strategy, ranks);
  words.push_back("--parallel.zero_partition=" + partition);
  return words;
}

std::vector<Old> all_old() {
  const Words mixed = policy("bfloat16", "float32");
  const Words scaled = {
      "--training.mixed_precision_param=float16", "--training.mixed_precision_reduce=float32",
      "--fp16.initial_scale_power=40", "--fp16.hysteresis=1", "--fp16.loss_scale_window=1"};
  const Words lora = {"--lora.rank=2", "--lora.targets=q_proj,v_proj,down_proj"};
  Words mixed_lora = lora;
  mixed_lora.insert(mixed_lora.end(), mixed.begin(), mixed.end());
  Words offloaded = placed("fsdp", 2);
  offloaded.emplace_back("--parallel.offload_params=true");
  return {
      {"single", placed("single", 1)},
      {"ddp", placed("ddp", 2)},
      {"zero1_greedy", zero("zero1", 3, "greedy")},
      {"zero1_flat", zero("zero1", 2, "flat")},
      {"zero1_round_robin", zero("zero1", 4, "round_robin")},
      {"zero2_greedy", zero("zero2", 2, "greedy")},
      {"zero2_flat", zero("zero2", 3, "flat")},
      {"zero2_round_robin", zero("zero2", 4, "round_robin")},
      {"fsdp", placed("fsdp", 3)},
      {"fsdp_mesh", placed("fsdp", 4, 2)},
      {"fsdp_offload", offloaded},
      {"fsdp_norms", placed("fsdp", 3), {"--optimizer.decay_norms=false"}},
      {"bfloat16_zero1", zero("zero1", 3, "flat"), mixed},
      {"bfloat16_zero2", zero("zero2", 4, "greedy"), policy("bfloat16", "bfloat16")},
      {"bfloat16_fsdp", placed("fsdp", 2), mixed},
      {"float16_zero2", zero("zero2", 2, "flat"), scaled},
      {"float16_fsdp", placed("fsdp", 3), scaled},
      {"rounded_zero1", zero("zero1", 2, "greedy"), {"--parallel.broadcast_fp16=true"}},
      {"lora_zero2", zero("zero2", 3, "flat"), lora},
      {"lora_fsdp", placed("fsdp", 2), lora},
      {"lora_bfloat16_ddp", placed("ddp", 2), mixed_lora},
      {"lora_bfloat16_zero1", zero("zero1", 2, "round_robin"), mixed_lora},
      {"sgd_single", placed("single", 1), {"--optimizer.name=sgd", "--optimizer.momentum=0.9"}},
      {"adam_zero1", placed("zero1", 2), {"--optimizer.name=adam"}},
      {"adamax_ddp", placed("ddp", 2), {"--optimizer.name=adamax"}},
      {"adagrad_fsdp", placed("fsdp", 2), {"--optimizer.name=adagrad"}},
      {"adadelta_zero2", placed("zero2", 3), {"--optimizer.name=adadelta"}},
      {"pairs_fsdp", placed("fsdp", 3), {"--training.local_batch_size=2"}},
  };
}

/// Where each of them goes on, beside its own place.
std::vector<Words> places_of(const Old& old) {
  if (old.name == "rounded_zero1") return {placed("zero2", 3), zero("zero1", 4, "flat")};
  if (old.name == "pairs_fsdp") {  // six micro-batches of two sequences
    return {placed("single", 1), placed("ddp", 3), zero("zero2", 2, "flat"), placed("fsdp", 2)};
  }
  return {placed("single", 1),      placed("ddp", 3),  zero("zero1", 4, "flat"),
          zero("zero2", 2, "flat"), placed("fsdp", 4), placed("fsdp", 3)};
}

config::TrainConfig configure(const std::vector<Words>& parts) {
  Words words = {"--model.num_hidden_layers=1",
                 "--model.hidden_size=6",
                 "--model.num_attention_heads=3",
                 "--model.num_key_value_heads=1",
                 "--model.intermediate_size=5",
                 "--model.max_position_embeddings=5",
                 fmt::format("--model.vocab_size={}", kVocabulary),
                 "--training.local_batch_size=1",
                 "--training.global_batch_size=12",
                 "--training.steps=5",
                 "--lr_scheduler.kind=warmup_cosine",
                 "--lr_scheduler.total_steps=8",
                 "--lr_scheduler.warmup_steps=1",
                 "--optimizer.lr=1e-2"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return config::load_config(std::nullopt, words, {},
                             {.is_modeled = true});  // which allows offload
}

/// The parameters in the end. Shards are offloaded to a host that is made of the same memory.
std::string fingerprint_of(const config::TrainConfig& config) {
  const TokenData data = numbers();
  if (!config.recipe.sharding.offload.params) return run_training(config, data).param_sha256;
  std::string fingerprint;
  run_ranks({.world_size = config.recipe.ranks, .has_cpu_host = true}, [&](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> shared = borrowed(group);
    const std::string mine = RankTrainer(config, data, {}, {shared}).run().param_sha256;
    if (group.rank() == 0) fingerprint = mine;
  });
  return fingerprint;
}

/// What the run says that goes on from a copy of `checkpoints`.
std::string continued(const Old& old, const Words& where, const fs::path& checkpoints) {
  const TemporaryFolder copy;
  fs::copy(checkpoints, copy.path(), fs::copy_options::recursive);
  return fingerprint_of(
      configure({where, old.how, {"--checkpoint.folder=" + copy.path().string()}}));
}

/// What an evaluation of its parameters says, to the last bit.
std::string evaluated(const Old& old, const fs::path& checkpoints) {
  Words where = old.where;
  if (old.name == "fsdp_offload") where = placed("fsdp", 2);
  const config::TrainConfig config =
      configure({where, old.how, {"--checkpoint.folder=" + checkpoints.string()}});
  return fmt::format("{:a}", run_evaluation(config, numbers(), {}).loss);
}

using Expected = std::map<std::string, std::string>;  // by "name: where"

Expected expected_of(const Old& old, const fs::path& checkpoints) {
  Expected all;
  all[old.name + ": evaluated"] = evaluated(old, checkpoints);
  all[old.name + ": where it was"] = continued(old, old.where, checkpoints);
  std::vector<Words> places = places_of(old);
  if (FSDP_SANITIZED != 0) places = {places.back()};  // elsewhere is shown without a sanitizer
  for (const Words& where : places) {
    all[fmt::format("{}: {}", old.name, fmt::join(where, " "))] =
        continued(old, where, checkpoints);
  }
  return all;
}

fs::path golden() { return FSDP_PROJECT_ROOT "/tests/golden/checkpoints"; }

}  // namespace

TEST_CASE("checkpoints of an earlier commit go on with its bits", "[train][checkpoint]") {
  Expected golden_values;
  std::ifstream lines(golden() / "expected.txt");
  for (std::string key, value; std::getline(lines, key, '\t') && std::getline(lines, value);) {
    golden_values[key] = value;
  }
  std::size_t compared = 0;
  for (const Old& old : all_old()) {
    if (old.name == "fsdp_mesh" && FSDP_HAS_TASK8 == 0) continue;
    for (const auto& [key, value] : expected_of(old, golden() / old.name)) {
      INFO(key);
      CHECK(golden_values[key] == value);
      ++compared;
    }
  }
  CHECK(compared >= (FSDP_SANITIZED ? 80 : 200));
}

TEST_CASE("writes the checkpoints of this commit", "[.][old_checkpoints_anew]") {
  if (std::getenv("OLD_CHECKPOINTS") == nullptr) return;
  fs::remove_all(golden());
  fs::create_directories(golden());
  std::ofstream lines(golden() / "expected.txt");
  for (const Old& old : all_old()) {
    INFO(old.name);
    const TemporaryFolder folder;
    const Words there = {"--checkpoint.folder=" + folder.path().string(), "--training.steps=3"};
    fingerprint_of(configure({old.where, old.how, there}));
    fs::remove(folder / ".lock");
    fs::copy(folder.path(), golden() / old.name, fs::copy_options::recursive);
    const Expected all = expected_of(old, golden() / old.name);
    REQUIRE(all.at(old.name + ": where it was") ==
            fingerprint_of(configure({old.where, old.how})));  // uninterrupted
    for (const auto& [key, value] : all) lines << key << "\t" << value << "\n";
  }
}

}  // namespace fsdp::train::old_checkpoints
