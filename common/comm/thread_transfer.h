/// @file
/// @ingroup comm
/// The data plane of the thread backend for bytes of the host, cut into chunks.
#pragma once

#include "comm/process_group.h"
#include "comm/transfer.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::threads {

/// One matched collective as a list of chunks. A chunk reads a range of elements of some ranks'
/// inputs and writes a range of some ranks' outputs. No two chunks touch the same bytes unless both
/// only read. So any thread may run any chunk, in any order, with the same result.
///
///     all_gather      chunk = (rank q, range)   in_q      -> out_r[q] for every r: read once
///     reduce_scatter  chunk = (rank r, range)   in_q[r]   -> tree sum -> out_r
///     all_reduce      chunk = range             data_q    -> tree sum -> data_r for every r
///
/// So all_reduce works in place without a second phase: only the chunk that overwrites a range
/// reads it.
class HostTransfer final : public Transfer {
 public:
  /// `calls`: the matching calls of all ranks of the group, by group rank.
  explicit HostTransfer(std::vector<Collective> calls);

  std::int64_t chunks() const override { return slots_ * ranges_; }
  bool is_small() const override { return small_; }
  void run(std::int64_t chunk) override;

 private:
  void run_range(int slot, std::int64_t begin, std::int64_t end) const;
  void collect(int slot, std::vector<const std::byte*>& ins, std::vector<std::byte*>& outs) const;
  void put(std::byte* out, const std::byte* in, std::size_t nbytes) const;
  void copy(const std::byte* in, const std::vector<std::byte*>& outs, std::size_t nbytes) const;
  void sum(const std::vector<const std::byte*>& ins, const std::vector<std::byte*>& outs,
           std::int64_t numel) const;

  std::vector<Collective> calls_;
  CollectiveOp op_;
  DType dtype_;
  std::size_t element_size_;
  std::int64_t numel_;       // elements of one slot
  int slots_ = 1;            // runs of elements that are cut separately
  std::int64_t ranges_ = 0;  // chunks a slot is cut into
  std::int64_t range_ = 0;   // elements of one of them
  bool small_ = true;
  bool streamed_ = false;  // results bypass the cache
};

}  // namespace fsdp::threads
