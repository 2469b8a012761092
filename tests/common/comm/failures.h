/// @file
/// Wrong programs, and how they end: what every rank saw, and what the caller of run_ranks.
#pragma once

#include "comm/thread_world.h"
#include "worlds.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp::comm_test {

using Body = std::function<void(ProcessGroup&)>;

/// How a run ended: the message each rank saw ("" = none), and what run_ranks threw.
struct Ending {
  std::vector<std::string> ranks;
  std::string run;
};

inline Ending ending_of(int world_size, const Body& body) {
  Ending ending;
  ending.ranks.resize(static_cast<std::size_t>(world_size));
  try {
    run_ranks(world_size, [&](ProcessGroup& group) {
      try {
        body(group);
      } catch (const std::exception& error) {
        ending.ranks[static_cast<std::size_t>(group.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    ending.run = error.what();
  }
  return ending;
}

/// `ending` is an Aborted with one and the same message everywhere, and that contains `parts`.
inline void check_aborted(const Ending& ending, const std::vector<std::string>& parts) {
  CHECK(ending.run.substr(0, 9) == "Aborted: ");
  for (const std::string& rank : ending.ranks) CHECK(rank == ending.run);
  for (const std::string& part : parts) {
    INFO(ending.run);
    CHECK(ending.run.find(part) != std::string::npos);
  }
}

/// The message without its sentence: the table.
inline std::string table_in(const std::string& message) {
  return message.substr(message.find('\n') + 1);
}

inline Label label(const std::string& unit) { return {unit, Phase::forward}; }

inline void gather(ProcessGroup& group, const std::string& unit, std::int64_t n = 4,
                   DType dtype = DType::float32) {
  const Tensor in = Tensor::zeros({n}, dtype);
  group.all_gather(Tensor::empty({n * group.size()}, dtype), in, label(unit)).wait();
}

inline void reduce(ProcessGroup& group, const std::string& unit, ReduceOp op = ReduceOp::sum) {
  group.all_reduce(Tensor::zeros({4}), op, label(unit)).wait();
}

/// Something that is no Error: run_ranks must hand out what was thrown, not a copy of its text.
class Surprise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fsdp::comm_test
