// Thousands of damaged files: each is refused with its place, or is read as it is written.
#include "base/printable.h"
#include "config/config.h"
#include "config/keys.h"
#include "config/titan/rows.h"
#include "estimate/titan_files.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sstream>

namespace fsdp::estimate {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t n) { return random() % n; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// One to three changes, of the kinds that people and editors make.
std::string mutated(const std::string& text, Random& random) {
  static const std::vector<std::string> kValues = {
      "true", "false",  "0",     "1",          "-1",        "2",   "8",          "1e-3",
      "1.5",  "nan",    "\"\"",  "\"2\"",      "\"full\"",  "[]",  "\"AdamW\"",  "[\"float8\"]",
      "1e99", "\"op\"", "{a=1}", "9999999999", "\"never\"", "1.0", "\"llama2\"", "\"70B\""};
  std::vector<std::string> lines = lines_of(text);
  for (std::size_t n = 1 + below(random, 3); n > 0; --n) {
    std::string& line = lines[below(random, lines.size())];
    const std::size_t at = line.empty() ? 0 : below(random, line.size());
    switch (below(random, 7)) {
      case 0:
        line = line.substr(0, line.find('=') + 1) + " " + kValues[below(random, kValues.size())];
        break;
      case 1:
        if (!line.empty()) line.erase(at, 1);
        break;
      case 2:
        line.insert(at, 1, static_cast<char>(' ' + below(random, 95)));
        break;
      case 3:
        line.clear();
        break;
      case 4:
        line = "[" + std::string(below(random, 2) == 0 ? "training" : "experimental") + "]";
        break;
      case 5:
        if (!line.empty()) line[at] = static_cast<char>(below(random, 256));
        break;
      default:
        std::swap(line, lines[below(random, lines.size())]);
    }
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

// Whether two texts are one value.
bool is_same(const std::string& a, const std::string& b) {
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  const bool are_numbers = !a.empty() && !b.empty() && *end_a == '\0' && *end_b == '\0';
  return are_numbers ? x == y : a == b;
}

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
    CHECK(is_same(config.settings.at(row->key), value));
  }
}

void check_files(int count, unsigned seed) {
  Random random(seed);
  for (int i = 0; i < count; ++i) {
    check_file(mutated(i % 2 == 0 ? kWholeFile : kOldFile, random));
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
