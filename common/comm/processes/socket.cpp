#include "comm/processes/socket.h"

#include "base/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace fsdp::processes {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Between two tries to connect: the process that listens may not have started yet.
constexpr milliseconds kBetweenTries{50};

struct FreeAddresses {
  void operator()(addrinfo* first) const { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::string text_of(const Address& address) {
  return fmt::format("{}:{}", address.host.empty() ? "*" : address.host, address.port);
}

/// @throws Error if the host is not known
Addresses resolve(const Address& address, bool listens) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  addrinfo* first = nullptr;
  const char* host = address.host.empty() ? nullptr : address.host.c_str();
  const int error = ::getaddrinfo(host, std::to_string(address.port).c_str(), &hints, &first);
  FSDP_CHECK(error == 0, "{}: this host is not known: {}", text_of(address), ::gai_strerror(error));
  return Addresses(first);
}

void set(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

void set_up(const Socket& connection) {
  set(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  const int flags = ::fcntl(connection.descriptor(), F_GETFL);
  ::fcntl(connection.descriptor(), F_SETFL, flags | O_NONBLOCK);
  ::fcntl(connection.descriptor(), F_SETFD, FD_CLOEXEC);
}

/// Until there is something to do for one of `events`. @returns false after the deadline
bool wait_for(int descriptor, short events, Deadline until) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd one{descriptor, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string number_of(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  return host;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.") ||
         host.starts_with("::ffff:127.");
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Socket listen_at(const Address& address) {
  // A host that is named may have another number for itself than for others (127.0.1.1).
  const Addresses found =
      resolve({is_loopback(address.host) ? address.host : "", address.port}, true);
  int error = 0;
  // One that listens at all networks by IPv6 is reached by IPv4 too.
  std::vector<const addrinfo*> ordered;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next)
    ordered.push_back(each);
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](auto* each) { return each->ai_family == AF_INET6; });
  for (const addrinfo* each : ordered) {
    Socket listener(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener.is_open()) continue;
    set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (each->ai_family == AF_INET6) set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(listener.descriptor(), each->ai_addr, each->ai_addrlen) == 0 &&
        ::listen(listener.descriptor(), SOMAXCONN) == 0) {
      return listener;
    }
    error = errno;
  }
  fail("no process can connect to {}: {}", text_of(address), std::strerror(error));
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
  const bool is_six = address.ss_family == AF_INET6;
  return ntohs(is_six ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                      : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string peer_host(const Socket& connection) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getpeername(connection.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
  return number_of(address, length);
}

Socket connect_to(const Address& address, Deadline until) {
  const Addresses found = resolve(address, false);
  for (int error = 0;;) {
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      Socket connection(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!connection.is_open()) continue;
      set_up(connection);
      if (::connect(connection.descriptor(), each->ai_addr, each->ai_addrlen) == 0) {
        return connection;
      }
      error = errno;
      if (error != EINPROGRESS || !wait_for(connection.descriptor(), POLLOUT, until)) continue;
      socklen_t length = sizeof error;
      ::getsockopt(connection.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) return connection;
    }
    FSDP_CHECK(steady_clock::now() + kBetweenTries < until, "{} cannot be reached: {}",
               text_of(address), std::strerror(error));
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Socket accept_at(const Socket& listener, Deadline until) {
  while (wait_for(listener.descriptor(), POLLIN, until)) {
    Socket connection(::accept(listener.descriptor(), nullptr, nullptr));
    if (!connection.is_open()) continue;  // it has gone again
    set_up(connection);
    return connection;
  }
  return {};
}

bool send_all(const Socket& connection, std::span<const std::byte> bytes, Deadline until) {
  while (!bytes.empty()) {
    const auto sent =
        ::send(connection.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(connection.descriptor(), POLLOUT, until)) return false;
  }
  return true;
}

bool receive_all(const Socket& connection, std::span<std::byte> bytes, Deadline until) {
  while (!bytes.empty()) {
    const auto got = ::recv(connection.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
    if (got > 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(connection.descriptor(), POLLIN, until)) return false;
  }
  return true;
}

void end_when_unanswered(const Socket& connection, milliseconds limit) {
  if (limit.count() == 0) return;
  // Probes find the failure while nothing is sent; the limit, while something is.
  const int seconds = std::max(1, static_cast<int>(limit.count() / 1'000 / 5));
  set(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(connection, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(connection, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(connection, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit.count()));
}

}  // namespace fsdp::processes
