/// @file
/// The shards of task 8's cases of single calls: what runner and judge must agree on.
///
/// Options: starts, a list of [unit, flat parameter] in the order of the calls, with a shard of
/// `numel` + flat parameter elements each; then_starts (clear), the same after clear().
#pragma once

#include "graded/case.h"
#include "support/toy_model.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::graded {

using Starts = std::vector<std::pair<std::string, int>>;

inline Starts starts_of(const Json& options, const char* key = "starts") {
  return options.value(key, Starts{{"layers.0", 0}});
}
inline std::string name_of_sum(const std::string& unit, int flat) {
  return unit + "#" + std::to_string(flat);
}
/// What `rank` gives to the sum in call number `call`.
inline Tensor shard_of(const Case& asked, int flat, int rank, int call) {
  const std::int64_t numel = asked.options.value("numel", std::int64_t{5}) + flat;
  return testing::noise({numel}, asked.seed * 1000 + static_cast<std::uint64_t>(call * 50 + rank));
}

}  // namespace fsdp::graded
