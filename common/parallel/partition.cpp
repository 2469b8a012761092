#include "parallel/partition.h"

#include "base/check.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace fsdp::parallel {

namespace {

std::vector<OwnedSlice> divide_greedily(const std::vector<std::int64_t>& numels, int world_size) {
  using Load = std::pair<std::int64_t, int>;  // and its rank: the lowest of equals comes first
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int rank = 0; rank < world_size; ++rank) loads.emplace(0, rank);
  std::vector<OwnedSlice> slices;
  for (std::size_t i = 0; i < numels.size(); ++i) {
    const auto [load, rank] = loads.top();
    loads.pop();
    slices.push_back({i, 0, numels[i], rank});
    loads.emplace(load + numels[i], rank);
  }
  return slices;
}

using Indices = std::vector<std::size_t>;

Indices round_robin_order(std::size_t count, int world_size) {
  const auto stride = static_cast<std::size_t>(world_size);
  Indices order;
  for (std::size_t first = 0; first < std::min(stride, count); ++first) {
    for (std::size_t i = first; i < count; i += stride) order.push_back(i);
  }
  return order;
}

// One cut through the parameters in this order.
std::vector<OwnedSlice> cut_flat(const std::vector<std::int64_t>& numels, const Indices& order,
                                 int world_size) {
  const std::int64_t all = std::accumulate(numels.begin(), numels.end(), std::int64_t{0});
  const auto share_of = [&](int rank) {
    return all / world_size + (rank < all % world_size ? 1 : 0);
  };
  std::vector<OwnedSlice> slices;
  int owner = 0;
  std::int64_t room = share_of(0);
  for (const std::size_t i : order) {
    for (std::int64_t begin = 0; begin < numels[i];) {
      while (room == 0) room = share_of(++owner);
      const std::int64_t numel = std::min(room, numels[i] - begin);
      slices.push_back({i, begin, numel, owner});
      begin += numel;
      room -= numel;
    }
  }
  std::ranges::stable_sort(slices, {}, &OwnedSlice::parameter);
  return slices;
}

}  // namespace

std::vector<OwnedSlice> divide(optim::Partition how, const std::vector<std::int64_t>& numels,
                               int world_size) {
  FSDP_CHECK(world_size >= 1, "parameters cannot be divided among {} ranks", world_size);
  if (how == optim::Partition::greedy) return divide_greedily(numels, world_size);
  const bool is_reordered = how == optim::Partition::round_robin;
  return cut_flat(numels, round_robin_order(numels.size(), is_reordered ? world_size : 1),
                  world_size);
}

std::vector<std::int64_t> loads_of(const std::vector<OwnedSlice>& slices, int world_size) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(world_size));
  for (const OwnedSlice& each : slices) loads[static_cast<std::size_t>(each.owner)] += each.numel;
  return loads;
}

std::vector<std::vector<OwnedSlice>> travel_groups(const std::vector<OwnedSlice>& slices,
                                                   const std::vector<DType>& dtypes,
                                                   std::size_t most_bytes) {
  std::vector<std::vector<OwnedSlice>> groups;
  struct Open {
    std::size_t group;
    std::uint64_t nbytes;
  };
  std::map<std::pair<int, DType>, Open> open;  // the group that may take more
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
    const DType dtype = dtypes.at(slice->parameter);
    const std::uint64_t nbytes = static_cast<std::uint64_t>(slice->numel) * size_of(dtype);
    const auto [entry, is_new] =
        open.try_emplace(std::pair(slice->owner, dtype), Open{groups.size(), 0});
    if (is_new || entry->second.nbytes + nbytes > most_bytes) {
      entry->second = {groups.size(), 0};
      groups.emplace_back();
    }
    groups[entry->second.group].push_back(*slice);
    entry->second.nbytes += nbytes;
  }
  const auto last = [](const std::vector<OwnedSlice>& group) {
    return std::pair(group.back().parameter, group.back().begin);
  };
  std::ranges::sort(groups, [&](const auto& a, const auto& b) { return last(a) > last(b); });
  return groups;
}

}  // namespace fsdp::parallel
