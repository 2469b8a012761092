// Trainings under a DeepSpeed configuration are those of the same settings in our own keys.
#include "base/check.h"
#include "support/catch.h"
#include "train/deepspeed_files.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include "train/program.h"

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace fsdp::train::deepspeed_test {
namespace {

using testing::Finished;
using testing::run_command;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

// A decay that is seen in a few steps, and betas that are no defaults.
const char* const kOptimizer = R"("optimizer": {"type": "Adam", "params": {
    "lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.05}})";
const char* const kRest = R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.5,
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.001,
        "warmup_max_lr": 0.01, "warmup_num_steps": 3, "total_num_steps": 6}})";

std::string with_stage(int stage) {
  return R"("zero_optimization": {"stage": )" + std::to_string(stage) + "}";
}

std::string document(const std::string& optimizer, int stage) {
  return "{" + optimizer + ", " + kRest + ", " + with_stage(stage) + "}";
}

// The same in our keys.
const Words kOurs = {"--optimizer.name=adamw",        "--optimizer.lr=0.01",
                     "--optimizer.beta1=0.8",         "--optimizer.beta2=0.95",
                     "--optimizer.eps=1e-6",          "--optimizer.weight_decay=0.05",
                     "--training.local_batch_size=1", "--training.global_batch_size=8",
                     "--training.max_norm=0.5",       "--lr_scheduler.kind=warmup_log_decay",
                     "--lr_scheduler.min_lr=0.001",   "--lr_scheduler.warmup_steps=3",
                     "--lr_scheduler.total_steps=6"};

Words of_model(const Words& more) {
  Words words = {"--model.preset=nano", "--model.vocab_size=127", "--training.seq_len=7",
                 "--training.steps=5"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

RunResult train_json(const std::string& json, const Words& more) {
  return run_training(load_deepspeed(json, of_model(more)), some_text());
}

RunResult train_ours(const Words& more) {
  Words words = of_model(kOurs);
  words.insert(words.end(), more.begin(), more.end());
  return run_training(config::load_config(std::nullopt, words), some_text());
}

std::string without(std::string text, const std::string& part) {
  const std::size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.erase(at, part.size());
}

/// The document that DeepSpeed's users begin with.
constexpr const char* kSourceDocument = FSDP_PROJECT_ROOT "/apps/train/configs/ds_config.json";

}  // namespace

TEST_CASE("every stage of DeepSpeed trains what our own keys train, in every bit",
          "[train][deepspeed]") {
  const RunResult ours = train_ours({});
  CHECK(ours.losses.back() < ours.losses.front());
  for (const int stage : {0, 1, 2, 3}) {
    for (const char* ranks : {"1", "2", "4"}) {
      INFO("stage " << stage << " W=" << ranks);
      const RunResult run = train_json(document(kOptimizer, stage), {"--parallel.ranks", ranks});
      CHECK(run.losses == ours.losses);
      CHECK(run.param_sha256 == ours.param_sha256);
    }
  }
}

TEST_CASE("no param of the optimizer is lost on the way", "[train][deepspeed]") {
  const std::string whole = train_json(document(kOptimizer, 0), {}).param_sha256;
  for (const char* part :
       {R"("betas": [0.8, 0.95], )", R"("eps": 1e-6, )", R"(, "weight_decay": 0.05)"}) {
    const std::string json = without(kOptimizer, part);
    INFO(json);
    CHECK(train_json(document(json, 0), {}).param_sha256 != whole);
  }
}

TEST_CASE("a checkpoint goes on from DeepSpeed's file to our keys, and back",
          "[train][deepspeed][checkpoint]") {
  const RunResult whole = train_ours({});
  const Words three = {"--training.steps=3"};
  const auto in = [](const TemporaryFolder& folder, Words words) {
    words.push_back("--checkpoint.folder=" + folder.path().string());
    return words;
  };
  const TemporaryFolder first;
  train_json(document(kOptimizer, 3), in(first, {"--training.steps=3", "--parallel.ranks=4"}));
  const RunResult to_ours = train_ours(in(first, {}));
  CHECK(to_ours.first_step == 3);
  CHECK(to_ours.param_sha256 == whole.param_sha256);
  const TemporaryFolder second;
  train_ours(in(second, three));
  const RunResult to_json = train_json(document(kOptimizer, 2), in(second, {"--parallel.ranks=2"}));
  CHECK(to_json.first_step == 3);
  CHECK(to_json.param_sha256 == whole.param_sha256);
  // Another setting of the file is another training.
  const std::string other = without(kOptimizer, R"("betas": [0.8, 0.95], )");
  CHECK_THAT(message_of<InputError>(
                 [&] { train_json(document(other, 0), in(first, {"--training.steps=6"})); }),
             contains("was saved with optimizer.beta1 = 0.8, now it is 0.9"));
}

TEST_CASE("the first configuration of DeepSpeed's users trains tiny", "[train][deepspeed]") {
  const config::TrainConfig config =
      load_deepspeed(io::read_text(kSourceDocument), {"--parallel.ranks=4"});
  CHECK(config.recipe.strategy == optim::Strategy::zero2);
  CHECK(config.recipe.optimizer.name == "adamw");
  CHECK(config.recipe.optimizer.options.beta1 == 0.8);
  CHECK(config.recipe.optimizer.options.beta2 == 0.999);
  CHECK(config.recipe.optimizer.options.eps == 1e-8);
  CHECK(config.recipe.optimizer.options.weight_decay == 3e-7);
  CHECK(config.training.local_batch_size == 4);
  CHECK(config.recipe.clip == 1);
  CHECK(config.parallel.reduce_bucket_size == 50'000'000);
  CHECK(config.log_freq == 2000);

  const TemporaryFolder folder;
  io::write_text_atomically(folder / "ds.json", io::read_text(kSourceDocument));
  io::write_text_atomically(folder / "text.txt", std::string(3000, 'a') + "bcd");
  const Finished run = run_command(
      folder, "cd '" + folder.path().string() +
                  "' && '" FSDP_TRAIN_PROGRAM
                  "' --deepspeed ds.json --data.path text.txt --ranks 2 "
                  "--training.steps 3 --training.seq_len 16 --metrics.wall_clock_breakdown true "
                  "--metrics.log_freq 1");
  CHECK(run.err.empty());
  CHECK(run.code == 0);
  CHECK_THAT(run.out, contains("ds.json: tiny with 869504 parameters") &&
                          contains("strategy zero2, 2 rank(s)") && contains("step 2/3") &&
                          contains("lr 1.00e-04") &&  // ln 2 / ln 1000
                          contains("  forward ") && contains(" ms  backward ") &&
                          contains(" ms  reduce ") && contains(" ms  step "));
  const auto lines_with = [&](const std::string& part) {
    int count = 0;
    for (auto at = run.out.find(part); at != std::string::npos; at = run.out.find(part, at + 1))
      ++count;
    return count;
  };
  CHECK(lines_with(" ms  backward ") == 3);
  // Each step has four times.
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" ms  backward ") == std::string::npos) continue;
    INFO(line);
    double forward = -1, backward = -1, reduce = -1, step = -1;
    REQUIRE(std::sscanf(line.c_str(), "  forward %lf ms  backward %lf ms  reduce %lf ms  step %lf",
                        &forward, &backward, &reduce, &step) == 4);
    for (const double time : {forward, backward, reduce, step}) CHECK(time >= 0);
    CHECK(forward + backward > 0);
  }
}

TEST_CASE("without metrics.wall_clock_breakdown no times of phases are printed",
          "[train][deepspeed]") {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "text.txt", std::string(400, 'a') + "bcd");
  const Finished run = run_command(folder, "'" FSDP_TRAIN_PROGRAM
                                           "' --model.preset nano --model.vocab_size 128 "
                                           "--training.steps 2 --data.path '" +
                                               (folder / "text.txt").string() + "'");
  CHECK(run.code == 0);
  CHECK_THAT(run.out, contains("step 2/2") && !contains("backward"));
}

}  // namespace fsdp::train::deepspeed_test
