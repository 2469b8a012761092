#include "comm/processes/launch.h"

#include "base/check.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace fsdp::processes {
namespace {

/// Where torchrun and PyTorch meet if nothing else is said.
constexpr int kUsualPort = 29500;

struct Variables {
  const char* rank;
  const char* size;
  const char* rank_here;
  const char* size_here;
};

// mpirun of Open MPI; mpirun of MPICH and those like it, and srun --mpi=pmi2; srun --mpi=pmix.
constexpr std::array kOfMpi = {
    Variables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
              "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Variables{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    Variables{"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}};
constexpr Variables kOfTorch = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// A batch script has the first of them too, and only a step the second.
constexpr Variables kOfSlurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                "SLURM_STEP_TASKS_PER_NODE"};

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

std::optional<Place> place_by_job;

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> message, Values&&... values) {
  throw InputError(fmt::format(message, std::forward<Values>(values)...));
}

std::optional<Launch> launch_by(const Variables& names) {
  const auto own = number_in(names.rank);
  const auto all = number_in(names.size);
  if (!own || !all) return std::nullopt;
  const auto size_here = number_in(names.size_here), rank_here = number_in(names.rank_here);
  const bool is_told = size_here && rank_here;
  const Place place =
      is_told ? Place{*rank_here, *size_here} : place_by_job.value_or(Place{*own, *all});
  return Launch{*own, *all, place.size, place.rank};
}

std::optional<Launch> launch_by_mpi() {
  for (const Variables& names : kOfMpi)
    if (auto launch = launch_by(names)) return launch;
  return std::nullopt;
}

std::optional<Address> meeting_place() {
  const char* host = std::getenv("MASTER_ADDR");
  if (host == nullptr || *host == '\0') return std::nullopt;
  const char* port = std::getenv("MASTER_PORT");
  const auto number = port == nullptr ? kUsualPort : number_in("MASTER_PORT");
  if (!number || *number < 1 || *number > 65'534) {
    refuse("MASTER_PORT: is '{}', but must be a port, 1 to 65534", port);
  }
  // torchrun listens there itself, for PyTorch's ranks.
  const char* store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool is_taken = store != nullptr && std::string_view(store) == "True";
  return Address{host, *number + (is_taken ? 1 : 0)};
}

std::optional<Launch> launch_by_torch() {
  const char* rank = std::getenv(kOfTorch.rank);
  const char* size = std::getenv(kOfTorch.size);
  if (rank == nullptr || size == nullptr) return std::nullopt;
  auto launch = launch_by(kOfTorch);
  if (!launch || launch->rank < 0 || launch->rank >= launch->size) {
    refuse("RANK: is '{}' and WORLD_SIZE '{}', but they must be a rank and the number of ranks",
           rank, size);
  }
  return launch;
}

}  // namespace

void note_place(const Place& place) { place_by_job = place; }

std::optional<Launch> launched() {
  const std::optional<Address> meeting = meeting_place();
  std::optional<Launch> by_mpi = launch_by_mpi();
  std::optional<Launch> by_torch = launch_by_torch();
  if (by_torch && by_torch->size > 1 && !meeting && !by_mpi) {
    refuse(
        "RANK and WORLD_SIZE are set, so this is a process of {}, but MASTER_ADDR does not say "
        "where they meet: set it to the machine of rank 0, or unset RANK and WORLD_SIZE",
        by_torch->size);
  }
  if (by_mpi && (has_mpi() || !meeting)) {
    const bool is_same =
        !by_torch || (by_torch->rank == by_mpi->rank && by_torch->size == by_mpi->size);
    if (meeting && !is_same) {
      refuse(
          "two launchers contradict each other: by MPI's variables this process is rank {} of {}, "
          "by RANK and WORLD_SIZE rank {} of {}; unset those of one of them",
          by_mpi->rank, by_mpi->size, by_torch->rank, by_torch->size);
    }
    return by_mpi;
  }
  if (!meeting) return std::nullopt;
  std::optional<Launch> launch = by_torch ? by_torch : by_mpi ? by_mpi : launch_by(kOfSlurm);
  if (launch) launch->meeting = meeting;
  return launch;
}

std::span<const char* const> variables_of_launchers() {
  static constexpr std::array kNames = {
      kOfMpi[0].rank, kOfMpi[0].size, kOfMpi[1].rank, kOfMpi[1].size,
      kOfMpi[2].rank, kOfMpi[2].size, kListener,      "TORCHELASTIC_USE_AGENT_STORE"};
  return kNames;
}

}  // namespace fsdp::processes
