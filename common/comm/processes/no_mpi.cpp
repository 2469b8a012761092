// A build without MPI.
#include "base/check.h"
#include "comm/processes/job.h"

namespace fsdp::processes {

bool has_mpi() { return false; }

std::unique_ptr<Job> make_mpi_job(const Launch&) {
  fail(
      "this program was started by an MPI launcher, but was built without MPI. Build it with "
      "BACKEND=mpi (make demo BACKEND=mpi), and start what is then in build/mpi/bin. Or let the "
      "processes meet by TCP: set MASTER_ADDR to the machine of rank 0");
}

}  // namespace fsdp::processes
