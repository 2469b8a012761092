#include "graded/observations.h"

#include "base/check.h"
#include "base/half_floats.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace fsdp::graded {

Observations::Observations(Case asked, Json observations)
    : asked_(std::move(asked)), seen_(std::move(observations)) {}

bool Observations::has(int rank, const std::string& key) const {
  return seen_.at("ranks").at(static_cast<std::size_t>(rank)).contains(key);
}

const Json& Observations::at(int rank, const std::string& key) const {
  FSDP_CHECK(has(rank, key), "rank {} of {} reported no '{}'", rank, to_string(asked_), key);
  return seen_.at("ranks").at(static_cast<std::size_t>(rank)).at(key);
}

std::int64_t Observations::number(int rank, const std::string& key) const {
  return at(rank, key).get<std::int64_t>();
}

std::string Observations::text(int rank, const std::string& key) const {
  return at(rank, key).get<std::string>();
}

std::vector<std::string> Observations::lines(int rank, const std::string& key) const {
  return at(rank, key).get<std::vector<std::string>>();
}

namespace {

template <class T>
std::vector<float> widened(const std::vector<std::uint8_t>& bits) {
  std::vector<T> values(bits.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bits.data(), values.size() * sizeof(T));
  std::vector<float> floats;
  for (const T value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

}  // namespace

std::vector<float> Observations::floats(int rank, const std::string& key) const {
  const Json& noted = at(rank, key);
  const auto dtype = noted.at("dtype").get<std::string>();
  const auto& bits = noted.at("bits").get_binary();
  if (dtype == "bfloat16") return widened<BFloat16>(bits);
  if (dtype == "float16") return widened<Float16>(bits);
  FSDP_CHECK(dtype == "float32", "'{}' is {}, not float32", key, dtype);
  return widened<float>(bits);
}

std::vector<std::int64_t> Observations::shape(int rank, const std::string& key) const {
  return at(rank, key).at("shape").get<std::vector<std::int64_t>>();
}

std::int64_t Observations::bytes(int rank, const std::string& key, const std::string& kind) const {
  return at(rank, key).at(kind).get<std::int64_t>();
}

namespace {

/// An option in the words of a reader who does not know the scenario's code.
std::string in_words(const std::string& name, const Json& value) {
  if (name != "poison") return fmt::format("{}={}", name, value.dump());
  if (!value.is_boolean()) return fmt::format("(garbage is written first: {})", value.dump());
  return value.get<bool>() ? "(garbage is written first)" : "(nothing is written first)";
}

}  // namespace

std::string to_string(const Case& asked) {
  std::string text = fmt::format("{} W={} seed {}", asked.scenario, asked.world_size, asked.seed);
  if (asked.delivery == Delivery::lazy) text += " (bytes arrive in wait())";
  if (asked.delivery == Delivery::eager) text += " (bytes leave at issue)";
  if (asked.delivery == Delivery::fails) text += " (another rank fails before wait())";
  if (asked.device != kCpu) text += " on cuda";
  for (const auto& [name, value] : asked.options.items()) {
    text += " " + in_words(name, value);
  }
  return text;
}

}  // namespace fsdp::graded
