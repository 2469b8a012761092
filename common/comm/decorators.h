/// @file
/// @ingroup comm
/// Backends around a backend: they change what is seen or how long it takes, never what is
/// computed.
#pragma once

#include "comm/process_group.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp {

/// What went over the wire, as a rank saw it.
struct LedgerEntry {
  CollectiveOp op;
  Label label;
  DType dtype;
  std::int64_t numel;           ///< as in Collective
  std::int64_t received_bytes;  ///< as received_bytes() counts them
};

/// Every collective a rank started, in order. One per rank; touched by that rank's thread only.
class Ledger {
 public:
  void add(LedgerEntry entry) { entries_.push_back(std::move(entry)); }
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  std::int64_t received_bytes() const;
  void clear() { entries_.clear(); }

 private:
  std::vector<LedgerEntry> entries_;
};

/// Writes every call to `ledger`, and those of the groups split off from it. (Splits themselves
/// move no data and are left out.)
std::shared_ptr<Backend> make_recording(std::shared_ptr<Backend> inner,
                                        std::shared_ptr<Ledger> ledger);

/// A slower link on the real clock: a collective is not done before (W-1)·alpha + bytes/bandwidth
/// have passed since this rank issued it or its channel fell free, whichever is later. One channel
/// a rank, in order, shared with the groups split off. For benchmarks; no test depends on it.
struct LinkModel {
  double alpha_seconds = 0;
  double bytes_per_second = 0;  ///< 0 = infinite
};
std::shared_ptr<Backend> make_throttled(std::shared_ptr<Backend> inner, LinkModel link);

}  // namespace fsdp
