/// @file
/// @ingroup comm
/// What a launcher has told this process.
#pragma once

#include "comm/processes/socket.h"

#include <optional>
#include <span>
#include <string_view>

namespace fsdp::processes {

struct Launch {
  int rank = 0;
  int size = 1;
  int size_here = 1;  ///< processes on this machine
  int rank_here = 0;  ///< this one's place among them
  /// Where the processes meet, by MASTER_ADDR and MASTER_PORT. Without it MPI connects them.
  std::optional<Address> meeting{};

  /// Who has started the processes, for a message.
  std::string_view by() const { return meeting ? "the launcher" : "mpirun"; }
  /// The command that starts several, but for their number.
  std::string_view command() const { return meeting ? "unshard-launch -n" : "mpirun -np"; }
};

/// Null if no launcher has started this process. It knows, in this order:
///
///     MPI's own           mpirun and mpiexec of Open MPI and MPICH, srun --mpi
///     RANK, WORLD_SIZE    unshard-launch, torchrun, or your script, with MASTER_ADDR, MASTER_PORT
///     Slurm's             srun without MPI, with MASTER_ADDR, MASTER_PORT
///
/// A program without MPI knows the first ones too if MASTER_ADDR and MASTER_PORT are set.
///
/// Some launchers do not tell the place among the processes of a machine (srun --mpi=pmi2, and
/// Slurm where machines have different numbers of them). Then it is the Job's answer, once there is
/// one, and before that the whole job counts as one machine.
/// @throws InputError if variables of two launchers contradict each other, or one is no number
std::optional<Launch> launched();

/// Whether this program was built with MPI.
bool has_mpi();

/// Among the processes of one machine.
struct Place {
  int rank = 0;
  int size = 1;
};
/// What a Job found out about this process, for launched().
void note_place(const Place& place);

/// The variables by which launchers are known: our own sets RANK … and takes the others away.
std::span<const char* const> variables_of_launchers();

/// In the environment: the descriptor on which rank 0 inherits a listener.
constexpr const char* kListener = "UNSHARD_LISTENER";

}  // namespace fsdp::processes
