// Damaged DeepSpeed configurations: each is refused with its place, or is read as it is written.
#include "base/check.h"
#include "base/printable.h"
#include "config/config.h"
#include "config/deepspeed/rows.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/damaged_text.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

const std::string kFile = R"({
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "steps_per_print": 10,
  "gradient_clipping": 1.0,
  "prescale_gradients": false,
  "wall_clock_breakdown": false,
  "bf16": {
    "enabled": true
  },
  "optimizer": {
    "type": "AdamW",
    "params": {
      "lr": 0.003,
      "betas": [0.9, 0.95],
      "eps": 1e-8,
      "weight_decay": 0.1
    }
  },
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {
      "warmup_min_lr": 0.0001,
      "warmup_max_lr": 0.003,
      "warmup_num_steps": 10,
      "total_num_steps": 100
    }
  },
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true,
    "contiguous_gradients": true,
    "reduce_bucket_size": 5e8,
    "allgather_bucket_size": 5e8
  },
  "flops_profiler": {
    "enabled": false
  }
})";
const std::vector<std::string> kValues = {
    "true",  "false", "0",  "1",  "-1",   "2", "8",  "1e-3",    "1.5", "null",    "\"auto\"",
    "\"2\"", "\"\"",  "[]", "{}", "1e99", "3", "16", "\"cpu\"", "[1]", "\"SGD\"", "{\"a\": 1}"};
const std::vector<std::string> kLines = {"\"stage\": 3,", "\"zero_optimization\": {", "}", "},",
                                         "\"_comment\": \"a\","};

void check_file(const std::string& text) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "ds.json";
  io::write_text_atomically(file, text);
  INFO(text);
  config::foreign::Report report;
  config::TrainConfig config;
  try {
    config = config::load_config(std::nullopt, {"--parallel.ranks=2"}, file, {.report = &report});
  } catch (const InputError& error) {
    CHECK_THAT(error.what(), contains("ds.json") || contains("parallel.ranks"));
    return;
  }
  using foreign = config::foreign::Row;
  for (const config::foreign::Account& each : report.accounts) {
    INFO(printable(each.path));
    CHECK(each.decision != config::foreign::Decision::refused);
    CHECK(each.decision != config::foreign::Decision::unknown);
    const foreign* row = config::foreign::find(config::deepspeed::rows(), each.path);
    const bool is_set = row != nullptr && row->use == foreign::Use::set && row->values.empty();
    if (!is_set || each.keys.empty() || each.value == "\"auto\"") continue;
    REQUIRE(each.keys == std::vector<std::string>{row->key});
    std::string value = each.value;
    std::erase(value, '"');
    CHECK(testing::is_same_value(config.settings.at(row->key), value));
  }
}

void check_files(int count, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) {
    check_file(testing::damaged(kFile, random, ':', kValues, kLines));
  }
}

}  // namespace

TEST_CASE("hundreds of damaged files of DeepSpeed are refused or read as written",
          "[config][deepspeed]") {
  check_file(kFile);
  check_files(300, 1);
}

TEST_CASE("two thousand damaged files of DeepSpeed", "[.][fuzz]") { check_files(2000, 2); }

}  // namespace fsdp::train
