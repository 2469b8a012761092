/// @file
/// @ingroup comm
/// TCP connections, as processes without MPI use them.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace fsdp::processes {

/// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

/// Where a process listens.
struct Address {
  std::string host;  ///< a name or a number; "" = every network of this machine
  int port = 0;      ///< 0 = the system's choice
};

/// Whether only this machine itself has it as an address: localhost, 127.… and ::1.
bool is_loopback(const std::string& host);

using Deadline = std::chrono::steady_clock::time_point;

/// Listens at this address if it is a loopback, and on every network otherwise.
/// @throws Error that names the address and the system's reason
Socket listen_at(const Address& address);
int port_of(const Socket& listener);
/// The number of the machine at the other end.
std::string peer_host(const Socket& connection);

/// Tries until a process listens there. @throws Error after the deadline
Socket connect_to(const Address& address, Deadline until);
/// The next connection; not open after the deadline.
Socket accept_at(const Socket& listener, Deadline until);
/// Whether all was sent, or filled. False after the deadline, or if the other end has gone.
bool send_all(const Socket& connection, std::span<const std::byte> bytes, Deadline until);
bool receive_all(const Socket& connection, std::span<std::byte> bytes, Deadline until);

/// Lets the system end a connection whose other end has not answered for `limit`; its machine or
/// the network has failed. A process that is stopped still has a machine that answers. 0 = never.
void end_when_unanswered(const Socket& connection, std::chrono::milliseconds limit);

}  // namespace fsdp::processes
