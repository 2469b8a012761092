#include "config/titan/given.h"

#include "base/check.h"
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace fsdp::config::titan {
namespace {

/// The last setting of a key in each of its spellings, in the file or on the command line.
std::map<std::string, const Given*> last_by_spelling(const AllGiven& all, const std::string& key,
                                                     bool on_command_line) {
  std::map<std::string, const Given*> last;
  for (const Given& each : all) {
    if (each.setting.key == key && each.is_on_command_line() == on_command_line) {
      last[each.key] = &each;
    }
  }
  return last;
}

}  // namespace

const Given* last_of(const AllGiven& all, const std::string& key) {
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Given& each) { return each.setting.key == key; });
  return found == all.rend() ? nullptr : &*found;
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stop != text.data() + text.size() || error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> number_of(const Given* given) {
  if (given == nullptr || !given->setting.value) return std::nullopt;
  return number_of(*given->setting.value);
}

std::vector<std::string> spellings_of(const AllGiven& all, const std::string& key) {
  std::vector<std::string> names;
  for (const auto& [spelling, given] : last_by_spelling(all, key, true)) names.push_back(spelling);
  const Given* last = last_of(all, key);
  if (names.empty() && last != nullptr) names.push_back(last->key);
  return names;
}

void refuse_contradictions(const AllGiven& all) {
  for (const Given& each : all) {
    if (!each.is_translated()) continue;
    for (const auto& [spelling, other] :
         last_by_spelling(all, each.setting.key, each.is_on_command_line())) {
      const Given& last =
          *last_by_spelling(all, each.setting.key, each.is_on_command_line()).at(each.key);
      if (other->setting.value == last.setting.value) continue;
      throw InputError(fmt::format("{}: {}: means {} {}, but {} ({}) is {}; give one of them",
                                   last.setting.origin, last.key, last.setting.key,
                                   last.setting.value.value_or(""), spelling, other->setting.origin,
                                   printable(other->setting.value.value_or("missing"))));
    }
  }
}

}  // namespace fsdp::config::titan
