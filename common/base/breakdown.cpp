#include "base/breakdown.h"

#include <fmt/format.h>

#include <numeric>

namespace fsdp {

std::string to_string(const Owner& owner) {
  if (owner.unit.empty()) return owner.name.empty() ? "nobody" : owner.name;
  if (owner.name.empty()) return fmt::format("unit {}", owner.unit);
  return fmt::format("unit {}, parameter {}", owner.unit, owner.name);
}

std::int64_t Breakdown::total() const {
  return std::accumulate(nbytes.begin(), nbytes.end(), std::int64_t{0});
}

std::string to_string(const Breakdown& breakdown) {
  std::string text;
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    if (breakdown[kind] == 0) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", name_of(kind), breakdown[kind]);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace fsdp
