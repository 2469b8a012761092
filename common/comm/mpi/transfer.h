/// @file
/// @ingroup comm
/// The data plane of the MPI backend: one rank's part of one collective, while it runs.
#pragma once

#include "comm/mpi/job.h"
#include "comm/mpi/plan.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace fsdp::mpi {

/// Where messages that will be added wait for each other; shared by the transfers of a rank, which
/// run one after the other.
class SumBuffers {
 public:
  /// Room for `count` messages of `nbytes`.
  void prepare(std::size_t count, std::int64_t nbytes);
  std::byte* buffer(std::size_t index) { return bytes_.data() + index * stride_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t stride_ = 0;
};

/// The scratch of plans, as much as the largest has needed; shared like SumBuffers. Both belong to
/// the transport, like the buffers inside the MPI library: no rank's memory counts them.
class Scratch {
 public:
  /// Room for `nbytes`; what was there is lost.
  std::byte* prepare(std::int64_t nbytes);

 private:
  std::vector<std::byte> bytes_;
};

/// Runs a plan, a few messages at a time. `members`: the job's rank of every group rank.
class Transfer {
 public:
  Transfer(const Collective& call, Plan plan, std::vector<int> members, SumBuffers& buffers);

  /// Does what can be done now. @returns whether anything happened
  bool progress(Job& job);
  bool is_done() const { return round_ == plan_.size(); }

 private:
  /// A sum whose messages are on their way.
  struct Pending {
    const Sum* sum;
    std::size_t first_buffer;
    std::vector<Request> requests;
  };

  void begin_round();
  bool post(Job& job);
  bool complete(Job& job);
  void add(const Pending& pending);

  DType dtype_;
  ReduceOp reduce_;
  int rank_count_;
  Plan plan_;
  std::vector<int> members_;
  SumBuffers& buffers_;

  std::size_t round_ = 0;
  bool has_begun_ = false;
  // Of this round: how many of each list have been posted, and those in flight.
  std::size_t sends_posted_ = 0;
  std::size_t receives_posted_ = 0;
  std::size_t sums_posted_ = 0;
  std::deque<Request> sends_;
  std::deque<Request> receives_;
  std::deque<Pending> sums_;
};

}  // namespace fsdp::mpi
