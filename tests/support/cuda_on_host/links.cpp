#include "support/cuda_on_host/links.h"

#include "support/cuda_on_host/misuse.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace cuda_on_host {
namespace {

/// What is written before the bytes of a notice.
struct Head {
  Notice::What what;
  int rank, card;
  std::size_t round;
  Part part;
  std::size_t nbytes;
};

/// One after the other, in a thread of the process: handing a notice on takes the stand-in's lock.
class Deliveries {
 public:
  static Deliveries& of_process() {
    static Deliveries& only = *new Deliveries;  // its thread ends with the process
    return only;
  }
  void add(std::function<void()> delivery) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(delivery));
    if (!std::exchange(has_thread_, true)) std::thread([this] { run(); }).detach();
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      const auto delivery = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      delivery();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool has_thread_ = false;
};

/// The abstract name of a socket: it is no file, and is gone with the process.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
  const std::size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  return {address, static_cast<socklen_t>(length)};
}

bool read_all(int socket, void* to, std::size_t nbytes) {
  for (auto* at = static_cast<char*>(to); nbytes > 0;) {
    const ssize_t got = ::read(socket, at, nbytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    nbytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void write_all(int socket, const void* from, std::size_t nbytes) {
  for (const auto* at = static_cast<const char*>(from); nbytes > 0;) {
    const ssize_t put = ::send(socket, at, nbytes, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;  // its end is noticed where it is read
    at += put;
    nbytes -= static_cast<std::size_t>(put);
  }
}

std::optional<Notice> read_notice(int socket) {
  Head head;
  if (!read_all(socket, &head, sizeof head)) return std::nullopt;
  Notice notice{head.what,  head.rank, head.card,
                head.round, head.part, std::vector<char>(head.nbytes)};
  if (!read_all(socket, notice.bytes.data(), head.nbytes)) return std::nullopt;
  return notice;
}

class Sockets : public Links, public std::enable_shared_from_this<Sockets> {
 public:
  Sockets(int listener, int hub) : listener_(listener) {
    if (hub >= 0) sockets_.push_back(hub);
  }
  // By then all threads have ended: each holds a share of this.
  ~Sockets() override {
    for (const int socket : sockets_) ::close(socket);
    if (listener_ >= 0) ::close(listener_);
  }

  void start(Receive receive) override {
    receive_ = std::move(receive);
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) read_from(socket);
    if (listener_ >= 0) std::thread([self = shared_from_this()] { self->accept(); }).detach();
  }

  void send(const Notice& notice) override { send_but_to(-1, notice); }

  void stop_listening() override {
    const std::lock_guard lock(mutex_);
    if (listener_ >= 0) shutdown(listener_, SHUT_RDWR);  // accept() returns
  }

  void close() override { close_all(); }

 private:
  void accept() {
    for (;;) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0 && errno == EINTR) continue;
      const std::lock_guard lock(mutex_);
      if (socket < 0) {
        ::close(std::exchange(listener_, -1));
        return;
      }
      sockets_.push_back(socket);
      read_from(socket);
    }
  }

  void read_from(int socket) {
    std::thread([self = shared_from_this(), socket] {
      for (;;) {
        std::optional<Notice> notice = read_notice(socket);
        const bool is_open = notice.has_value();
        if (is_open) self->send_but_to(socket, *notice);
        Deliveries::of_process().add(
            [self, notice = std::move(notice)] { self->receive_(notice ? &*notice : nullptr); });
        if (!is_open) return;
      }
    }).detach();
  }

  void send_but_to(int excepted, const Notice& notice) {
    const Head head{notice.what,  notice.rank, notice.card,
                    notice.round, notice.part, notice.bytes.size()};
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) {
      if (socket == excepted) continue;
      write_all(socket, &head, sizeof head);
      write_all(socket, notice.bytes.data(), notice.bytes.size());
    }
  }

  void close_all() {
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);  // its thread reads the end
    if (listener_ >= 0) shutdown(listener_, SHUT_RDWR);
  }

  std::mutex mutex_;
  int listener_;
  std::vector<int> sockets_;
  Receive receive_;
};

}  // namespace

std::shared_ptr<Links> Links::listen(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto [address, length] = address_of(name);
  if (socket < 0 || ::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket, 64) != 0) {
    fail("ncclGetUniqueId cannot make the socket {}: {}", name, std::strerror(errno));
  }
  return std::make_shared<Sockets>(socket, -1);
}

std::shared_ptr<Links> Links::connect(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto [address, length] = address_of(name);
  if (socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
    return std::make_shared<Sockets>(-1, socket);
  }
  if (socket >= 0) ::close(socket);
  return nullptr;
}

}  // namespace cuda_on_host
