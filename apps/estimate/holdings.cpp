// Who holds what at the peak, from the log of the rank.
#include "base/check.h"
#include "estimate/estimate_run.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace fsdp::estimate {
namespace {

using Entry = MemoryTracker::LogEntry;

/// Replays the log up to and with its entry number `end` - 1.
std::unordered_map<MemoryTracker::BlockId, const Entry*> alive_after(const std::vector<Entry>& log,
                                                                     std::size_t end) {
  std::unordered_map<MemoryTracker::BlockId, const Entry*> alive;
  for (std::size_t i = 0; i < end; ++i) {
    if (log[i].what == Entry::What::free) {
      alive.erase(log[i].block);
    } else {
      alive[log[i].block] = &log[i];
    }
  }
  return alive;
}

/// The number of entries up to the first highest point.
std::size_t end_at_peak(const std::vector<Entry>& log) {
  std::int64_t total = 0;
  std::int64_t highest = 0;
  std::size_t end = 0;
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (log[i].what == Entry::What::alloc) total += log[i].nbytes;
    if (log[i].what == Entry::What::free) total -= log[i].nbytes;
    if (total <= highest) continue;
    highest = total;
    end = i + 1;
  }
  return end;
}

}  // namespace

std::vector<Holding> holdings_at_peak(const report::RunRecord& record, Holding& last) {
  const std::vector<Entry>& log = record.ranks.at(0).memory;
  const std::size_t end = end_at_peak(log);
  if (end == 0) return {};
  const std::vector<std::string> units = report::units_of(record);
  std::unordered_map<const Owner*, std::string> names;
  const auto unit_of = [&](const Entry& entry) -> const std::string& {
    const auto [name, is_new] = names.try_emplace(entry.owner.get());
    if (is_new) name->second = report::unit_of(entry.owner.get(), units);
    return name->second;
  };
  const Entry& top = log[end - 1];
  last = {top.owner == nullptr ? "" : to_string(*top.owner), top.kind, top.nbytes};
  std::map<std::pair<std::string, MemoryKind>, std::int64_t> sums;
  for (const auto& [block, entry] : alive_after(log, end)) {
    sums[{unit_of(*entry), entry->kind}] += entry->nbytes;
  }
  std::vector<Holding> holdings;
  holdings.reserve(sums.size());
  for (const auto& [who, nbytes] : sums) holdings.push_back({who.first, who.second, nbytes});
  std::ranges::stable_sort(holdings, std::greater<>(), &Holding::nbytes);
  return holdings;
}

}  // namespace fsdp::estimate
