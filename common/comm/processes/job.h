/// @file
/// @ingroup comm
/// The processes of a job, and the messages between them: by MPI, or by TCP without it.
#pragma once

#include "comm/processes/launch.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::processes {

/// A message in flight.
using Request = std::uintptr_t;

/// A control message that has arrived.
struct Received {
  int from = 0;
  std::vector<std::byte> bytes{};
  /// Not empty: there is no message and will be none, because the connection has ended. Why.
  std::string lost{};
};

/// This process among those of its launcher. One thread at a time may call, whichever it is.
class Job {
 public:
  /// Connects the processes when first called; let that be the program's first thread. The
  /// connections end with the program.
  /// @throws Error if the processes cannot find each other, or this program was built without MPI
  ///     and its launcher needs it, or its MPI is not the launcher's
  static Job& instance();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Control messages: of any length but 0, copied; between two processes they arrive in order.
  /// A message of no bytes says that its sender's program has ended.
  virtual void send_control(int to, std::vector<std::byte> bytes) = 0;
  /// The same; has_sent_control() is false until it has been received.
  virtual void send_last_control(int to, std::vector<std::byte> bytes) = 0;
  std::optional<Received> receive_control();
  /// True if every control message has left.
  virtual bool has_sent_control() = 0;
  /// While a world is running, a program must not end: the others wait for it.
  void set_running(bool is_running) { is_running_ = is_running; }
  bool is_running() const { return is_running_; }

  /// Data: the bytes must stay until is_done(). Between two processes messages match in order.
  virtual Request send(int to, const std::byte* bytes, std::int64_t nbytes) = 0;
  virtual Request receive(int from, std::byte* bytes, std::int64_t nbytes) = 0;
  virtual bool is_done(Request& request) = 0;

  /// Ends all processes of the job at once. Its launcher ends the others, or they see that the
  /// connections to this one have ended.
  [[noreturn]] static void kill();
  /// "Open MPI v4.1.4", "TCP"
  virtual std::string library() const = 0;

  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 protected:
  Job() = default;
  virtual std::optional<Received> next_control() = 0;
  /// A program that ends tells the others: one that still waits for it must not wait forever.
  /// Returns when all have. In the middle of a world it ends them.
  void say_goodbye();

  int rank_ = 0;
  int size_ = 1;

 private:
  bool is_running_ = false;
  int ended_ = 0;  // other processes whose program has ended
};

/// Of processes that an MPI launcher has started.
/// @throws Error in a build without MPI, or if this program's MPI is not the launcher's
std::unique_ptr<Job> make_mpi_job(const Launch& launch);
/// Of processes that meet at `launch.meeting`.
std::unique_ptr<Job> make_tcp_job(const Launch& launch);

}  // namespace fsdp::processes
