#include "comm/thread_world.h"

#include "base/check.h"
#include "base/thread_start.h"
#include "comm/rank_body.h"
#include "comm/rank_error.h"
#include "comm/thread_rendezvous.h"

#include <cxxabi.h>

#include <exception>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace fsdp::threads {
void run_ranks(const RankOptions& options, const std::function<void(ProcessGroup&)>& body) {
  const auto rendezvous =
      std::make_shared<Rendezvous>(options.world_size, options.patience, options.device_data);
  std::promise<bool> promise;  // that all ranks have a thread: nothing is run by some of them only
  const std::shared_future<bool> complete = promise.get_future().share();
  std::vector<std::thread> ranks;
  start_threads(
      ranks, options.world_size, "rank threads", "Use fewer ranks",
      [&, complete](int rank) {
        if (!complete.get()) return;
        try {
          rendezvous->on_start(rank);
          run_body(options, make_backend(rendezvous, rendezvous->world(), rank), body);
          rendezvous->on_return(rank);
        } catch (const abi::__forced_unwind&) {  // which must go on, to the end of the thread
          rendezvous->on_throw(rank, std::make_exception_ptr(Error(kEndedThread)));
          throw;
        } catch (...) {
          rendezvous->on_throw(rank, std::current_exception());
        }
      },
      [&] { promise.set_value(false); });
  promise.set_value(true);
  for (std::thread& rank : ranks) rank.join();
  const Rendezvous::Failure failure = rendezvous->failure();
  rendezvous->close();
  if (!failure.error) return;
  if (failure.rank >= 0 && options.world_size > 1) rethrow_from_rank(failure.rank, failure.error);
  std::rethrow_exception(failure.error);
}

}  // namespace fsdp::threads
