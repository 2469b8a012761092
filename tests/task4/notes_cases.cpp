#include "task4/notes.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace fsdp::graded {

std::vector<std::string> reductions_in(const Json& collectives) {
  std::vector<std::string> all;
  for (const Json& each : collectives) {
    if (each.at("op") == "all_gather") continue;
    all.push_back(fmt::format("{} {}/{} of {} {} per rank", each.at("op").get<std::string>(),
                              each.at("unit").get<std::string>(),
                              each.at("phase").get<std::string>(), each.at("numel").get<int>(),
                              each.at("dtype").get<std::string>()));
  }
  // A unit may start its flat parameters in any order.
  const auto of_one_unit = [](const std::string& a, const std::string& b) {
    return a.substr(0, a.find(" of ")) == b.substr(0, b.find(" of "));
  };
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find_if_not(first, all.end(),
                                       [&](const auto& line) { return of_one_unit(*first, line); });
    std::sort(first, last);
    first = last;
  }
  return all;
}

std::vector<std::string> gathers_in(const Json& collectives) {
  std::vector<std::string> all;
  for (const Json& each : collectives) {
    if (each.at("op") != "all_gather") continue;
    all.push_back(fmt::format("all_gather {}/{}", each.at("unit").get<std::string>(),
                              each.at("phase").get<std::string>()));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string gather_line(const std::string& unit) {
  return fmt::format("all_gather {}/backward", unit);
}

std::vector<std::string> reductions_of(const UnitLayout& unit, int world_size, DType dtype) {
  std::vector<std::string> all;
  for (const FlatLayout& flat : unit.trainable()) {
    all.push_back(fmt::format("reduce_scatter {}/gradient of {} {} per rank", unit.name,
                              flat.shard(world_size), name_of(dtype)));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string step_of(const std::string& step, const Case& asked) {
  return asked.options.contains("param") ? "4.8" : step;
}

std::vector<std::string> for_each_flat(const UnitLayout& unit, const std::string& line) {
  return std::vector<std::string>(unit.trainable().size(), line);
}

std::int64_t partials(int leaves) { return std::popcount(static_cast<unsigned>(leaves)); }

std::string key_of(const std::string& name, std::size_t index) {
  return fmt::format("{}.{}", name, index);
}

std::int64_t grown(const Observations& seen, int rank, const std::string& key) {
  const Json& noted = seen.at(rank, key);
  return noted.at("peak").at("total").get<std::int64_t>() -
         noted.at("before").at("total").get<std::int64_t>();
}

void check_heap(Check& check, const Observations& seen, int rank, const std::string& key) {
  check.at_most("the largest block allocated on the heap",
                seen.at(rank, key).at("heap").get<std::int64_t>(), 4095,
                {{true, "You allocated a copy outside the memory tracker"}});
}

std::vector<std::string> digits_in(const Observations& seen, int rank, const std::string& key) {
  const Json& noted = seen.at(rank, key);
  FSDP_CHECK(noted.at("dtype") == "float64", "'{}' is not float64", key);
  const auto& bits = noted.at("bits").get_binary();
  std::vector<double> values(bits.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bits.data(), values.size() * sizeof(double));
  return digits_of(values);
}

std::vector<std::string> digits_of(const std::vector<double>& values) {
  std::vector<std::string> digits;
  for (const double value : values) digits.push_back(fmt::format("{:.17g}", value));
  return digits;
}

bool same(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

Floats times(Floats values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

}  // namespace fsdp::graded
