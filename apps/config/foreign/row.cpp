#include "config/foreign/row.h"

#include "config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

namespace fsdp::config::foreign {
namespace {

// How many letters must be put in, left out or replaced to make one text of another.
std::size_t edits(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[to.size()];
}

std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// What stands in the second column.
std::string meaning(const Row& row) {
  if (row.use == Row::Use::set) return fmt::format("`{}`", row.key);
  if (row.use == Row::Use::own) return row.why.empty() ? "read with its section" : row.why;
  if (row.use == Row::Use::off) return "not enabled; otherwise refused: " + row.why;
  if (row.use != Row::Use::only) return row.why;
  std::string words = row.word.empty() ? "empty" : fmt::format("`{}`", row.word);
  for (const auto& [word, ours] : row.values) words += fmt::format(", `{}`", word);
  return fmt::format("{}; otherwise refused: {}", words, row.why);
}

}  // namespace

Row sets(const char* path, const char* key, Values values) {
  return {.use = Row::Use::set, .path = path, .key = key, .values = std::move(values)};
}
Row only(const char* path, const char* word, const char* why, Values others) {
  return {
      .use = Row::Use::only, .path = path, .values = std::move(others), .word = word, .why = why};
}
Row idle(const char* path, const char* why) {
  return {.use = Row::Use::idle, .path = path, .why = why};
}
Row refused(const char* path, const char* why) {
  return {.use = Row::Use::refuse, .path = path, .why = why};
}
Row own(const char* path, const char* why) {
  return {.use = Row::Use::own, .path = path, .why = why};
}

Rows joined(std::initializer_list<Rows> parts) {
  Rows all;
  for (const Rows& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const char* name_of(Decision decision) {
  switch (decision) {
    case Decision::read:
      return "read";
    case Decision::equal:
      return "equal";
    case Decision::noted:
      return "noted";
    case Decision::refused:
      return "refused";
    case Decision::unknown:
      break;
  }
  return "unknown";
}

Decision Row::decision() const {
  switch (use) {
    case Use::only:
    case Use::off:
      return Decision::equal;
    case Use::idle:
    case Use::extra:
      return Decision::noted;
    case Use::refuse:
      return Decision::refused;
    case Use::set:
    case Use::own:
      break;
  }
  return Decision::read;
}

Verdict judge(const Row& row, const std::string& text, const std::string& shown) {
  const auto found =
      std::ranges::find_if(row.values, [&](const auto& pair) { return pair.first == text; });
  const bool is_listed = found != row.values.end();
  const auto refuse = [](std::string why) {
    return Verdict{.decision = Decision::refused, .why = std::move(why)};
  };
  switch (row.use) {
    case Row::Use::set: {
      if (row.values.empty()) return {.decision = Decision::read, .value = text};
      if (is_listed && found->second.empty()) return {.decision = Decision::equal};
      if (is_listed) return {.decision = Decision::read, .value = found->second};
      std::vector<std::string> words;
      for (const auto& [word, ours] : row.values) words.push_back(word);
      return refuse(fmt::format("is {}, must be one of {}", shown, fmt::join(words, ", ")));
    }
    case Row::Use::only:
      if (text == row.word || is_listed) return {.decision = Decision::equal};
      return refuse(fmt::format("is {}, must be {}: {}", shown,
                                row.word.empty() ? "empty" : row.word, row.why));
    case Row::Use::extra:
      if (text == "false") return {.decision = Decision::equal};
      [[fallthrough]];
    case Row::Use::idle:
      return {.decision = Decision::noted, .why = "has no effect here: " + row.why};
    case Row::Use::off:
      if (text == "false") return {.decision = Decision::equal};
      return refuse("is not supported: " + row.why);
    case Row::Use::refuse:
      return refuse("is not supported: " + row.why);
    case Row::Use::own:
      break;
  }
  return {.decision = Decision::read, .value = text};
}

const Row* find(const Rows& rows, const std::string& path) {
  const auto found = std::ranges::find(rows, path, &Row::path);
  return found == rows.end() ? nullptr : &*found;
}

std::string meant_by(const Rows& rows, const std::string& path) {
  const Row* best = nullptr;
  std::size_t least = std::min<std::size_t>(2, path.size() / 4) + 1;
  for (const Row& row : rows) {
    // A known name in another section is near too.
    const std::size_t distance = last_name(row.path) == last_name(path) ? 0 : edits(path, row.path);
    if (distance < least) {
      least = distance;
      best = &row;
    }
  }
  if (best != nullptr) return best->path;
  // In a known section one of its keys is meant, however it is written.
  const std::string section = path.substr(0, path.find('.') + 1);
  std::vector<std::string> names;
  for (const Row& row : rows) {
    if (!section.empty() && row.path.starts_with(section)) names.push_back(row.path);
  }
  return names.empty() ? "" : nearest(path, names);
}

std::string describe(const std::string& format, const Rows& rows) {
  std::string text = fmt::format("# The keys of {}\n", format);
  const std::pair<Decision, const char*> parts[] = {
      {Decision::read, "Translated into our keys."},
      {Decision::equal, "Accepted with the value that says what is done anyway."},
      {Decision::noted,
       "Accepted with any value, because no number and no memory here depends on it."},
      {Decision::refused, "Refused, because it would change numbers or memory."},
  };
  for (const auto& part : parts) {
    const Decision decision = part.first;
    const auto belongs = [&](const Row& row) { return row.decision() == decision; };
    if (std::ranges::none_of(rows, belongs)) continue;
    text += fmt::format("\n## {} ({})\n\n{}\n\n| key | here |\n|---|---|\n", name_of(decision),
                        std::ranges::count_if(rows, belongs), part.second);
    for (const Row& row : rows) {
      if (belongs(row)) text += fmt::format("| `{}` | {} |\n", row.path, meaning(row));
    }
  }
  return text;
}

}  // namespace fsdp::config::foreign
