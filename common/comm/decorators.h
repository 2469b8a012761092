/// @file
/// @ingroup comm
/// Backends around a backend: they change what is seen or how long it takes, never what is computed.
#pragma once

#include "comm/process_group.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp {

/// What went over the wire, as a rank saw it.
struct LedgerEntry {
  CollectiveOp op;
  Label label;
  DType dtype;
  std::int64_t numel;           ///< as in Collective
  std::int64_t received_bytes;  ///< (W-1)/W of the gathered or reduced bytes; all_reduce: twice that
};

/// Every collective a rank started, in order.
class Ledger {
 public:
  void add(LedgerEntry entry) { entries_.push_back(std::move(entry)); }
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  std::int64_t received_bytes() const;
  void clear() { entries_.clear(); }

 private:
  std::vector<LedgerEntry> entries_;
};

/// Bytes a rank receives for one collective over W ranks with bandwidth-optimal algorithms:
/// all_gather (W-1)·n, reduce_scatter (W-1)·n, all_reduce 2(W-1)/W·N, broadcast and reduce N.
std::int64_t received_bytes(CollectiveOp op, std::int64_t numel, std::size_t element_size, int world_size);

/// Writes every call to `ledger`.
std::shared_ptr<Backend> make_recording(std::shared_ptr<Backend> inner, std::shared_ptr<Ledger> ledger);

/// A slower link on the real clock: a collective is not done before (W-1)·alpha + beta·bytes have
/// passed since it could start (one channel, in order). For benchmarks; no test depends on it.
struct LinkModel {
  double alpha_seconds = 0;
  double bytes_per_second = 0;  ///< 0 = infinite
};
std::shared_ptr<Backend> make_throttled(std::shared_ptr<Backend> inner, LinkModel link);

}  // namespace fsdp
