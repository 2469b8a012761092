#include "comm/control_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace fsdp::control {
namespace {

const RankState& state_of(const std::vector<RankState>& ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

bool has_ended(const RankState& state) {
  return state.activity == Activity::returned || state.activity == Activity::threw;
}

// One that has yet to notice that it need not wait any more computes.
bool is_waiting(const RankState& state) {
  return (state.activity == Activity::waits || state.activity == Activity::polls) &&
         !state.waits_for->done;
}

bool follow(const std::vector<RankState>& ranks, std::vector<int>& chain,
            std::vector<bool>& visited) {
  const RankState& last = state_of(ranks, chain.back());
  if (has_ended(last)) return true;
  if (!is_waiting(last)) return false;
  for (const int member : missing_members(*last.waits_for)) {
    const int next = last.waits_for->group->members[static_cast<std::size_t>(member)];
    const bool closes_cycle = next == chain.front();
    if (visited[static_cast<std::size_t>(next)] && !closes_cycle) continue;
    visited[static_cast<std::size_t>(next)] = true;
    chain.push_back(next);
    if (closes_cycle || follow(ranks, chain, visited)) return true;
    chain.pop_back();
  }
  return false;
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

int member_of(const Group& group, int rank) {
  int member = 0;
  while (group.members[static_cast<std::size_t>(member)] != rank) ++member;
  return member;
}

std::string text_of(const RankState& state, const Group& group) {
  if (!has_ended(state) && !is_waiting(state)) return "computes";
  switch (state.activity) {
    case Activity::computes:
      return "computes";
    case Activity::waits:
      return state.waits_for->group.get() == &group ? "waits" : "waits elsewhere";
    case Activity::polls:
      return state.waits_for->group.get() == &group ? "polls" : "polls elsewhere";
    case Activity::threw:
      return "threw";
    case Activity::returned:
      return "returned";
  }
  return "?";
}

using Row = std::array<std::string, 6>;

// `call`: what the member waits for in that group, or called last; null = nothing yet.
Row row_of(const std::vector<RankState>& ranks, const Group& group, std::size_t member,
           const Collective* call) {
  const int rank = group.members[member];
  const std::string label = call ? to_string(call->label) : "";
  return {fmt::format("{}", rank),
          call ? fmt::format("{}", call->sequence) : "-",
          call ? std::string(name_of(call->op)) : "-",
          label.empty() ? "-" : label,
          call ? fmt::format("{}", call->numel) : "-",
          text_of(state_of(ranks, rank), group)};
}

std::string text_of(std::vector<Row> rows) {
  rows.insert(rows.begin(), {"rank", "seq", "operation", "unit", "elements", "state"});
  std::array<std::size_t, 6> width{};
  for (const Row& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      width[column] = std::max(width[column], row[column].size());

  std::string text;
  for (const Row& row : rows)
    text += fmt::format("{:>{}}  {:>{}}  {:<{}}  {:<{}}  {:>{}}  {}\n", row[0], width[0], row[1],
                        width[1], row[2], width[2], row[3], width[3], row[4], width[4], row[5]);
  return text;
}

// What `member` was last seen at in `group`: what it waits for, else what it called last.
const Collective* last_seen(const std::vector<RankState>& ranks, const Group& group,
                            std::size_t member) {
  const RankState& state = state_of(ranks, group.members[member]);
  if (is_waiting(state) && state.waits_for->group.get() == &group)
    return &state.waits_for->calls[member];
  const Group::Progress& progress = group.progress[member];
  return progress.called > 0 ? &progress.last : nullptr;
}

std::string table(const std::vector<RankState>& ranks, const Group& group) {
  std::vector<Row> rows;
  for (std::size_t member = 0; member < group.members.size(); ++member)
    rows.push_back(row_of(ranks, group, member, last_seen(ranks, group, member)));
  return text_of(std::move(rows));
}

}  // namespace

std::optional<std::vector<int>> find_dead_end(const std::vector<RankState>& ranks, int from) {
  std::vector<int> chain{from};
  std::vector<bool> visited(ranks.size(), false);
  if (!follow(ranks, chain, visited)) return std::nullopt;
  return chain;
}

std::string describe(const Operation& operation, int rank) {
  const auto member = static_cast<std::size_t>(member_of(*operation.group, rank));
  return describe(operation.calls[member], operation.group->members);
}

std::string describe(const Collective& call, const std::vector<int>& members) {
  const std::string label = to_string(call.label);
  return fmt::format("{}{}{} (collective {} of ranks {})", name_of(call.op),
                     label.empty() ? "" : " of ", label, call.sequence, list(members));
}

bool can_never_finish(const std::vector<RankState>& ranks, const Operation& operation) {
  for (const int member : missing_members(operation))
    if (has_ended(state_of(ranks, operation.group->members[static_cast<std::size_t>(member)])))
      return true;
  return false;
}

std::string explain(const std::vector<RankState>& ranks, const std::vector<int>& chain) {
  std::string text;
  for (std::size_t link = 0; link + 1 < chain.size(); ++link) {
    const Operation& operation = *state_of(ranks, chain[link]).waits_for;
    text +=
        fmt::format("{}rank {} waits for {}, which rank {} has not called", link == 0 ? "" : "; ",
                    chain[link], describe(operation, chain[link]), chain[link + 1]);
  }
  if (has_ended(state_of(ranks, chain.back())))
    text += fmt::format(", and rank {} has returned", chain.back());
  return text;
}

std::string tables(const std::vector<RankState>& ranks,
                   const std::vector<std::shared_ptr<Group>>& groups) {
  std::vector<const Group*> shown;
  for (const auto& group : groups)
    if (!group->open.empty()) shown.push_back(group.get());
  if (shown.empty()) shown.push_back(groups.front().get());

  std::string text;
  for (const Group* group : shown) {
    if (groups.size() > 1) text += fmt::format("in the group of ranks {}:\n", list(group->members));
    text += table(ranks, *group);
  }
  return text;
}

std::string table_of(const std::vector<RankState>& ranks, const Operation& operation) {
  std::vector<Row> rows;
  for (std::size_t member = 0; member < operation.calls.size(); ++member)
    rows.push_back(row_of(ranks, *operation.group, member, &operation.calls[member]));
  return text_of(std::move(rows));
}

}  // namespace fsdp::control
