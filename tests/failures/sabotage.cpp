#include "sabotage.h"

#include "support/catch.h"

#include <atomic>
#include <sstream>

namespace fsdp::testing {

Outcome run_failing(int world_size, const std::function<void(ProcessGroup&)>& body) {
  const auto ranks = static_cast<std::size_t>(world_size);
  std::vector<std::string> seen(ranks);
  std::vector<int> aborted(ranks);  // not bool: ranks write side by side
  std::vector<std::int64_t> leftover(ranks);
  std::atomic<int> ended = 0;
  const auto on_rank = [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Context::current().pool();  // its scratch stays
    const MemoryTracker& tracker = Context::current().tracker();
    const std::int64_t floor = tracker.current_total();
    const auto end = [&] {
      leftover[rank] = tracker.current_total() - floor;
      ++ended;
    };
    try {
      body(group);
    } catch (const std::exception& error) {
      seen[rank] = error.what();
      aborted[rank] = dynamic_cast<const Aborted*>(&error) != nullptr;
      end();
      throw;
    }
    end();
  };
  const std::string error = message_of<std::exception>([&] { run_ranks(world_size, on_rank); });
  return {.ended = ended,
          .seen = seen,
          .aborted = std::vector<bool>(aborted.begin(), aborted.end()),
          .leftover = leftover,
          .error = error};
}

std::vector<Row> table_in(const std::string& message) {
  std::vector<Row> rows;
  std::istringstream lines(message);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "rank" && line.find("seq") != std::string::npos) {
      if (in_table) break;  // another table
      in_table = true;
      continue;
    }
    if (!in_table) continue;
    if (first.empty() || first.find_first_not_of("0123456789") != std::string::npos) break;
    Row row;
    row.rank = std::stoi(first);
    words >> row.sequence >> row.operation >> row.unit >> row.elements >> std::ws;
    std::getline(words, row.state);
    rows.push_back(row);
  }
  return rows;
}

void check_ended(const Outcome& outcome, int world_size, int culprit, bool culprit_threw) {
  CHECK(outcome.ended == world_size);
  CHECK(outcome.leftover == std::vector<std::int64_t>(outcome.leftover.size(), 0));
  CHECK(outcome.error != "");
  std::string of_others;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == culprit) continue;
    CAPTURE(rank, outcome.seen[r]);
    CHECK(outcome.aborted[r]);
    if (of_others.empty()) of_others = outcome.seen[r];
    CHECK(outcome.seen[r] == of_others);
    CHECK(outcome.seen[r].starts_with("Aborted: "));
    const std::vector<Row> rows = table_in(outcome.seen[r]);
    REQUIRE(rows.size() == static_cast<std::size_t>(world_size));
    for (int i = 0; i < world_size; ++i) CHECK(rows[static_cast<std::size_t>(i)].rank == i);
  }
  const auto c = static_cast<std::size_t>(culprit);
  if (culprit_threw) {
    CHECK(!outcome.aborted[c]);
    CHECK(outcome.error == "rank " + std::to_string(culprit) + ": " + outcome.seen[c]);
    CHECK_THAT(of_others, contains("rank " + std::to_string(culprit) + ": " + outcome.seen[c]));
    CHECK(table_in(of_others)[c].state == "threw");
  } else {
    CHECK(outcome.error == of_others);
  }
}

}  // namespace fsdp::testing
