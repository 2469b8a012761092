// The tables of ZeRO-1 and ZeRO-2 on a modeled machine, and what their rows are made of.
#include "report/runs/zero_tables.h"

#include "parallel/partition.h"
#include "report/units.h"
#include "support/catch.h"
#include "support/printed_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing::zero_tables_test {
namespace {

using optim::Strategy;
using report::RunRecord;
using report::ShortRun;

ShortRun nano_run(Strategy strategy = Strategy::fsdp) {
  ShortRun run;
  run.model_name = "nano";
  run.model = nn::TransformerConfig::nano();
  run.recipe.strategy = strategy;
  run.recipe.ranks = 4;
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
  run.recipe.optimizer.name = "sgd";
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
  run.recipe.optimizer.name = "adamw";
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

namespace {

/// Of the rank that holds most, and of rank 0.
struct Measured {
  std::int64_t peak = 0, state = 0, received = 0, collectives = 0, end = 0;
};

Measured measured(const ShortRun& run, const CostModel& machine) {
  Measured found;
  const RunRecord record = record_fake(run, machine, run.recipe.ranks);
  for (const report::RankRecord& rank : record.ranks) {
    found.peak = std::max(found.peak, rank.peak.total());
    found.state = std::max(found.state, rank.peak[MemoryKind::optimizer]);
  }
  for (const Event& event : record.ranks[0].events) {
    if (event.kind != EventKind::issue) continue;
    found.received += event.nbytes;
    ++found.collectives;
  }
  found.end = record.ranks[0].end;
  return found;
}

void check_all_numbers(const std::string& text, const ReadText& read) {
  CHECK(difference_of(text, read) == "");
  CHECK(unnoticed_change(text, read) == "");
}

}  // namespace

TEST_CASE("every number of the tables of ZeRO is that of its run", "[report][zero]") {
  ShortRun run = nano_run();
  run.steps = 2;
  const CostModel machine = report::in_boxes(2);
  check_all_numbers(strategies_table(run, machine), [&](PrintedText& text) {
    text.line("nano over {} ranks in boxes of {}, AdamW, {} steps on the virtual clock", {4, 2, 2});
    text.row({"strategy", "ms", "highest bytes", "optimizer state", "received", "collectives"});
    for (const auto& [name, strategy] : {std::pair("ddp", Strategy::ddp),
                                         {"zero1", Strategy::zero1},
                                         {"zero2", Strategy::zero2},
                                         {"fsdp", Strategy::fsdp}}) {
      run.recipe.strategy = strategy;
      const Measured found = measured(run, machine);
      text.row({name, static_cast<double>(found.end) / 1e9, found.peak, found.state, found.received,
                found.collectives});
    }
  });
  check_all_numbers(buffers_table(run, machine), [&](PrintedText& text) {
    text.line("nano over {} ranks in boxes of {}, AdamW, {} steps on the virtual clock", {4, 2, 2});
    text.row({"reduce buffer", "collectives", "highest bytes", "ms"});
    run.recipe.strategy = Strategy::zero2;
    for (const std::size_t buffer : {0U, 10'000U, 40'000U}) {
      run.recipe.zero.reduce_buffer_bytes = buffer;
      const Measured found = measured(run, machine);
      text.row({buffer, found.collectives, found.peak, static_cast<double>(found.end) / 1e9});
    }
  });
}

TEST_CASE("every number of the table of owners is that of its partition", "[report][zero]") {
  using optim::Partition;
  const ShortRun run = nano_run();
  std::vector<std::int64_t> nano;
  {
    Context context({.device = kFake});
    const ContextScope scope(context);
    nn::TransformerLM model(run.model);
    for (const auto& [path, variable] : model.variables()) nano.push_back(variable.data().numel());
  }
  const auto read = [](PrintedText& text, std::vector<std::int64_t> numels, int ranks) {
    const auto row = [&](const char* name, Partition how) {
      std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
      for (const parallel::OwnedSlice& slice : parallel::divide(how, numels, ranks)) {
        loads[static_cast<std::size_t>(slice.owner)] += slice.numel;
      }
      std::string pattern = "{} largest {}   loads";
      const std::int64_t largest = *std::max_element(loads.begin(), loads.end());
      std::vector<Shown> values{
          std::string("  ") + name + std::string(20 - std::string(name).size(), ' '),
          fmt::format("{:>11}", report::grouped(largest))};
      for (const std::int64_t load : loads) {
        pattern += " {}";
        values.emplace_back(load);
      }
      text.line(pattern, values);
    };
    row("greedy", Partition::greedy);
    row("flat", Partition::flat);
    row("round_robin", Partition::round_robin);
    std::sort(numels.begin(), numels.end(), std::greater<>());
    row("greedy, if sorted", Partition::greedy);
  };
  check_all_numbers(owners_table(run), [&](PrintedText& text) {
    text.line("Elements of optimizer state per rank, by partition");
    text.rule();
    text.line("five parameters of 1, 1, 1, 1, 4 elements over {} ranks", {2});
    read(text, {1, 1, 1, 1, 4}, 2);
    text.rule();
    text.line("one giant of {} elements beside two of {} over {} ranks", {1'000'000, 1'000, 8});
    read(text, {1'000'000, 1'000, 1'000}, 8);
    text.rule();
    text.line("nano, {} parameters over {} ranks", {nano.size(), run.recipe.ranks});
    read(text, nano, run.recipe.ranks);
  });
}

TEST_CASE("overlap hides reductions on the virtual clock, and compression halves them",
          "[report][zero]") {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    ShortRun run = nano_run(strategy);
    run.recipe.bucket_bytes = 4096;
    const RunRecord usual = record_fake(run);
    run.recipe.zero.reductions.overlap = false;
    const RunRecord at_once = record_fake(run);
    CHECK(at_once.ranks[0].end > usual.ranks[0].end);
    CHECK(traffic_of(at_once.ranks[0]).nbytes == traffic_of(usual.ranks[0]).nbytes);
    run = nano_run(strategy);
    run.recipe.bucket_bytes = 4096;
    run.recipe.zero.reductions.compression = DType::float16;
    const RunRecord halves = record_fake(run);
    const std::int64_t N = run.model.parameter_count();
    const std::int64_t gradients = strategy == Strategy::zero2 ? 4 * N : 2 * 3 * 4 * N / 4;
    CHECK(traffic_of(usual.ranks[0]).nbytes - traffic_of(halves.ranks[0]).nbytes == gradients / 2);
    CHECK(usual.title != record_fake(nano_run()).title);
  }
}

}  // namespace fsdp::testing::zero_tables_test
