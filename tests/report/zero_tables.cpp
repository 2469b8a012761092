// The tables of ZeRO-1 and ZeRO-2 on a modeled machine, and what their rows are made of.
#include "report/runs/zero_tables.h"

#include "report/units.h"
#include "support/catch.h"

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace fsdp::testing::zero_tables_test {
namespace {

using report::RunRecord;
using report::ShortRun;
using report::Strategy;

ShortRun nano_run(Strategy strategy = Strategy::fsdp) {
  ShortRun run;
  run.model_name = "nano";
  run.model = nn::TransformerConfig::nano();
  run.strategy = strategy;
  run.ranks = 4;
  return run;
}

/// The words of the lines below the one that begins with `heading`, by their first word.
std::map<std::string, std::vector<std::string>> rows(const std::string& table,
                                                     const std::string& heading) {
  std::map<std::string, std::vector<std::string>> found;
  std::istringstream lines(table);
  bool is_below = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    if (is_below && !all.empty()) found[all[0]] = {all.begin() + 1, all.end()};
    is_below = is_below || line.starts_with(heading);
  }
  return found;
}

std::int64_t number(std::string text) {
  std::erase(text, ',');
  std::erase(text, '.');
  return std::stoll(text);
}

}  // namespace

TEST_CASE("a table of strategies: SGD across boxes is slower with ZeRO-1, and saves nothing",
          "[report][zero]") {
  ShortRun run = nano_run();
  run.optimizer = report::StepsWith::sgd;
  auto table = rows(strategies_table(run, report::in_boxes(2)), "strategy");
  REQUIRE(table.size() == 4);
  constexpr std::size_t kTime = 0, kPeak = 1, kState = 2, kReceived = 3;
  CHECK(number(table["zero1"][kTime]) > number(table["ddp"][kTime]));
  CHECK(table["zero1"][kPeak] == table["ddp"][kPeak]);
  for (const auto& [name, row] : table) CHECK(row[kState] == "0");
  const std::int64_t N = run.model.parameter_count();
  CHECK(number(table["ddp"][kReceived]) == 2 * 3 * 4 * N / 4);
  CHECK(number(table["zero1"][kReceived]) == 2 * 3 * 4 * N / 4 + 4 * N);
  CHECK(number(table["zero2"][kReceived]) == 2 * 4 * N);
  // With AdamW, the same traffic buys state.
  run.optimizer = report::StepsWith::adamw;
  table = rows(strategies_table(run, report::in_boxes(2)), "strategy");
  CHECK(number(table["ddp"][kState]) == 8 * N);
  CHECK(number(table["zero1"][kState]) < 8 * N / 2);
  CHECK(number(table["zero2"][kPeak]) < number(table["zero1"][kPeak]));
  CHECK(number(table["fsdp"][kState]) < number(table["zero2"][kState]));
}

TEST_CASE("a table of buffers: fewer collectives, and more memory", "[report][zero]") {
  auto table = rows(buffers_table(nano_run(), report::kSmallMachine), "reduce buffer");
  table.erase("buffer");
  REQUIRE(table.size() >= 3);
  const auto& none = table.at("0");
  const auto& all = table.at("40,000");
  CHECK(number(none[0]) > number(all[0]));
  CHECK(number(all[0]) == 4 + 4);  // one reduction and one broadcast per owner
  CHECK(number(none[1]) < number(all[1]));
}

TEST_CASE("a table of owners: a greedy partition does not look ahead", "[report][zero]") {
  const std::string table = owners_table(nano_run());
  CHECK_THAT(table, contains("greedy               largest           6   loads 6 2\n"));
  CHECK_THAT(table, contains("greedy, if sorted    largest           4   loads 4 4\n"));
  CHECK_THAT(table, contains("greedy               largest   1,000,000   loads 1,000,000 1,000 "
                             "1,000 0 0 0 0 0\n"));
  CHECK_THAT(table, contains("nano, 21 parameters over 4 ranks\n"));
}

TEST_CASE("overlap hides reductions on the virtual clock, and compression halves them",
          "[report][zero]") {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    ShortRun run = nano_run(strategy);
    run.bucket_bytes = 4096;
    const RunRecord usual = record_fake(run);
    run.zero.reductions.overlap = false;
    const RunRecord at_once = record_fake(run);
    CHECK(at_once.ranks[0].end > usual.ranks[0].end);
    CHECK(traffic_of(at_once.ranks[0]).nbytes == traffic_of(usual.ranks[0]).nbytes);
    run = nano_run(strategy);
    run.bucket_bytes = 4096;
    run.zero.reductions.compression = DType::float16;
    const RunRecord halves = record_fake(run);
    const std::int64_t N = run.model.parameter_count();
    const std::int64_t gradients = strategy == Strategy::zero2 ? 4 * N : 2 * 3 * 4 * N / 4;
    CHECK(traffic_of(usual.ranks[0]).nbytes - traffic_of(halves.ranks[0]).nbytes == gradients / 2);
    CHECK(usual.title != record_fake(nano_run()).title);
  }
}

}  // namespace fsdp::testing::zero_tables_test
