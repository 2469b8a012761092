// A build without MPI: everything about it says what to do.
#include "base/check.h"
#include "comm/mpi/job.h"

#include <cstdlib>

namespace fsdp::mpi {

Job& Job::instance() {
  fail(
      "this program was started by an MPI launcher, but was built without MPI. Build it with "
      "BACKEND=mpi (make demo BACKEND=mpi), and start what is then in build/mpi/bin");
}

Job::Job() = default;
Job::~Job() = default;

// Not reached: there is no instance.
void Job::send_control(int, std::vector<std::byte>) {}
void Job::send_last_control(int, std::vector<std::byte>) {}
std::optional<Received> Job::receive_control() { return std::nullopt; }
bool Job::has_sent_control() { return true; }
Request Job::send(int, const std::byte*, std::int64_t) { return 0; }
Request Job::receive(int, std::byte*, std::int64_t) { return 0; }
bool Job::is_done(Request&) { return true; }
void Job::kill() { std::abort(); }
std::string Job::library() const { return "none"; }

}  // namespace fsdp::mpi
