#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace fsdp::config::deepspeed {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

const Setting* Translation::other(const std::string& key) const {
  const auto found = std::find_if(others_.rbegin(), others_.rend(),
                                  [&](const Setting& each) { return each.key == key; });
  return found == others_.rend() ? nullptr : &*found;
}

void Translation::give(const std::string& key, const std::string& value, const Entry& entry) {
  // Where DeepSpeed's name is ours, a message has it once.
  const std::string origin = entry.path == key ? entry.place : entry.origin();
  result_.given.push_back({.key = key, .origin = origin, .value = value});
}

void Translation::give(const std::string& key, const Entry& entry) {
  give(key, entry.text(), entry);
  result_.given.back().is_quoted = entry.value.is_string();
}

void Translation::imply(const std::string& key, const std::string& value, const std::string& path) {
  const std::string origin = fmt::format("{}: {} (DeepSpeed's default)", document_.file(), path);
  result_.implied.push_back({.key = key, .origin = origin, .value = value});
}

void Translation::remark(const Entry& entry, const std::string& why) {
  note(entry, "has no effect here: " + why);
}

void Translation::note(const Entry& entry, const std::string& what) {
  result_.remarks.push_back(fmt::format("{}: {}", entry.origin(), what));
}

bool Translation::is_left_to_others(const Entry& entry, const std::string& key) const {
  if (!entry.is_auto()) return false;
  if (other(key) != nullptr) return true;
  entry.refuse(
      fmt::format("is \"auto\", which Hugging Face's Trainer replaces with its own arguments; "
                  "write a value, or give --{} or the same key in the TOML file",
                  key));
}

bool Translation::flag(const std::string& path, bool fallback) const {
  const Entry* entry = find(path);
  if (entry == nullptr) return fallback;
  if (!entry->value.is_boolean()) {
    entry->refuse(fmt::format("is {}, must be true or false", entry->shown()));
  }
  return entry->value.get<bool>();
}

std::string Translation::word(const Entry& entry, const std::vector<std::string>& words,
                              const std::string& remedy) const {
  const auto found = std::ranges::find_if(words, [&](const std::string& each) {
    return entry.value.is_string() && lower(each) == lower(entry.text());
  });
  if (found == words.end()) {
    entry.refuse(
        fmt::format("is {}, must be one of {}{}", entry.shown(), fmt::join(words, ", "), remedy));
  }
  return *found;
}

}  // namespace fsdp::config::deepspeed
