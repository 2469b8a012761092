// LoRA: the same bits for every strategy, the bytes of the formula, checkpoints, and an export that
// is an ordinary model.
#include "nn/lora.h"
#include "base/check.h"
#include "io/hf_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/evaluation.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace fsdp::train::adapting {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

config::TrainConfig configure(const std::vector<Words>& parts) {
  Words words = {"--training.seq_len=7", "--training.local_batch_size=1",
                 "--training.steps=4",   "--training.global_batch_size=8",
                 "--optimizer.lr=1e-2",  "--lora.rank=3"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return config::load_config(std::nullopt, words);
}

Words sizes() { return {"--model.preset=nano", "--model.vocab_size=127"}; }

RunResult run(const std::vector<Words>& parts, const fs::path& export_to = {}) {
  RunOptions options;
  options.export_folder = export_to.string();
  return run_training(configure(parts), some_text(), options);
}

Words placed(const std::string& name, int ranks) {
  return {"--parallel.strategy=" + name, "--parallel.ranks=" + std::to_string(ranks)};
}

// Without task 8 (a student kit in which it is not written) there are no meshes.
constexpr bool kHasMeshes = FSDP_HAS_TASK8 != 0;

Words mesh_of_two() {
  return {"--parallel.strategy=fsdp", "--parallel.ranks=4",
          "--parallel.data_parallel_replicate_degree=2"};
}

const Words kMixed = {"--training.mixed_precision_param=bfloat16",
                      "--training.mixed_precision_reduce=float32"};

std::map<std::string, std::vector<float>> values_in(const fs::path& folder) {
  const io::SafetensorsReader reader(folder / "model.safetensors");
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, entry] : reader.entries()) {
    const Tensor whole = Tensor::empty(entry.shape);
    reader.read(name, whole);
    values[name] = whole.to_vector<float>();
  }
  return values;
}

void write_source(const fs::path& folder, bool is_tied) {
  Context context({.seed = 77});
  const ContextScope scope(context);
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.vocab_size = 127;
  config.tie_word_embeddings = is_tied;
  nn::TransformerLM model(config);
  io::save_hf_folder(model, folder);
}

}  // namespace

TEST_CASE("LoRA gives the same bits for every strategy, and the bytes of the formula",
          "[train][lora]") {
  const Words tied = {"--model.tie_word_embeddings=true"};
  const Words all = {"--lora.targets=v_proj,down_proj,q_proj,gate_proj"};
  for (const std::vector<Words>& how : std::vector<std::vector<Words>>{
           {sizes()},
           {sizes(), tied, all, {"--training.no_sync=true", "--optimizer.decay_norms=false"}},
           {sizes(), kMixed, {"--training.max_norm=0.01"}},
           {sizes(), kMixed, tied, {"--training.no_sync=true"}}}) {
    const auto with = [&](const Words& more) {
      std::vector<Words> parts = how;
      parts.push_back(more);
      return parts;
    };
    const RunResult single = run(how);
    CHECK(single.peak_bytes == bound_bytes(configure(how)));
    CHECK(single.losses.back() < single.losses.front());
    for (const char* name : {"ddp", "fsdp"}) {
      for (const int ranks : {1, 2, 3, 4}) {
        INFO(how.size() << " " << how.back()[0] << " " << name << " W=" << ranks);
        std::vector<Words> parts = with(placed(name, ranks));
        if (ranks == 3) parts.push_back({"--training.global_batch_size=12"});
        const RunResult sharded = run(parts);
        CHECK(sharded.peak_bytes == bound_bytes(configure(parts)));
        if (ranks == 3) continue;  // other data
        CHECK(sharded.losses == single.losses);
        CHECK(sharded.param_sha256 == single.param_sha256);
      }
    }
    for (const auto& [replicas, ranks] : {std::pair("2", 4), {"4", 4}, {"2", 8}}) {
      if (!kHasMeshes) break;
      INFO(how.size() << " " << how.back()[0] << " " << replicas << " replicas, W=" << ranks);
      const Words mesh = {"--parallel.data_parallel_replicate_degree=" + std::string(replicas)};
      std::vector<Words> parts = with(placed("fsdp", ranks));
      parts.push_back(mesh);
      const RunResult result = run(parts);
      CHECK(result.peak_bytes == bound_bytes(configure(parts)));
      CHECK(result.losses == single.losses);
      CHECK(result.param_sha256 == single.param_sha256);
    }
  }
}

TEST_CASE("LoRA goes on from a checkpoint in any other placement", "[train][lora][checkpoint]") {
  for (const Words& precision : {Words{}, kMixed}) {
    const RunResult whole = run({sizes(), precision});
    for (const auto& [first, second] : {std::pair(placed("fsdp", 4), placed("fsdp", 2)),
                                        {placed("fsdp", 2), placed("single", 1)},
                                        {placed("single", 1), placed("ddp", 2)},
                                        {placed("ddp", 4), placed("fsdp", 4)},
                                        {placed("fsdp", 4), mesh_of_two()},
                                        {mesh_of_two(), placed("single", 1)}}) {
      if (!kHasMeshes && (first == mesh_of_two() || second == mesh_of_two())) continue;
      const TemporaryFolder folder;
      const Words there = {"--checkpoint.folder=" + folder.path().string()};
      run({sizes(), precision, first, there, {"--training.steps=2"}});
      const RunResult rest = run({sizes(), precision, second, there});
      CHECK(rest.first_step == 2);
      CHECK(rest.param_sha256 == whole.param_sha256);
      const auto refused = [&](const std::string& key, const std::string& value) {
        return message_of<InputError>([&] {
          run({sizes(), precision, there, {"--" + key + "=" + value}});
        });
      };
      CHECK_THAT(refused("lora.rank", "2"), contains("lora.rank = 3, now it is 2"));
      CHECK_THAT(refused("lora.rank", "0"), contains("lora.rank = 3, now it is 0"));
      CHECK_THAT(refused("lora.alpha", "8"), contains("lora.alpha = 16, now it is 8"));
      CHECK_THAT(refused("lora.targets", "q_proj"), contains("now it is q_proj"));
    }
  }
}

TEST_CASE("LoRA starts from a model's weights, and its export is an ordinary model",
          "[train][lora][export]") {
  for (const bool is_tied : {false, true}) {
    const TemporaryFolder home;
    write_source(home / "source", is_tied);
    const auto before = values_in(home / "source");
    const Words from = {"--model.from=" + (home / "source").string()};
    for (const Words& precision : {Words{}, kMixed}) {
      const std::string kind = precision.empty() ? "wide" : "mixed";
      const RunResult single = run({from, precision}, home / (kind + "_single"));
      const auto expected = values_in(home / (kind + "_single"));
      for (const auto& [path, values] : expected) {
        const bool is_target = path.ends_with("q_proj.weight") || path.ends_with("v_proj.weight");
        if (precision.empty()) CHECK((values != before.at(path)) == is_target);
      }
      CHECK(expected.size() == before.size());
      for (const auto& [name, ranks] :
           {std::pair("ddp", 2), {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 4}}) {
        INFO(kind << " " << name << " W=" << ranks);
        const fs::path folder = home / (kind + "_" + name + std::to_string(ranks));
        const RunResult sharded = run({from, precision, placed(name, ranks)}, folder);
        CHECK(sharded.param_sha256 == single.param_sha256);
        CHECK(values_in(folder) == expected);
      }
    }
    // An ordinary model: it is read without LoRA, and computes what was trained.
    const Words eval = {"--checkpoint.folder=" + (home / "steps").string()};
    run({from, eval}, home / "exported");
    const config::TrainConfig with_adapters = configure({from, eval});
    const EvaluationResult trained = run_evaluation(with_adapters, some_text(), {});
    const double adapted = trained.loss;
    CHECK(trained.peak_bytes <= bound_bytes(with_adapters, Purpose::evaluation));
    const Words merged = {"--model.from=" + (home / "exported").string(), "--lora.rank=0"};
    const double alone = run_evaluation(configure({merged}), some_text(), {}).loss;
    const double untrained =
        run_evaluation(configure({from, {"--lora.rank=0"}}), some_text(), {}).loss;
    CHECK(std::abs(adapted - alone) < 1e-5);
    CHECK(untrained - alone > 1e-3);
  }
}

TEST_CASE("LoRA's keys are checked", "[train][lora][config]") {
  const auto refused = [](const Words& words) {
    return message_of<InputError>([&] { configure({sizes(), words}); });
  };
  CHECK_THAT(refused({"--lora.targets=q_proj,w_proj"}),
             contains("command line: lora.targets: w_proj is no linear of a block; use some of"));
  CHECK_THAT(refused({"--lora.targets=lm_head"}), contains("lm_head is no linear of a block"));
  CHECK_THAT(refused({"--lora.targets="}), contains("lora.targets: is empty"));
  CHECK_THAT(refused({"--lora.targets=q_proj,q_proj"}), contains("names q_proj twice"));
  CHECK_THAT(refused({"--lora.rank=-1"}), contains("lora.rank"));
  const config::TrainConfig off = configure({sizes(), {"--lora.rank=0", "--lora.alpha=2"}});
  REQUIRE(off.remarks.size() == 1);
  CHECK_THAT(off.remarks[0], contains("lora.alpha: has no effect while lora.rank is 0"));
  CHECK(configure({sizes(), {"--lora.targets=q_proj,v_proj,up_proj"}}).lora_parameters() ==
        2 * 3 * ((16 + 16) * 2 + 16 + 40));
}

}  // namespace fsdp::train::adapting
