/// @file
/// Communicators whose ranks are processes: what goes from one to another. Internal.
#pragma once

#include "support/cuda_on_host/collectives.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cuda_on_host {

/// What a rank tells those of other processes.
struct Notice {
  enum class What {
    joins,    ///< sent to the process that made the id
    starts,   ///< sent by it when all have joined
    refuses,  ///< sent by it if two of them are on one card
    part,     ///< of one collective, once that is the first work of its stream
    leaves,   ///< its communicator is destroyed: what is closed next is no failure
    aborts,   ///< its communicator is aborted
  };
  What what;
  int rank;
  int card = 0;  ///< joins
  std::size_t round = 0;
  Part part{};
  std::vector<char> bytes{};  ///< what the part sends
};

/// The connections of one communicator: a star around the process that made the id, which passes on
/// to all others what comes from one.
///
/// Threads of its own read from the connections. They take no lock of the stand-in, so that a
/// process whose lock is held can always be written to. Another thread, of the process, hands on
/// what they have read.
class Links {
 public:
  /// Called with each notice of another process, and with null when a connection was closed.
  using Receive = std::function<void(const Notice*)>;

  /// At the process that made the id. @param name of a socket: unique on this machine
  static std::shared_ptr<Links> listen(const std::string& name);
  /// At another process. Null if no process has a socket of that name.
  static std::shared_ptr<Links> connect(const std::string& name);
  virtual ~Links() = default;

  virtual void start(Receive receive) = 0;
  /// To all other processes.
  virtual void send(const Notice& notice) = 0;
  /// Nobody else can join.
  virtual void stop_listening() = 0;
  virtual void close() = 0;
};

}  // namespace cuda_on_host
