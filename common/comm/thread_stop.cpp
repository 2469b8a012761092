// How a world of ranks that are threads ends: the second half of Rendezvous.
#include "base/check.h"
#include "comm/control_report.h"
#include "comm/rank_error.h"
#include "comm/thread_rendezvous.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::threads {

void Rendezvous::on_stop() {
  active_.clear();
  wake_all();  // from now on they sleep with an end
}

void Rendezvous::on_reason() { wake_all(); }

void Rendezvous::abort(int rank, const std::string& reason) {
  const Lock lock(mutex_);
  agreement_.aborts(rank, reason);
}

void Rendezvous::on_start(int rank) {
  const Lock lock(mutex_);
  thread_of(rank).id = std::this_thread::get_id();
}

void Rendezvous::on_return(int rank) {
  const Lock lock(mutex_);
  const std::vector<const ChunkedOperation*>& held = thread_of(rank).held;
  agreement_.returned(rank, held.empty() ? "" : control::describe(*held.front(), rank));
}

void Rendezvous::on_throw(int rank, const std::exception_ptr& error) {
  const std::string what = what_of(error);
  const Lock lock(mutex_);
  if (agreement_.threw(rank, what)) failure_ = {error, rank};
}

void Rendezvous::end_communication_threads() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  work_or_close_.notify_all();
}

void Rendezvous::close() {
  {
    const Lock lock(mutex_);
    agreement_.close();
    active_.clear();
  }
  end_communication_threads();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  devices_.reset();
}

Rendezvous::Failure Rendezvous::failure() const {
  const Lock lock(mutex_);
  if (failure_.error || !agreement_.stopped()) return failure_;
  return {std::make_exception_ptr(Aborted(*agreement_.reason())), -1};
}

void Rendezvous::sleep(Lock& lock, RankThread& self) {
  if (!agreement_.stopped() || agreement_.reason()) return self.wake.wait(lock);
  const auto end = agreement_.end_of_patience();
  if (self.wake.wait_until(lock, end) == std::cv_status::timeout) agreement_.lose_patience();
}

void Rendezvous::throw_aborted(Lock& lock, int rank) {
  agreement_.goes_on(rank, std::uncaught_exceptions() > 0);
  if (agreement_.culprit() != rank && is_on_thread_of(rank))
    while (!agreement_.reason()) sleep(lock, thread_of(rank));
  throw Aborted(agreement_.reason().value_or(agreement_.provisional_reason()));
}

// ---- who may call

bool Rendezvous::is_on_thread_of(int rank) const {
  return rank_threads_[static_cast<std::size_t>(rank)].id == std::this_thread::get_id();
}

std::string Rendezvous::stranger() const {
  for (int rank = 0; rank < world()->size(); ++rank)
    if (is_on_thread_of(rank)) return fmt::format("the thread of rank {}", rank);
  return "a thread that is no rank's";
}

void Rendezvous::check_thread(int rank, std::string_view what) const {
  FSDP_CHECK(
      is_on_thread_of(rank),
      "{} on a group of rank {} was called by {}: a ProcessGroup and its Works belong to the "
      "thread that made them",
      what, rank, stranger());
}

void Rendezvous::wait_as_stranger(Lock& lock, int rank, const ChunkedOperation& operation) {
  agreement_.fail(
      fmt::format("rank {}: its Work of {} was waited for or destroyed by {}, but a Work belongs "
                  "to the thread that made it",
                  rank, control::describe(operation, rank), stranger()));
  while (operation.running > 0) {  // a chunk takes no longer than a time slice
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  throw_aborted(lock, rank);
}

}  // namespace fsdp::threads
