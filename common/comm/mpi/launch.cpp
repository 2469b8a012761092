#include "comm/mpi/job.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace fsdp::mpi {
namespace {

// The number that a variable begins with. Slurm writes "4(x2),3" for 4, 4 and 3.
std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int number = 0;
  if (std::from_chars(text, text + std::strlen(text), number).ec != std::errc())
    return std::nullopt;
  return number;
}

}  // namespace

// Each launcher has its own variables: mpirun of Open MPI; mpirun of MPICH and those like it, and
// srun --mpi=pmi2; srun --mpi=pmix.
std::optional<Launch> launched() {
  struct Variables {
    const char* rank;
    const char* size;
    const char* size_here;
    const char* rank_here;
  };
  for (const Variables& names :
       {Variables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                  "OMPI_COMM_WORLD_LOCAL_RANK"},
        Variables{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
        Variables{"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
                  "SLURM_LOCALID"}}) {
    const auto own = number_in(names.rank);
    const auto all = number_in(names.size);
    if (own && all) {
      return Launch{*own, *all, number_in(names.size_here).value_or(*all),
                    number_in(names.rank_here).value_or(*own)};
    }
  }
  return std::nullopt;
}

}  // namespace fsdp::mpi
