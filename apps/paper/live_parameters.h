/// @file
/// @ingroup paper
/// LiveParameters: which parameters ZeRO-3 holds whole, and when.
#pragma once

#include "paper/books.h"
#include "paper/zero_habits.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp::paper {

/// DeepSpeed's PartitionedParameterCoordinator on paper. It knows the order in which modules use
/// their weights, from the first forward to the end of backward. A module's weight is gathered
/// before it computes, and the next ones of the order ahead of their use. It is freed after, unless
/// it is used again soon.
class LiveParameters {
 public:
  struct Parameter {
    std::int64_t numel = 0;
    std::int64_t nbytes = 0;    ///< of a copy
    std::int64_t gathered = 0;  ///< of a gather's result, with its padding
    std::int64_t shard = 0;     ///< of what is copied from the host first; 0: nothing is
    bool is_persistent = false;
  };
  /// @param order of uses: indices into `parameters`
  LiveParameters(std::vector<Parameter> parameters, std::vector<std::size_t> order,
                 const ZeroHabits& habits, Books& books);

  /// The next use of the order begins, and ends.
  void fetch();
  void release();
  /// All uses have ended: what is still whole is freed.
  void finish();

 private:
  static constexpr std::int64_t kNever = -1;
  /// One gather of several parameters. Its result lives until all of them have been used.
  struct Gather {
    std::vector<std::size_t> parameters;
    std::int64_t nbytes = 0;
    std::size_t unused = 0;
    bool is_copied = false;
  };
  struct Life {
    bool is_live = false;  // or on its way
    std::int64_t nbytes = 0;
    std::int64_t known_until = kNever;  // the last use that a fetch has been thought of
    std::shared_ptr<Gather> gather = nullptr;
  };
  void gather(const std::vector<std::size_t>& parameters);
  void wait(std::size_t parameter);
  void prefetch();
  void drop(std::size_t parameter);
  bool is_used_soon(std::size_t parameter) const;

  std::vector<Parameter> parameters_;
  std::vector<std::size_t> order_;
  const ZeroHabits& habits_;
  Books& books_;
  std::vector<Life> lives_;
  std::size_t next_ = 0;   // use
  std::size_t queue_ = 0;  // the first use that no fetch has been thought of for
  std::int64_t available_ = 0;
};

}  // namespace fsdp::paper
