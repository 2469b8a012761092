#include "config/keys.h"

#include "base/check.h"
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <type_traits>

namespace fsdp::config {
namespace {

// Each reads a value of its type: all of the text, or it returns false.
template <class T>
bool read(const std::string& text, T& value, const Allowed& allowed) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);  // to the nearest double
  const auto number = static_cast<double>(value);
  const bool is_within = number >= allowed.least && number <= allowed.most;  // a NaN is not
  return stop == end && error == std::errc() && is_within;
}

bool read(const std::string& text, bool& value, const Allowed&) {
  value = text == "true";
  return value || text == "false";
}

bool read(const std::string& text, std::string& value, const Allowed& allowed) {
  value = text;
  if (allowed.words.empty()) return text.find('\0') == std::string::npos;
  return std::ranges::find(allowed.words, text) != allowed.words.end();
}

bool read(const std::string& text, std::vector<std::string>& value, const Allowed& allowed) {
  std::string names_text;
  if (!read(text, names_text, allowed)) return false;
  value.clear();
  std::istringstream names(names_text);
  for (std::string name; std::getline(names, name, ',');) value.push_back(name);
  return true;
}

bool read(const std::string& text, std::optional<DType>& value, const Allowed& allowed) {
  value = dtype_named(text);
  return std::ranges::find(allowed.words, text) != allowed.words.end();
}

template <class Enum>
requires std::is_enum_v<Enum>
bool read(const std::string& text, Enum& value, const Allowed& allowed) {
  const auto word = std::ranges::find(allowed.words, text);
  if (word == allowed.words.end()) return false;
  value = static_cast<Enum>(word - allowed.words.begin());
  return true;
}

bool read(const std::string& text, ReshardAfterForward& value, const Allowed& allowed) {
  bool always = false;
  if (read(text, always, allowed)) {
    value = always ? ReshardAfterForward::always() : ReshardAfterForward::never();
    return true;
  }
  value.kind = ReshardAfterForward::Kind::within;
  return read(text, value.ranks, allowed);
}

template <class T>
std::string show(const T& value, const Allowed& allowed) {
  if constexpr (std::is_enum_v<T>) {
    return allowed.words.at(static_cast<std::size_t>(value));
  } else {
    return fmt::format("{}", value);
  }
}

std::string show(const std::vector<std::string>& value, const Allowed&) {
  return fmt::format("{}", fmt::join(value, ","));
}

std::string show(const std::optional<DType>& value, const Allowed&) {
  return value ? std::string(name_of(*value)) : "none";
}

std::string show(const ReshardAfterForward& value, const Allowed& allowed) {
  using Kind = ReshardAfterForward::Kind;
  return value.kind == Kind::within ? show(value.ranks, allowed)
                                    : show(value.kind == Kind::always, allowed);
}

}  // namespace

bool Key::is_text() const {
  return !allowed.words.empty() || std::holds_alternative<std::string*>(member) ||
         std::holds_alternative<std::vector<std::string>*>(member);
}

std::string Key::values() const {
  if (!allowed.words.empty()) return fmt::format("one of {}", fmt::join(allowed.words, ", "));
  if (is_text()) return "text without NUL";
  if (std::holds_alternative<bool*>(member)) return "true or false";
  const bool is_reshard = std::holds_alternative<ReshardAfterForward*>(member);
  const bool is_real = std::holds_alternative<double*>(member);
  return fmt::format("{}a {}number between {} and {}", is_reshard ? "true, false or " : "",
                     is_real ? "" : "whole ", allowed.least, allowed.most);
}

bool Key::set(const std::string& text) const {
  return std::visit([&](auto* to) { return read(text, *to, allowed); }, member);
}

std::string Key::get() const {
  return std::visit([&](auto* value) { return show(*value, allowed); }, member);
}

void Setting::apply(const std::vector<Key>& keys) const {
  const auto found = std::ranges::find(keys, key, &Key::name);
  const bool is_path = key.ends_with(".toml") || key.ends_with(".json");
  if (found == keys.end() && is_path && origin == kCommandLine) {
    throw InputError(fmt::format(
        "{}: {}: is no option; give a file of ours or of torchtitan with --config, and one of "
        "DeepSpeed with --deepspeed",
        origin, printable(key)));
  }
  if (found == keys.end()) {
    std::vector<std::string> names;
    names.reserve(keys.size());
    for (const Key& each : keys) names.push_back(each.name);
    throw InputError(
        fmt::format("{}: unknown key {}; did you mean {}? --help lists all, such as "
                    "--training.steps 100",
                    origin, printable(key), nearest(key, names)));
  }
  const bool is_text = is_quoted.value_or(found->is_text());
  if (value && is_text == found->is_text() && found->set(*value)) return;
  std::string given = printable(value.value_or("missing"));
  if (value && (is_text || value->empty())) given = '"' + given + '"';
  std::string remedy;
  if (!value) remedy = "; a setting is --training.steps 100";
  if (found->is_text() && !is_text) remedy = ", in quotes";
  throw InputError(
      fmt::format("{}: {}: is {}, must be {}{}", origin, key, given, found->values(), remedy));
}

const std::string& nearest(const std::string& name, const std::vector<std::string>& names) {
  const auto likeness = [&](const std::string& key) {
    const auto front = std::mismatch(name.begin(), name.end(), key.begin(), key.end()).first;
    const auto back = std::mismatch(name.rbegin(), name.rend(), key.rbegin(), key.rend()).first;
    return std::min((front - name.begin()) + (back - name.rbegin()), std::ssize(name));
  };
  return *std::ranges::max_element(names, {}, likeness);
}

const Key& key_named(const std::vector<Key>& keys, const std::string& name) {
  return *std::ranges::find(keys, name, &Key::name);
}

}  // namespace fsdp::config
