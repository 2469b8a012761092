#include "comm/thread_world.h"

#include "base/check.h"
#include "base/thread_start.h"
#include "comm/rank_error.h"
#include "comm/thread_backend.h"
#include "comm/thread_rendezvous.h"

#include <exception>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

void run_rank(const RankOptions& options, int rank,
              const std::shared_ptr<threads::Rendezvous>& rendezvous,
              const std::function<void(ProcessGroup&)>& body) {
  rendezvous->on_start(rank);
  Context::Options own;
  own.rank = rank;
  own.world_size = options.world_size;
  own.threads = options.threads_per_rank;
  own.seed = options.seed;
  Context context(own);
  const ContextScope scope(context);
  context.trace().set_recording(options.record_trace);

  std::shared_ptr<Backend> backend = threads::make_backend(rendezvous, rendezvous->world(), rank);
  if (options.decorate) backend = options.decorate(std::move(backend));
  ProcessGroup group(std::move(backend));
  body(group);
}

}  // namespace

void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body) {
  FSDP_CHECK(options.world_size >= 1, "a world needs at least one rank, not {}",
             options.world_size);
  const auto rendezvous =
      std::make_shared<threads::Rendezvous>(options.world_size, options.patience);
  std::promise<bool> promise;  // that all ranks have a thread: nothing is run by some of them only
  const std::shared_future<bool> complete = promise.get_future().share();
  std::vector<std::thread> ranks;
  start_threads(
      ranks, options.world_size, "rank threads", "Use fewer ranks",
      [&, complete](int rank) {
        if (!complete.get()) return;
        try {
          run_rank(options, rank, rendezvous, body);
          rendezvous->on_return(rank);
        } catch (...) {
          rendezvous->on_throw(rank, std::current_exception());
        }
      },
      [&] { promise.set_value(false); });
  promise.set_value(true);
  for (std::thread& rank : ranks) rank.join();
  const threads::Rendezvous::Failure failure = rendezvous->failure();
  rendezvous->close();
  if (!failure.error) return;
  if (failure.rank >= 0 && options.world_size > 1) rethrow_from_rank(failure.rank, failure.error);
  std::rethrow_exception(failure.error);
}

void run_ranks(int world_size, const std::function<void(ProcessGroup&)>& body) {
  run_ranks(RankOptions{.world_size = world_size}, body);
}

}  // namespace fsdp
