// Thousands of damaged files: each is refused with its place, or is read as it is written.
#include "base/printable.h"
#include "config/config.h"
#include "config/keys.h"
#include "config/titan/rows.h"
#include "estimate/titan_files.h"
#include "support/damaged_text.h"

#include <algorithm>
#include <random>

namespace fsdp::estimate {
namespace {

const std::vector<std::string> kValues = {
    "true", "false",  "0",     "1",          "-1",        "2",   "8",          "1e-3",
    "1.5",  "nan",    "\"\"",  "\"2\"",      "\"full\"",  "[]",  "\"AdamW\"",  "[\"float8\"]",
    "1e99", "\"op\"", "{a=1}", "9999999999", "\"never\"", "1.0", "\"llama2\"", "\"70B\""};
const std::vector<std::string> kSections = {"[training]", "[experimental]"};

void check_file(const std::string& text) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "llama.toml";
  io::write_text_atomically(file, text);
  INFO(text);
  config::foreign::Report report;
  config::TrainConfig config;
  try {
    config = config::load_config(file, {}, {}, {.is_modeled = true, .report = &report});
  } catch (const InputError& error) {
    CHECK_THAT(error.what(), contains("llama.toml") || contains("parallel.ranks"));
    return;
  }
  // Nothing is lost, refused or unknown, and what is read has the value that is written.
  CHECK(report.accounts.size() == config::settings_of_file(file, {}).size());
  for (const config::foreign::Account& each : report.accounts) {
    INFO(printable(each.path));
    CHECK(each.decision != config::foreign::Decision::refused);
    CHECK(each.decision != config::foreign::Decision::unknown);
    const auto* row = config::foreign::find(config::titan::rows(), each.path);
    if (!config.titan.is_file) continue;
    REQUIRE(row != nullptr);
    if (row->use != config::titan::Row::Use::set || !row->values.empty()) continue;
    REQUIRE(each.keys == std::vector<std::string>{row->key});
    std::string value = each.value;
    std::erase(value, '"');
    if (row->key == "training.global_batch_size") continue;  // filled in
    CHECK(testing::is_same_value(config.settings.at(row->key), value));
  }
}

void check_files(int count, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) {
    check_file(
        testing::damaged(i % 2 == 0 ? kWholeFile : kOldFile, random, '=', kValues, kSections));
  }
}

}  // namespace

TEST_CASE("hundreds of damaged files of torchtitan are refused or read as written",
          "[estimator][titan]") {
  check_file(kWholeFile);
  check_file(kOldFile);
  check_files(300, 1);
}

TEST_CASE("two thousand damaged files of torchtitan", "[.][fuzz]") { check_files(2000, 2); }

}  // namespace fsdp::estimate
