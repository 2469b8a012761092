// A lost or damaged shard: the message names the last whole checkpoint, and one can go on from it.
#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/evaluation.h"
#include "train/short_training.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::train::lost_shard {
namespace {

namespace fs = std::filesystem;
using short_training::configure;
using short_training::placed;
using short_training::Words;
using testing::TemporaryFolder;

using Damage = std::function<void(const fs::path& shard)>;

void flip_last_byte(const fs::path& file) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(-1, std::ios::end);
  const auto last = static_cast<char>(stream.get() ^ 1);
  stream.seekp(-1, std::ios::end);
  stream.put(last);
}

std::vector<Damage> damages() {
  return {[](const fs::path& shard) { fs::remove(shard); },
          [](const fs::path& shard) { fs::resize_file(shard, fs::file_size(shard) / 2); },
          [](const fs::path& shard) { fs::resize_file(shard, 3); }, flip_last_byte};
}

config::TrainConfig config_in(const TemporaryFolder& folder, const Words& where) {
  return configure({where,
                    {"--checkpoint.folder=" + folder.path().string(), "--checkpoint.interval=1",
                     "--training.steps=3"}});
}

std::string complaint(const config::TrainConfig& config) {
  return message_of<InputError>([&] { run_training(config, some_text()); });
}

fs::path last_shard(const fs::path& step, int ranks) {
  return step / fmt::format("shard-{:05}-of-{:05}.safetensors", ranks - 1, ranks);
}

}  // namespace

TEST_CASE("checkpoint-lost-shard: the message names the last whole checkpoint",
          "[train][checkpoint]") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Damage& damage : damages()) {
      const TemporaryFolder folder;
      const config::TrainConfig config = config_in(folder, placed("fsdp", ranks));
      const std::string whole_run = run_training(config, some_text()).param_sha256;
      damage(last_shard(folder / "step_3", ranks));
      const auto way_on = [&](int step) {
        return contains(
            fmt::format("; the last whole checkpoint is step_{0}: to go on from it, "
                        "write step_{0} into {1}, and move step_3 away",
                        step, (folder / "latest").string()));
      };
      CHECK_THAT(complaint(config), contains((folder / "step_3").string()) && way_on(2));
      damage(last_shard(folder / "step_2", ranks));
      CHECK_THAT(complaint(config), way_on(1));
      CHECK_THAT(message_of<InputError>([&] { run_evaluation(config, some_text(), {}); }),
                 way_on(1));

      io::write_text_atomically(folder / "latest", "step_1\n");
      for (const char* step : {"step_2", "step_3"}) fs::remove_all(folder / step);
      const RunResult result = run_training(config, some_text());
      CHECK(result.first_step == 1);
      CHECK(result.param_sha256 == whole_run);
    }
  }
}

TEST_CASE("when no other checkpoint is whole, the message says so", "[train][checkpoint]") {
  for (const char* strategy : {"single", "ddp", "zero1", "zero2"}) {
    const TemporaryFolder folder;
    const config::TrainConfig config = config_in(folder, placed(strategy, 1));
    run_training(config, some_text());
    for (const char* step : {"step_1", "step_2", "step_3"}) {
      flip_last_byte(last_shard(folder / step, 1));
    }
    CHECK_THAT(
        complaint(config),
        contains("is damaged") && contains(fmt::format("; no other checkpoint beside {} is whole",
                                                       (folder / "latest").string())));
  }
}

TEST_CASE("a missing folder of a checkpoint is answered with the last whole one",
          "[train][checkpoint]") {
  const TemporaryFolder folder;
  const config::TrainConfig config = config_in(folder, placed("fsdp", 2));
  run_training(config, some_text());
  fs::remove_all(folder / "step_3");
  fs::remove(last_shard(folder / "step_2", 2));
  CHECK_THAT(complaint(config), contains("write the name of one that exists (step_1) into it"));
}

}  // namespace fsdp::train::lost_shard
