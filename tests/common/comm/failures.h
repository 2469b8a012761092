/// @file
/// Wrong programs, and how they end: what every rank saw, and what the caller of run_ranks.
#pragma once

#include "comm/world.h"
#include "worlds.h"

#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp::comm_test {

using Body = std::function<void(ProcessGroup&)>;

/// How a run ended: the message that each rank of this process saw ("" = none), and what run_ranks
/// threw.
struct Ending {
  std::map<int, std::string> ranks;
  std::string run;
};

inline Ending ending_of(int world_size, const Body& body) {
  Ending ending;
  std::mutex mutex;
  try {
    run_ranks(world_size, [&](ProcessGroup& group) {
      std::string message;
      const auto note = [&] {
        const std::lock_guard lock(mutex);
        ending.ranks[group.rank()] = message;
      };
      try {
        body(group);
      } catch (const std::exception& error) {
        message = error.what();
        note();
        throw;
      }
      note();
    });
  } catch (const std::exception& error) {
    ending.run = error.what();
  }
  return ending;
}

/// If `rank` is of this process, what it saw begins with `begin`, and contains `part`.
inline void check_seen(const Ending& ending, int rank, const std::string& begin,
                       const std::string& part = "") {
  const auto seen = ending.ranks.find(rank);
  if (seen == ending.ranks.end()) return;
  INFO(seen->second);
  CHECK(seen->second.substr(0, begin.size()) == begin);
  CHECK(seen->second.find(part) != std::string::npos);
}

/// `ending` is an Aborted with one and the same message everywhere, and that contains `parts`.
inline void check_aborted(const Ending& ending, const std::vector<std::string>& parts) {
  CHECK(ending.run.substr(0, 9) == "Aborted: ");
  for (const auto& [rank, message] : ending.ranks) CHECK(message == ending.run);
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

/// Something that is no Error: its own process must get what was thrown, not a copy of its text.
class Surprise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fsdp::comm_test
