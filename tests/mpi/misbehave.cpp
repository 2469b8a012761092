// Ranks that are processes, one of which misbehaves: misbehave MODE FOLDER. What each rank saw is
// in FOLDER/rank_N at the end. Started by misbehavior.py, under mpirun.
#include "base/check.h"
#include "comm/world.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

constexpr int kRanks = 3;
constexpr int kCulprit = 1;

void gather(ProcessGroup& group, const std::string& unit, std::int64_t n = 4) {
  const Tensor in = Tensor::zeros({n});
  group.all_gather(Tensor::empty({n * group.size()}), in, {unit, Phase::forward}).wait();
}

void reduce(ProcessGroup& group, const std::string& unit) {
  group.all_reduce(Tensor::zeros({4}), ReduceOp::sum, {unit, Phase::forward}).wait();
}

[[noreturn]] void compute_forever() {
  for (std::atomic<unsigned> turns = 0;;) ++turns;
}

/// What the culprit does after a first collective, while the others go on to a second one.
const std::map<std::string, std::function<void(ProcessGroup&)>>& modes() {
  static const std::map<std::string, std::function<void(ProcessGroup&)>> all = {
      {"good", [](ProcessGroup& group) { gather(group, "second"); }},
      {"throws", [](ProcessGroup&) { throw std::runtime_error("boom"); }},
      {"returns", [](ProcessGroup&) {}},
      {"renames", [](ProcessGroup& group) { gather(group, "other"); }},
      {"swaps", [](ProcessGroup& group) { reduce(group, "second"); }},
      {"resizes", [](ProcessGroup& group) { gather(group, "second", 5); }},
      {"computes", [](ProcessGroup&) { compute_forever(); }},
      {"dies", [](ProcessGroup&) { std::raise(SIGKILL); }},
      {"exits", [](ProcessGroup&) { std::exit(0); }},
      {"ends its thread", [](ProcessGroup&) { ::pthread_exit(nullptr); }},
  };
  return all;
}

void run(const std::string& mode) {
  run_ranks(kRanks, [&](ProcessGroup& group) {
    gather(group, "first");
    if (group.rank() == kCulprit && mode != "waits") return modes().at(mode)(group);
    if (mode == "computes") throw std::runtime_error("boom");
    if (mode == "waits") compute_forever();
    gather(group, "second");
  });
}

}  // namespace
}  // namespace fsdp

int main(int count, char** arguments) {
  using namespace fsdp;
  if (count != 3) return 2;
  const std::string mode = arguments[1];
  std::string seen = "nothing\n";
  int code = 0;
  int rank = -1;
  try {
    run_ranks(kRanks, [&](ProcessGroup& group) { rank = group.rank(); });
    if (mode == "leaves" && rank == kCulprit) return 1;  // and the others begin another world
    std::ofstream(std::filesystem::path(arguments[2]) / fmt::format("begun_{}", rank)) << getpid();
    run(mode == "leaves" ? "good" : mode);
  } catch (const std::exception& error) {
    seen = error.what();
    code = 1;
  }
  std::ofstream(std::filesystem::path(arguments[2]) / fmt::format("rank_{}", rank)) << seen;
  return code;
}
