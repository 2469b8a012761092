#include "comm/thread_world.h"

#include "base/check.h"
#include "comm/thread_backend.h"
#include "comm/thread_scheduler.h"

#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

void run_rank(const RankOptions& options, int rank,
              const std::shared_ptr<threads::Scheduler>& scheduler,
              const std::function<void(ProcessGroup&)>& body) {
  Context::Options own;
  own.rank = rank;
  own.world_size = options.world_size;
  own.threads = options.threads_per_rank;
  own.seed = options.seed;
  Context context(own);
  const ContextScope scope(context);
  context.trace().set_recording(options.record_trace);

  std::shared_ptr<Backend> backend = threads::make_backend(scheduler, scheduler->world(), rank);
  if (options.decorate) backend = options.decorate(std::move(backend));
  ProcessGroup group(std::move(backend));
  body(group);
}

}  // namespace

void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body) {
  FSDP_CHECK(options.world_size >= 1, "a world needs at least one rank, not {}",
             options.world_size);
  const auto scheduler = std::make_shared<threads::Scheduler>(options.world_size);
  std::vector<std::thread> ranks;
  try {
    for (int rank = 0; rank < options.world_size; ++rank)
      ranks.emplace_back([&, rank] {
        try {
          run_rank(options, rank, scheduler, body);
          scheduler->on_return(rank);
        } catch (...) {
          scheduler->on_throw(rank, std::current_exception());
        }
      });
  } catch (...) {  // no more threads to be had: those that run must not wait for the rest
    scheduler->on_throw(static_cast<int>(ranks.size()), std::current_exception());
  }
  for (std::thread& rank : ranks) rank.join();
  const std::exception_ptr failure = scheduler->failure();
  scheduler->close();
  if (failure) std::rethrow_exception(failure);
}

void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body) {
  run_ranks(RankOptions{.world_size = world_size}, body);
}

}  // namespace fsdp
