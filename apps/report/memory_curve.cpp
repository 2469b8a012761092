#include "report/memory_curve.h"

#include "base/check.h"

#include <algorithm>
#include <unordered_map>

namespace fsdp::report {

std::vector<MemoryChange> memory_changes(const RankRecord& rank) {
  using What = MemoryTracker::LogEntry::What;
  std::unordered_map<MemoryTracker::BlockId, const MemoryTracker::LogEntry*> alive;
  std::vector<MemoryChange> changes;
  for (const MemoryTracker::LogEntry& entry : rank.memory) {
    if (entry.what != What::alloc) {
      const auto before = alive.find(entry.block);
      FSDP_CHECK(before != alive.end(), "the memory log uses block {} before it allocates it",
                 entry.block);
      const MemoryTracker::LogEntry& old = *before->second;
      changes.push_back(
          {entry.time, old.kind, -old.nbytes, old.owner.get(), entry.what == What::recategorize});
    }
    if (entry.what == What::free) {
      alive.erase(entry.block);
      continue;
    }
    changes.push_back({entry.time, entry.kind, entry.nbytes, entry.owner.get()});
    alive[entry.block] = &entry;
  }
  return changes;
}

std::vector<MemoryPoint> memory_curve(const RankRecord& rank) {
  using What = MemoryTracker::LogEntry::What;
  const std::vector<MemoryChange> changes = memory_changes(rank);
  std::vector<MemoryPoint> curve(1);
  auto change = changes.begin();
  for (std::size_t i = 0; i < rank.memory.size(); ++i) {
    const MemoryTracker::LogEntry& entry = rank.memory[i];
    if (i >= rank.opening) curve.push_back({entry.time, curve.back().bytes});
    for (int n = entry.what == What::recategorize ? 2 : 1; n > 0; --n, ++change) {
      curve.back().bytes[change->kind] += change->delta;
    }
  }
  return curve;
}

std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& curve) {
  std::vector<MemoryPoint> few;
  for (auto first = curve.begin(); first != curve.end();) {
    const auto end = std::find_if(
        first, curve.end(), [&](const MemoryPoint& point) { return point.time != first->time; });
    const auto highest =
        std::max_element(first, end, [](const MemoryPoint& a, const MemoryPoint& b) {
          return a.bytes.total() < b.bytes.total();
        });
    few.push_back(*first);
    if (highest != first) few.push_back(*highest);
    if (end - first > 1 && highest != end - 1) few.push_back(*(end - 1));
    first = end;
  }
  return few;
}

const MemoryPoint& peak_of(const std::vector<MemoryPoint>& curve) {
  FSDP_CHECK(!curve.empty(), "a curve without points has no peak");
  return *std::max_element(
      curve.begin(), curve.end(),
      [](const MemoryPoint& a, const MemoryPoint& b) { return a.bytes.total() < b.bytes.total(); });
}

}  // namespace fsdp::report
