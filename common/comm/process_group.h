/// @file
/// @ingroup comm
/// ProcessGroup: a fixed set of ranks that communicate; Work: one collective in flight.
#pragma once

#include "base/trace.h"
#include "comm/collective_op.h"
#include "device/context.h"
#include "tensor/tensor.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

class ReplicaSum;  // comm/replicas.h

/// Operands in the memory of a device: bytes that only work of its streams may touch.
struct DeviceOperands {
  std::shared_ptr<RankDevice> device;  ///< of the rank that calls
  std::unique_ptr<StreamEvent> ready;  ///< the work before the call: it makes the operands
};

/// One collective as a backend sees it: checked, and with raw pointers, because communication
/// threads must never touch a Tensor. Shapes per operation (W ranks):
///
///   all_gather      in (n)    out (W*n)   numel = n
///   reduce_scatter  in (W*n)  out (n)     numel = n
///   all_reduce      in = out (N)          numel = N
///   broadcast       in = out (N)          numel = N, from `root`
///   reduce          in (N)    out (N)     numel = N, out only on `root` (null elsewhere)
///   barrier         nothing               numel = 0
struct Collective {
  CollectiveOp op;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t numel = 0;
  DType dtype = DType::float32;
  ReduceOp reduce = ReduceOp::sum;
  int root = -1;
  Label label{};
  std::int64_t sequence = 0;  ///< number of this call in its group, from 0
  std::int64_t ready_at = 0;  ///< virtual time at which the operands are there (Storage::ready)
  std::shared_ptr<const DeviceOperands> on_device{};  ///< null: bytes of the host
};

/// One collective in flight. Keeps its tensors alive and leases their storage.
///
/// Destroying an unfinished Work blocks until it is finished (or the group has aborted and no
/// thread reads its buffers). So no buffer is freed under a running collective. The destructor
/// never throws, and the trace records the wait. Wait for a Work or destroy it before its rank's
/// function returns, and on the rank's thread. A leaked Work ends the run with an error that names
/// it.
class [[nodiscard]] Work {
 public:
  /// What a backend implements: a collective that it has started and not finished.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual bool is_done() const = 0;
    /// Returns when this rank's output is complete and all peers have read its input. On a CUDA
    /// device: when the rank's compute stream was told to wait until then.
    /// @throws Aborted
    virtual void wait() = 0;
    /// After wait(): when the result was complete on this rank, although nobody may have waited
    /// then. Null if the backend does not know.
    virtual std::optional<std::chrono::steady_clock::time_point> ended() const { return {}; }
  };

  Work() = default;  ///< Already finished.
  Work(std::unique_ptr<Pending> pending, std::vector<Storage::Lease> leases, Event waited);
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  /// True if wait() would not block for another rank, also if the group was aborted. Use the result
  /// only after wait().
  bool is_done() const;

  /// Makes the result usable by what the caller does next, and ends the leases. Blocks this
  /// thread until then. Idempotent.
  ///
  /// On a CUDA device, what the caller does next is work of the rank's compute stream. So this
  /// blocks only until all ranks have called, and lets that stream wait for the data.
  /// @throws Aborted if any rank of the group failed.
  void wait();

 private:
  std::unique_ptr<Pending> pending_;  // null = finished
  std::vector<Storage::Lease> leases_;
  Event waited_{};  // recorded by the first wait()
};

/// Connects ranks: threads, processes, or nothing (fake). It is called from one thread per rank, in
/// the same order on every rank.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<Work::Pending> start(const Collective& call) = 0;
  /// A new group of all ranks that pass the same color, ordered by (key, old rank). Collective.
  virtual std::shared_ptr<Backend> split(int color, int key, std::int64_t sequence) = 0;
  /// A new group of `count` ranks, `stride` apart. Unlike a color, this determines the group
  /// without the other ranks, so a backend without peers can do it too. By default a split() by
  /// color.
  virtual std::shared_ptr<Backend> split_regular(int count, int stride, std::int64_t sequence);
  virtual void abort(const std::string& reason) = 0;
  /// On a virtual clock: whether the ranks are in several boxes of the modeled machine.
  virtual bool is_far() const { return false; }
};

/// A fixed set of ranks that communicate. Rank r is in [0, size()).
///
/// Notation: W = size(), n = elements per shard. All tensors are contiguous, of one dtype.
///
/// Every rank must issue the same collectives, in the same order, with the same label. They run in
/// that order, one after the other, while the caller computes.
///
/// Shapes are checked here, once, before any backend runs, by the same rule on every rank. So a
/// wrong shape is an Error everywhere, not a hang.
///
/// A group and its Works belong to the thread that made the group: the rank's own. A call from any
/// other thread (a second one of the same rank, a chunk of a kernel, another rank's) throws an
/// Error and changes nothing. Only abort() may be called from any thread. If another thread waits
/// for a Work or destroys it, all ranks fail.
class ProcessGroup {
 public:
  explicit ProcessGroup(std::shared_ptr<Backend> backend);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Null unless several groups of this size each hold everything once (comm/replicas.h). Then it
  /// has one rank of each group: those that hold the same as this one, itself among them.
  const std::shared_ptr<ProcessGroup>& replicas() const { return replicas_; }
  using MakeReplicaSum = std::function<std::shared_ptr<ReplicaSum>(std::shared_ptr<ProcessGroup>)>;
  /// Declares this group to be one of several replicas; its collectives stay the same. Each model
  /// that is sharded over it calls make_replica_sum() once, which calls `make_sum(replicas)`.
  void set_replicas(std::shared_ptr<ProcessGroup> replicas, MakeReplicaSum make_sum);
  /// What sums the reduced shards of one model over the replicas. Null if there are none.
  std::shared_ptr<ReplicaSum> make_replica_sum() const;

  /// Concatenates the shards of all ranks, in rank order.
  ///   in  (n)     this rank's shard
  ///   out (W*n)   out[r*n : (r+1)*n] = in of rank r
  /// `in` may be that slice of `out` itself; then it is not copied.
  Work all_gather(const Tensor& out, const Tensor& in, Label label);

  /// Reduces elementwise over ranks; each rank keeps one shard of the result.
  ///   in  (W*n)   this rank's full-size contribution
  ///   out (n)     `reduce` over ranks q of in_q[rank()*n : (rank()+1)*n], in the canonical order
  ///               (tensor/tree_sum.h)
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp reduce, Label label);

  /// data (N) = `reduce` over ranks, in place, same bits on every rank.
  Work all_reduce(const Tensor& data, ReduceOp reduce, Label label);

  /// data (N) of every rank = data of `root`.
  Work broadcast(const Tensor& data, int root, Label label);

  /// out (N) on `root` = `reduce` over ranks of in (N). Other ranks' `out` is ignored and may be
  /// undefined.
  Work reduce(const Tensor& out, const Tensor& in, int root, ReduceOp reduce, Label label);

  /// Finishes when every rank has called it. It waits for no work of a device.
  Work barrier(Label label);

  /// A group of all ranks that pass the same color, ordered by (key, rank). Collective, blocks.
  std::shared_ptr<ProcessGroup> split(int color, int key);

  /// This rank's group among groups of `group_size` consecutive ranks: {0, 1}, {2, 3}, … for 2.
  /// Collective, blocks; works on the fake group too.
  /// @throws Error unless group_size divides size()
  std::shared_ptr<ProcessGroup> split_contiguous(int group_size);

  /// The ranks with this rank's place in each of those groups: {0, 2, …}, {1, 3, …} for 2.
  std::shared_ptr<ProcessGroup> split_strided(int stride);

  /// Makes every pending and later call, on every rank, throw Aborted. Call it if a rank fails:
  /// then its peers fail too, instead of hanging. The first reason stays.
  void abort(const std::string& reason) { backend_->abort(reason); }

  /// The bytes of all collectives that this rank has issued, in this group and in every group that
  /// was split off from the same first one, as received_bytes() counts them. For the rank's thread.
  std::int64_t total_received() const { return *received_; }

  Backend& backend() { return *backend_; }

 private:
  void check_caller(CollectiveOp op, const Label& label) const;
  Work issue(Collective call, const std::vector<Tensor>& tensors);
  std::shared_ptr<ProcessGroup> split_regular(int count, int stride);
  std::shared_ptr<ProcessGroup> part(std::shared_ptr<Backend> backend) const;

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<std::int64_t> received_ = std::make_shared<std::int64_t>(0);  // shared by splits
  int rank_;
  int size_;
  const void* thread_;  // that made it: see check_caller()
  std::shared_ptr<ProcessGroup> replicas_;
  MakeReplicaSum make_replica_sum_;
  std::int64_t sequence_ = 0;
};

/// For interfaces that share a group: one that its owner keeps for longer than they need it.
inline std::shared_ptr<ProcessGroup> borrowed(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

}  // namespace fsdp
