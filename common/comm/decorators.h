/// @file
/// @ingroup comm
/// Backends around a backend: they record calls or slow them down, and never change results.
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

/// Forwards every call to the inner backend. Splits are decorated like their parent.
class Decorated : public Backend {
 public:
  explicit Decorated(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  bool is_far() const override { return inner_->is_far(); }
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

/// One collective on the wire, as a rank sees it.
struct CollectiveRecord {
  CollectiveOp op;
  Label label;
  DType dtype;
  std::int64_t numel;           ///< as in Collective
  std::int64_t received_bytes;  ///< as received_bytes() counts them
};

/// Every collective a rank started, in order. One per rank; only that rank's thread uses it.
class CollectiveLog {
 public:
  void add(CollectiveRecord entry) { entries_.push_back(std::move(entry)); }
  const std::vector<CollectiveRecord>& entries() const { return entries_; }
  std::int64_t received_bytes() const;
  void clear() { entries_.clear(); }
  /// Reserves memory for `count` entries, so that add() need not allocate.
  void reserve(std::size_t count) { entries_.reserve(count); }

 private:
  std::vector<CollectiveRecord> entries_;
};

/// Writes every call to `log`, also those of groups split off from it. (Splits themselves move
/// no data and are left out.)
std::shared_ptr<Backend> make_recording(std::shared_ptr<Backend> inner,
                                        std::shared_ptr<CollectiveLog> log);

/// A slower link on the real clock: a collective takes at least (W-1)·alpha + bytes/bandwidth from
/// when this rank issues it or its channel is free, whichever is later. Each rank has one channel,
/// in order, shared with the groups split off. For benchmarks; no test depends on it.
struct LinkModel {
  double alpha_seconds = 0;
  double bytes_per_second = 0;  ///< 0 = infinite
};
std::shared_ptr<Backend> make_throttled(std::shared_ptr<Backend> inner, LinkModel link);

}  // namespace fsdp
