#include "comm/world.h"

#include "base/check.h"
#include "comm/processes/launch.h"
#include "comm/processes/world.h"
#include "comm/thread_world.h"

#include <exception>

namespace fsdp {

namespace {

// For reports of an error, which may be that the launcher's variables are wrong.
processes::Launch launch_or_none() noexcept {
  try {
    return processes::launched().value_or(processes::Launch{});
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

int process_rank() {
  static const int rank = launch_or_none().rank;
  return rank;
}

void in_every_process(const std::function<void()>& body) {
  if (processes::launched()) return processes::in_every_process(body);
  body();
}

bool is_known_to_all_processes(const std::string& message) {
  return launch_or_none().size > 1 && message == processes::common_failure();
}

void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body) {
  FSDP_CHECK(options.world_size >= 1, "a world needs at least one rank, not {}",
             options.world_size);
  if (processes::launched()) return processes::run_ranks(options, body);
  threads::run_ranks(options, body);
}

void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body) {
  run_ranks(RankOptions{.world_size = world_size}, body);
}

}  // namespace fsdp
