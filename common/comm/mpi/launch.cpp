#include "comm/mpi/job.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace fsdp::mpi {
namespace {

// Nothing for what is no number: Slurm writes "4(x2),3" for machines with 4, 4 and 3 processes.
std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const char* end = text + std::strlen(text);
  int number = 0;
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<Place> place_by_mpi;

}  // namespace

void note_place(const Place& place) { place_by_mpi = place; }

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
    if (!own || !all) continue;
    const auto size_here = number_in(names.size_here), rank_here = number_in(names.rank_here);
    const bool is_told = size_here && rank_here;
    const Place place =
        is_told ? Place{*rank_here, *size_here} : place_by_mpi.value_or(Place{*own, *all});
    return Launch{*own, *all, place.size, place.rank};
  }
  return std::nullopt;
}

}  // namespace fsdp::mpi
