#include "comm/processes/meeting.h"

#include "base/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

namespace fsdp::processes {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kMagic = 0x31'4452'4148'534e'55;  // "UNSHARD1": also tells the byte order
/// A stranger may connect and say nothing.
constexpr std::chrono::seconds kHelloLimit{5};

enum class Purpose : std::uint32_t { meeting, control, data };

struct Hello {
  std::uint64_t magic = kMagic;
  std::uint64_t machine = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Purpose purpose = Purpose::meeting;
  std::int32_t port = 0;  // where it listens
};

/// Where a rank listens, as rank 0 saw it.
struct Entry {
  std::array<char, 64> host{};  // "" = on rank 0's machine
  std::int32_t port = 0;
  std::int32_t unused = 0;
  std::uint64_t machine = 0;
};

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Tells machines apart. Containers of one machine with names of their own count as several.
std::uint64_t this_machine() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::hash<std::string>()(std::string(name.data()) + boot);
}

class Meeting {
 public:
  Meeting(const Launch& launch, std::chrono::milliseconds limit)
      : launch_(launch), at_(*launch.meeting), until_(steady_clock::now() + limit) {}

  Connections meet() {
    listen();
    launch_.rank == 0 ? gather_entries() : fetch_entries();
    Connections all;
    for (auto* sockets : {&all.control, &all.data}) {
      sockets->resize(static_cast<std::size_t>(launch_.size));
    }
    for (int rank = 0; rank < launch_.rank; ++rank) {
      at(all.control, rank) = connect(rank, Purpose::control);
      at(all.data, rank) = connect(rank, Purpose::data);
    }
    accept_higher(all);
    for (int rank = 0; rank < launch_.size; ++rank) {
      if (at(entries_, rank).machine != at(entries_, launch_.rank).machine) continue;
      ++all.place.size;
      if (rank < launch_.rank) ++all.place.rank;
    }
    --all.place.size;  // it began as one
    return all;
  }

 private:
  template <class T>
  static T& at(std::vector<T>& all, int rank) {
    return all[static_cast<std::size_t>(rank)];
  }

  std::string where() const { return fmt::format("{}:{}", at_.host, at_.port); }

  Hello hello(Purpose purpose) const {
    return {.machine = this_machine(),
            .rank = launch_.rank,
            .size = launch_.size,
            .purpose = purpose,
            .port = port_of(listener_)};
  }

  // Our launcher has chosen a port by listening there already.
  void listen() {
    const char* inherited = std::getenv(kListener);
    int descriptor = -1;
    if (launch_.rank != 0) {
      listener_ = listen_at({is_loopback(at_.host) ? at_.host : "", 0});
    } else if (inherited != nullptr &&
               std::from_chars(inherited, inherited + std::strlen(inherited), descriptor).ec ==
                   std::errc()) {
      listener_ = Socket(descriptor);
    } else {
      listener_ = listen_at(at_);
    }
  }

  /// The next process of this job that connects. Strangers are sent away.
  Socket accept(Hello& hello, const std::function<std::string()>& what_is_missing) {
    for (;;) {
      Socket connection = accept_at(listener_, until_);
      FSDP_CHECK(connection.is_open(), "rank {}: {}", launch_.rank, what_is_missing());
      const bool is_said = receive_all(connection, bytes_of(hello),
                                       std::min(until_, steady_clock::now() + kHelloLimit));
      if (!is_said || hello.magic != kMagic) continue;
      FSDP_CHECK(hello.size == launch_.size && hello.rank > 0 && hello.rank < launch_.size,
                 "a process says at {} that it is rank {} of {}, and this is a job of {}: "
                 "WORLD_SIZE must be the same everywhere, or another job uses this MASTER_PORT",
                 where(), hello.rank, hello.size, launch_.size);
      return connection;
    }
  }

  void gather_entries() {
    entries_.resize(static_cast<std::size_t>(launch_.size));
    entries_[0] = {.port = port_of(listener_), .machine = this_machine()};
    std::vector<Socket> connections(entries_.size());
    const auto missing = [&] {
      std::vector<int> ranks;
      for (int rank = 1; rank < launch_.size; ++rank)
        if (!at(connections, rank).is_open()) ranks.push_back(rank);
      return fmt::format(
          "rank {} did not come to {} in time. All {} ranks must be started with the same "
          "MASTER_ADDR, MASTER_PORT and WORLD_SIZE, each with its RANK, and their machines must "
          "reach that address",
          fmt::join(ranks, ", "), where(), launch_.size);
    };
    for (int count = 1; count < launch_.size; ++count) {
      Hello hello;
      Socket connection = accept(hello, missing);
      FSDP_CHECK(!at(connections, hello.rank).is_open(),
                 "two processes say that they are rank {}: each needs a RANK of its own",
                 hello.rank);
      Entry& entry = at(entries_, hello.rank);
      entry.port = hello.port;
      entry.machine = hello.machine;
      const std::string host = peer_host(connection);
      if (!is_loopback(host)) host.copy(entry.host.data(), entry.host.size() - 1);
      at(connections, hello.rank) = std::move(connection);
    }
    for (int rank = 1; rank < launch_.size; ++rank) {
      FSDP_CHECK(send_all(at(connections, rank), std::as_bytes(std::span(entries_)), until_),
                 "rank {} has gone before all ranks were connected", rank);
    }
  }

  void fetch_entries() {
    try {
      Socket connection = connect_to(at_, until_);
      first_host_ = peer_host(connection);
      Hello own = hello(Purpose::meeting);
      entries_.resize(static_cast<std::size_t>(launch_.size));
      FSDP_CHECK(send_all(connection, bytes_of(own), until_) &&
                     receive_all(connection, std::as_writable_bytes(std::span(entries_)), until_),
                 "{} has ended the connection before all ranks were there", where());
    } catch (const Error& error) {
      fail(
          "rank {} does not find rank 0: {}. MASTER_ADDR must be the machine of rank 0, and "
          "MASTER_PORT a port there that other machines may reach",
          launch_.rank, error.what());
    }
  }

  Socket connect(int rank, Purpose purpose) {
    const Entry& entry = at(entries_, rank);
    const std::string host = entry.host.data();
    const Address address{host.empty() ? first_host_ : host, entry.port};
    Socket connection = connect_to(address, until_);
    Hello own = hello(purpose);
    FSDP_CHECK(send_all(connection, bytes_of(own), until_),
               "rank {} has gone before rank {} was "
               "connected to it",
               rank, launch_.rank);
    return connection;
  }

  void accept_higher(Connections& all) {
    const auto missing = [&] {
      return fmt::format(
          "a higher rank did not connect to port {} in time: the machines must "
          "reach each other on all ports",
          port_of(listener_));
    };
    for (int count = 2 * (launch_.size - 1 - launch_.rank); count > 0; --count) {
      Hello hello;
      Socket connection = accept(hello, missing);
      at(hello.purpose == Purpose::control ? all.control : all.data, hello.rank) =
          std::move(connection);
    }
  }

  const Launch& launch_;
  const Address at_;
  const Deadline until_;
  Socket listener_;
  std::vector<Entry> entries_;  // by rank
  std::string first_host_;      // rank 0's, as this process sees it
};

}  // namespace

Connections meet(const Launch& launch, std::chrono::milliseconds limit) {
  return Meeting(launch, limit).meet();
}

}  // namespace fsdp::processes
