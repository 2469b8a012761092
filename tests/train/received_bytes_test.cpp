// What a rank receives in a step, measured, against the formula.
#include "io/file_io.h"
#include "program/program.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/program.h"
#include "train/short_training.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::train::received_bytes_test {
namespace {

using namespace short_training;
using testing::TemporaryFolder;

constexpr bool kHasTask8 = FSDP_HAS_TASK8 != 0;  // else this is a student kit without it

config::TrainConfig in(const Words& where, const Words& how) {
  return configure({{"--training.global_batch_size=24"}, where, how});
}

void check(const config::TrainConfig& config, const RunResult& result) {
  const auto steps = static_cast<std::int64_t>(result.losses.size());
  CHECK(result.comm_bytes == result.comm_formula_bytes);
  CHECK(result.comm_bytes == steps * received_bytes_per_step(config));
  CHECK((result.comm_bytes > 0) == (config.recipe.ranks > 1));
}

}  // namespace

TEST_CASE("every strategy receives the bytes of the formula", "[train][received]") {
  for (const Words& how :
       {Words{},
        {"--training.no_sync=true", "--training.max_norm=0"},
        {"--training.mixed_precision_param=bfloat16", "--parallel.prefetch_depth=0"},
        {"--model.tie_word_embeddings=true", "--optimizer.decay_norms=false"},
        {"--lora.rank=2", "--lora.targets=q_proj,down_proj"},
        {"--training.activation_checkpoint=block", "--parallel.zero_partition=flat",
         "--parallel.broadcast_fp16=true", "--parallel.reduce_buffer_size=1000"},
        {"--parallel.reshard_after_forward=false", "--parallel.prefetch_depth=2"}}) {
    if (!kHasTask8 && !how.empty() && how[0] == "--training.activation_checkpoint=block") continue;
    for (const Place& place : all_places()) {
      if (FSDP_SANITIZED && place.ranks != 3) continue;  // whose bytes do not divide evenly
      INFO((how.empty() ? "" : how[0]) << " " << place.name());
      const config::TrainConfig config = in(place.words(), how);
      check(config, train(config).result);
    }
  }
  const config::TrainConfig config = in(placed("fsdp", 4), {"--parallel.reshard_after_forward=2"});
  check(config, train(config).result);
}

TEST_CASE("a step that is skipped receives less", "[train][received]") {
  for (const Words& where : {placed("fsdp", 3), placed("zero1", 2), placed("zero2", 4)}) {
    const config::TrainConfig config =
        in(where, {"--training.mixed_precision_param=float16", "--training.steps=8",
                   "--fp16.initial_scale_power=23", "--fp16.hysteresis=1"});
    const Trained trained = train(config);
    const RunResult& result = trained.result;
    const int skipped = short_training::skipped(trained);
    REQUIRE(skipped > 0);
    REQUIRE(skipped < 8);
    CHECK(result.comm_bytes == result.comm_formula_bytes);
    CHECK(result.comm_bytes == skipped * received_bytes_per_step(config, true) +
                                   (8 - skipped) * received_bytes_per_step(config));
    CHECK(received_bytes_per_step(config, true) < received_bytes_per_step(config));
  }
}

TEST_CASE("checkpoints and evaluations do not count as received", "[train][received][checkpoint]") {
  const TokenData validation = some_text();
  RunOptions options;
  options.validation = &validation;
  for (const Words& where : {placed("fsdp", 3), placed("ddp", 2)}) {
    const TemporaryFolder folder;
    const Words often = {"--checkpoint.folder=" + folder.path().string(), "--checkpoint.interval=1",
                         "--data.validation=a text", "--training.eval_every=1"};
    const config::TrainConfig config = in(where, often);
    check(config, run_training(config, some_text(), options));
    Words more = often;
    more.emplace_back("--training.steps=6");
    const config::TrainConfig longer = in(where, more);
    check(longer, run_training(longer, some_text(), options));
  }
}

TEST_CASE("the program prints what was received, and what the formula says",
          "[train][received][program]") {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "text.txt", std::string(400, 'a') + "bcd");
  const auto run = [&](const std::string& where) {
    const testing::Finished finished = testing::run_command(
        folder, "'" FSDP_TRAIN_PROGRAM "' --model.preset=nano --model.vocab_size=128 " + where +
                    " --training.local_batch_size=1 --training.steps=2 --data.path='" +
                    (folder / "text.txt").string() + "' --summary '" +
                    (folder / "summary.json").string() + "'");
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    return finished.out;
  };
  const std::string together = run("--strategy fsdp --ranks 3");
  const auto written = nlohmann::json::parse(testing::contents(folder / "summary.json"));
  CHECK(written.at("version") == program::version());
  const nlohmann::json& summary = written.at("runs").at(0);
  const auto received = summary.at("comm_bytes").get<std::int64_t>();
  CHECK(received == summary.at("comm_formula_bytes").get<std::int64_t>());
  const std::string per_step = std::to_string(received / 2);
  CHECK_THAT(together, contains("a rank received " + per_step +
                                " bytes per step; the formula says " + per_step));
  CHECK(run("--strategy single").find("received") == std::string::npos);
}

}  // namespace fsdp::train::received_bytes_test
