/// @file
/// @ingroup comm
/// Backends around a backend: they change what is seen or how long it takes, never what is
/// computed.
#pragma once

#include "comm/process_group.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp {

/// What every decorator hands through; splits are decorated like their parent.
class Decorated : public Backend {
 public:
  explicit Decorated(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) override {
    return decorate(inner_->split(color, key, sequence));
  }
  std::shared_ptr<Backend> split_regular(int count, int stride, std::int64_t sequence) override {
    return decorate(inner_->split_regular(count, stride, sequence));
  }

 protected:
  virtual std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) = 0;
  Backend& inner() { return *inner_; }

 private:
  std::shared_ptr<Backend> inner_;
};

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
  /// Makes room for so many entries, so that add() takes nothing from the heap for a while.
  void reserve(std::size_t count) { entries_.reserve(count); }

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
