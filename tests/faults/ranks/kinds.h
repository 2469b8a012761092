/// @file
/// Ways in which a rank misbehaves, as a table. Whatever it does, every rank ends, and run_ranks
/// throws the error that was promised. Only ctest has a clock: a hang is a test that does not end.
#pragma once

#include "comm/world.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp::faults {

/// The rank that misbehaves.
inline constexpr int kCulprit = 1;

/// What the ranks of one run share.
struct Scene {
  explicit Scene(int world_size) : others_ended(world_size - 1) {}

  std::latch others_ended;  // counted down by every rank but the culprit
  std::latch published{1};
  ProcessGroup* group_of_rank_0 = nullptr;
  Work work;
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> attic;  // what "leaks": it outlives the run
};

/// One rank's part in a run.
struct Player {
  ProcessGroup& group;
  Scene& scene;
  bool is_culprit() const { return group.rank() == kCulprit; }
  void keep_forever(std::shared_ptr<void> thing) const {
    const std::lock_guard lock(scene.mutex);
    scene.attic.push_back(std::move(thing));
  }
};

/// What run_ranks throws.
enum class Promised { nothing, aborted, error, input_error, runtime_error, number };

struct Kind {
  std::string name;
  std::function<void(const Player&)> body;
  Promised promised;
  std::vector<std::string> says{};  ///< parts of the message
  bool others_may_finish = false;   ///< else every other rank sees an Aborted
  std::chrono::milliseconds patience{5'000};
};

/// Runs every kind at W = 2, 3, 4 and 8, and checks how it ends.
void check_kinds(const std::vector<Kind>& kinds);

// ---- what bodies are made of

inline Label label(const std::string& unit) { return {unit, Phase::forward}; }
inline Tensor some(std::int64_t numel = 4) { return Tensor::zeros({numel}); }

inline Work start_reduce(ProcessGroup& group, const std::string& unit, std::int64_t numel = 4) {
  return group.all_reduce(some(numel), ReduceOp::sum, label(unit));
}
inline void reduce(ProcessGroup& group, const std::string& unit) {
  start_reduce(group, unit).wait();
}
inline void gather(ProcessGroup& group, const std::string& unit, std::int64_t n = 4,
                   DType dtype = DType::float32) {
  const Tensor in = Tensor::zeros({n}, dtype);
  group.all_gather(Tensor::empty({n * group.size()}, dtype), in, label(unit)).wait();
}
[[noreturn]] inline void boom() { throw std::runtime_error("boom"); }

/// An exception passes through an unfinished Work on `group`, and is swallowed.
inline void swallow_through_work(ProcessGroup& group) {
  try {
    const Work newer = start_reduce(group, "newer");
    boom();
  } catch (const std::runtime_error&) {
  }
}

}  // namespace fsdp::faults
