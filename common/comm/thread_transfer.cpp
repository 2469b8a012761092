#include "comm/thread_transfer.h"

#include "comm/scale_down.h"
#include "comm/stream_copy.h"
#include "tensor/tree_sum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace fsdp::threads {
namespace {

// Sizes were chosen by tests/bench/collectives.cpp. A chunk is long beside the lock it takes to get
// one and short beside a time slice; a whole below kSmallBytes is done sooner than a thread wakes.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
constexpr std::int64_t kSmallBytes = std::int64_t{64} << 10;
constexpr std::int64_t kStreamBytes = std::int64_t{16} << 20;
constexpr std::size_t kBlockBytes = std::size_t{16} << 10;  // stays in the first-level cache
constexpr std::int64_t kRangeMultiple = 64;                 // elements: no two chunks share a line

}  // namespace

HostTransfer::HostTransfer(std::vector<Collective> calls)
    : calls_(std::move(calls)),
      op_(calls_.front().op),
      dtype_(calls_.front().dtype),
      element_size_(size_of(dtype_)),
      numel_(calls_.front().numel) {
  const int world_size = static_cast<int>(calls_.size());
  const bool per_rank = op_ == CollectiveOp::all_gather || op_ == CollectiveOp::reduce_scatter;
  if (per_rank) slots_ = world_size;

  std::vector<const std::byte*> ins;
  std::vector<std::byte*> outs;
  collect(0, ins, outs);
  if (numel_ == 0 || outs.empty()) return;  // nothing moves

  const auto element = static_cast<std::int64_t>(element_size_);
  const std::int64_t touched = static_cast<std::int64_t>(ins.size() + outs.size()) * element;
  small_ = touched * numel_ * slots_ <= kSmallBytes;
  streamed_ = static_cast<std::int64_t>(outs.size()) * element * numel_ * slots_ >= kStreamBytes;
  const std::int64_t wanted = std::max<std::int64_t>(1, kPieceBytes / touched / kRangeMultiple);
  range_ = small_ ? numel_ : wanted * kRangeMultiple;
  ranges_ = (numel_ + range_ - 1) / range_;
}

void HostTransfer::run(std::int64_t chunk) {
  const auto slot = static_cast<int>(chunk / ranges_);
  const std::int64_t begin = chunk % ranges_ * range_;
  run_range(slot, begin, std::min(begin + range_, numel_));
}

// Where element 0 of `slot` is read and written.
void HostTransfer::collect(int slot, std::vector<const std::byte*>& ins,
                           std::vector<std::byte*>& outs) const {
  const std::size_t at = static_cast<std::size_t>(slot * numel_) * element_size_;
  const auto index = static_cast<std::size_t>(slot);
  const auto root = static_cast<std::size_t>(std::max(0, calls_.front().root));
  switch (op_) {
    case CollectiveOp::all_gather:
      ins = {calls_[index].in};
      for (const Collective& call : calls_) outs.push_back(call.out + at);
      break;
    case CollectiveOp::reduce_scatter:
      for (const Collective& call : calls_) ins.push_back(call.in + at);
      outs = {calls_[index].out};
      break;
    case CollectiveOp::all_reduce:
      for (const Collective& call : calls_) ins.push_back(call.in);
      for (const Collective& call : calls_) outs.push_back(call.out);
      break;
    case CollectiveOp::broadcast:
      ins = {calls_[root].in};
      for (const Collective& call : calls_) outs.push_back(call.out);
      break;
    case CollectiveOp::reduce:
      for (const Collective& call : calls_) ins.push_back(call.in);
      outs = {calls_[root].out};
      break;
    case CollectiveOp::barrier:
    case CollectiveOp::split:
      return;
  }
  // In place: the rank has its own part already.
  if (ins.size() == 1) std::erase(outs, ins.front());
}

void HostTransfer::run_range(int slot, std::int64_t begin, std::int64_t end) const {
  std::vector<const std::byte*> ins;
  std::vector<std::byte*> outs;
  collect(slot, ins, outs);
  const std::size_t at = static_cast<std::size_t>(begin) * element_size_;
  for (const std::byte*& in : ins) in += at;
  for (std::byte*& out : outs) out += at;

  const std::int64_t numel = end - begin;
  if (ins.size() == 1) {
    copy(ins.front(), outs, static_cast<std::size_t>(numel) * element_size_);
  } else {
    sum(ins, outs, numel);
  }
}

void HostTransfer::put(std::byte* out, const std::byte* in, std::size_t nbytes) const {
  if (streamed_) {
    stream_copy(out, in, nbytes);
  } else {
    std::memcpy(out, in, nbytes);
  }
}

void HostTransfer::copy(const std::byte* in, const std::vector<std::byte*>& outs,
                        std::size_t nbytes) const {
  // Block by block, so that the second copy reads from the cache what the first read from memory.
  const std::size_t block = outs.size() == 1 ? nbytes : kBlockBytes;
  for (std::size_t at = 0; at < nbytes; at += block) {
    const std::size_t length = std::min(block, nbytes - at);
    for (std::byte* out : outs) put(out + at, in + at, length);
  }
}

void HostTransfer::sum(const std::vector<const std::byte*>& ins,
                       const std::vector<std::byte*>& outs, std::int64_t numel) const {
  alignas(64) std::array<std::byte, kBlockBytes> block;
  const auto block_numel = static_cast<std::int64_t>(kBlockBytes / element_size_);
  std::vector<const std::byte*> from = ins;
  for (std::int64_t begin = 0; begin < numel; begin += block_numel) {
    const std::int64_t length = std::min(block_numel, numel - begin);
    const std::size_t at = static_cast<std::size_t>(begin) * element_size_;
    for (std::size_t q = 0; q < ins.size(); ++q) from[q] = ins[q] + at;
    tree_sum(block.data(), std::span<const std::byte* const>(from), length, dtype_);
    if (calls_.front().reduce == ReduceOp::avg)
      scale_down(block.data(), length, dtype_, static_cast<int>(calls_.size()));
    const std::size_t nbytes = static_cast<std::size_t>(length) * element_size_;
    for (std::byte* out : outs) put(out + at, block.data(), nbytes);
  }
}

}  // namespace fsdp::threads
