#include "comm/world.h"

#include "base/check.h"
#include "comm/mpi/job.h"
#include "comm/mpi/world.h"
#include "comm/thread_world.h"

namespace fsdp {

int process_rank() {
  static const int rank = mpi::launched().value_or(mpi::Launch{}).rank;
  return rank;
}

void in_every_process(const std::function<void()>& body) {
  if (mpi::launched()) return mpi::in_every_process(body);
  body();
}

bool is_known_to_all_processes(const std::string& message) {
  return mpi::launched() && message == mpi::common_failure();
}

void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body) {
  FSDP_CHECK(options.world_size >= 1, "a world needs at least one rank, not {}",
             options.world_size);
  if (mpi::launched()) return mpi::run_ranks(options, body);
  threads::run_ranks(options, body);
}

void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body) {
  run_ranks(RankOptions{.world_size = world_size}, body);
}

}  // namespace fsdp
