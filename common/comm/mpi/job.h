/// @file
/// @ingroup comm
/// The processes that mpirun has started, and the messages between them. The only door to MPI: its
/// header is included in job_mpi.cpp and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::mpi {

/// What mpirun has told this process.
struct Launch {
  int rank = 0;
  int size = 1;
  int size_here = 1;  ///< processes on this machine
  int rank_here = 0;  ///< this one's place among them
};

/// Null if this process was not started by an MPI launcher (mpirun, mpiexec).
///
/// Some launchers do not tell the place among the processes of a machine (srun --mpi=pmi2, and
/// Slurm where machines have different numbers of them). Then it is MPI's answer, once there is a
/// Job, and before that the whole job counts as one machine.
std::optional<Launch> launched();

/// Among the processes of one machine.
struct Place {
  int rank = 0;
  int size = 1;
};
/// What MPI says of this process, for launched().
void note_place(const Place& place);

/// A message in flight.
using Request = std::uintptr_t;

/// A control message that has arrived.
struct Received {
  int from = 0;
  std::vector<std::byte> bytes;
};

/// This process among those of its mpirun. One thread at a time may call, whichever it is.
class Job {
 public:
  /// Initializes MPI when first called; let that be the program's first thread. MPI ends with the
  /// program.
  /// @throws Error if this program was built without MPI, or its MPI is not the launcher's
  static Job& instance();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Control messages: of any length but 0, copied; between two processes they arrive in order.
  /// A message of no bytes says that its sender's program has ended.
  void send_control(int to, std::vector<std::byte> bytes);
  /// The same; has_sent_control() is false until it has been received.
  void send_last_control(int to, std::vector<std::byte> bytes);
  std::optional<Received> receive_control();
  /// True if every control message has left.
  bool has_sent_control();
  /// While a world is running, a program must not end: the others wait for it.
  void set_running(bool is_running) { is_running_ = is_running; }
  bool is_running() const { return is_running_; }

  /// Data: the bytes must stay until is_done(). Between two processes messages match in order.
  Request send(int to, const std::byte* bytes, std::int64_t nbytes);
  Request receive(int from, std::byte* bytes, std::int64_t nbytes);
  bool is_done(Request& request);

  /// Ends all processes of the job at once.
  [[noreturn]] void kill();
  /// "Open MPI v4.1.4"
  std::string library() const;

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  Job();
  ~Job();  // NOLINT(performance-trivially-destructible): without MPI there is nothing to end

  int rank_ = 0;
  int size_ = 1;
  bool is_running_ = false;
  [[maybe_unused]] int ended_ = 0;  // other processes whose program has ended
};

}  // namespace fsdp::mpi
