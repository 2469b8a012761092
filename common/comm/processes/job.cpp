#include "comm/processes/job.h"

#include "base/check.h"
#include "comm/processes/pause.h"

#include <cstdlib>

namespace fsdp::processes {
namespace {

std::unique_ptr<Job> make_job() {
  // Processes are connected once; a second try is answered like the first.
  static std::string why_not;
  if (!why_not.empty()) fail("{}", why_not);
  const Launch launch = launched().value_or(Launch{});
  try {
    return launch.meeting ? make_tcp_job(launch) : make_mpi_job(launch);
  } catch (const Error& error) {
    why_not = error.what();
    throw;
  }
}

}  // namespace

Job& Job::instance() {
  static const std::unique_ptr<Job> job = make_job();
  return *job;
}

std::optional<Received> Job::receive_control() {
  std::optional<Received> received = next_control();
  if (received && received->bytes.empty()) ++ended_;
  return received;
}

void Job::say_goodbye() {
  if (is_running_) kill();  // std::exit() in the middle of a world
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) send_control(rank, {});
  for (Pause pause; ended_ < size_ - 1 || !has_sent_control();)
    if (!receive_control()) sleep(pause.next(false));
}

// A launcher ends the job if a process ends without MPI_Finalize. MPI_Abort asks it for the same,
// but waits for an answer; and Open MPI's mpirun may hang if several processes ask.
void Job::kill() { std::_Exit(EXIT_FAILURE); }

}  // namespace fsdp::processes
