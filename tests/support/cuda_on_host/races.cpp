// Finds two accesses to the same bytes without an order between them, at two scales: threads of a
// kernel, ordered by its barriers, and operations, ordered by streams, events and waits of the
// host.
#include "support/cuda_on_host/memory.h"
#include "support/cuda_on_host/misuse.h"

namespace cuda_on_host {
namespace {

bool same_warp(const ThreadPosition& a, const ThreadPosition& b) {
  return a.block == b.block && a.thread / 32 == b.thread / 32;
}

/// Whether what was done at `earlier` comes before what is done at `now`, in the same launch.
bool ordered(const ThreadPosition& earlier, const ThreadPosition& now) {
  if (earlier.block != now.block) return false;
  if (earlier.thread == now.thread || earlier.block_epoch < now.block_epoch) return true;
  return same_warp(earlier, now) && earlier.warp_epoch < now.warp_epoch;
}

std::string describe(const char* did, const ThreadPosition& other) {
  return fmt::format(
      "thread {} of block {} {} the same bytes, and no barrier orders the two (counted linearly)",
      other.thread, other.block, did);
}

/// Threads of one launch. Earlier launches are ordered, or not, as operations.
std::string race_of_threads(Cell& cell, const Access& access, std::uint8_t mask) {
  const ThreadPosition& me = access.position;
  const auto meets = [&](const Cell::ByThread& other) {
    return other.position.launch == me.launch && (other.mask & mask) != 0;
  };
  if (meets(cell.write) && !(cell.write.atomic && access.atomic) &&
      !ordered(cell.write.position, me)) {
    return describe("has written", cell.write.position);
  }
  if (access.write && meets(cell.read) && !(cell.read.atomic && access.atomic)) {
    const ThreadPosition& reader = cell.read.position;
    const bool alone = !cell.other_threads_read;
    const bool by_block = reader.block == me.block && reader.block_epoch < me.block_epoch;
    const bool by_warp =
        !cell.other_warps_read && same_warp(reader, me) && (reader.warp_epoch < me.warp_epoch);
    if (!by_block && !by_warp && !(alone && ordered(reader, me))) {
      return describe("has read", reader);
    }
  }
  if (access.write) {
    cell.write = {me, mask, access.atomic};
    return {};
  }
  const bool goes_on = cell.read.position.launch == me.launch &&
                       cell.read.position.block == me.block &&
                       cell.read.position.block_epoch == me.block_epoch;
  cell.other_threads_read =
      goes_on && (cell.other_threads_read || cell.read.position.thread != me.thread);
  cell.other_warps_read = goes_on && (cell.other_warps_read || !same_warp(cell.read.position, me));
  cell.read = {me, mask, access.atomic};
  return {};
}

std::string race_of_operations(Cell& cell, const std::vector<Operation>& operations,
                               const Access& access, std::uint8_t mask) {
  const Operation& me = operations[access.operation];
  const auto conflicts = [&](const Cell::ByOperation& other) {
    return other.operation != 0 && (other.mask & mask) != 0 &&
           !me.after(operations[other.operation]);
  };
  const auto describe_operation = [&](const char* did, const Cell::ByOperation& other) {
    return fmt::format(
        "{} {} the same bytes, and nothing orders the two: no event that the later one "
        "waits for, and no wait of the host",
        operations[other.operation].what, did);
  };
  if (conflicts(cell.written)) return describe_operation("writes", cell.written);
  if (!access.write) {
    // Of several readers the last two are kept; one that this one comes after is not needed.
    Cell::ByOperation& place = cell.read_by[0].operation == access.operation ||
                                       cell.read_by[0].operation == 0 ||
                                       me.after(operations[cell.read_by[0].operation])
                                   ? cell.read_by[0]
                                   : cell.read_by[1];
    if (place.operation != access.operation) place = {access.operation, 0};
    place.mask |= mask;
    return {};
  }
  for (const Cell::ByOperation& reader : cell.read_by) {
    if (conflicts(reader)) return describe_operation("reads", reader);
  }
  if (cell.written.operation != access.operation) cell.written = {access.operation, 0};
  cell.written.mask |= mask;
  return {};
}

std::string out_of_bounds(const Allocation& allocation, const Access& access) {
  const auto offset = access.begin - allocation.begin;
  return fmt::format("bytes {} to {} of {}, which is past its end", offset,
                     offset + access.nbytes - 1, allocation.name());
}

}  // namespace

std::string touch(Memory& memory, const std::vector<Operation>& operations, const Access& access) {
  if (access.nbytes == 0) return {};
  Allocation* allocation = memory.find(access.begin);
  const char* verb = access.write ? "writes" : "reads";
  if (allocation == nullptr) return fmt::format("{} memory that was never allocated", verb);
  if (!allocation->freed_by.empty()) {
    return fmt::format("{} {}, which {} has freed", verb, allocation->name(), allocation->freed_by);
  }
  if (!allocation->live) {
    return fmt::format("{} {} before its cudaMallocAsync has run: its stream must be waited for",
                       verb, allocation->name());
  }
  const std::size_t begin = access.begin - allocation->begin, end = begin + access.nbytes;
  if (end > allocation->nbytes) {
    return fmt::format("{} {}", verb, out_of_bounds(*allocation, access));
  }
  memory.open(*allocation, begin, end);
  if (allocation->is_vast) return {};
  for (std::size_t i = begin / Cell::kNbytes; i * Cell::kNbytes < end;) {
    const std::size_t first = i * Cell::kNbytes;
    const std::size_t last = end == allocation->nbytes ? end + Cell::kNbytes - 1 : end;
    const auto [record, count] =
        allocation->cells.at(i, begin > first ? 0 : (last - first) / Cell::kNbytes);
    i += count;
    const std::size_t from = std::max(begin, first) - first;
    const std::size_t to = std::min(end, first + Cell::kNbytes) - first;
    const auto mask = static_cast<std::uint8_t>((1U << to) - (1U << from));
    Cell& cell = *record;
    std::string wrong;
    if (access.position.launch != 0) wrong = race_of_threads(cell, access, mask);
    if (wrong.empty()) wrong = race_of_operations(cell, operations, access, mask);
    if (!wrong.empty()) {
      return fmt::format("{} byte {} of {}; {}", verb, first + from, allocation->name(), wrong);
    }
  }
  return {};
}

std::string touch_shared(Cell& cell, const Access& access, std::uint8_t mask) {
  const bool fresh = cell.written.operation == 0 || (cell.written.mask & mask) != mask;
  if (fresh && (!access.write || access.atomic))
    return "nothing in this block has written them yet";
  std::string wrong = race_of_threads(cell, access, mask);
  if (access.write) cell.written = {1, static_cast<std::uint8_t>(cell.written.mask | mask)};
  return wrong;
}

}  // namespace cuda_on_host
