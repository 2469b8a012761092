// Processes that TCP connects: two connections for every pair, one for control and one for data, so
// that no control message waits behind data that nobody reads yet.
#include "base/check.h"
#include "comm/processes/job.h"
#include "comm/processes/liveness.h"
#include "comm/processes/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

namespace fsdp::processes {
namespace {

/// In front of every message.
struct Header {
  enum class Kind : std::uint32_t { message, last, received };
  Kind kind = Kind::message;
  std::uint32_t unused = 0;
  std::int64_t nbytes = 0;
};

/// How far a header and the bytes behind it have got.
struct Progress {
  Header header{};
  std::span<std::byte> bytes{};
  std::size_t moved = 0;

  bool is_done() const { return moved == sizeof header + bytes.size(); }
  bool has_header() const { return moved >= sizeof header; }
  /// What is next.
  std::span<std::byte> rest() {
    const std::span head = std::as_writable_bytes(std::span(&header, 1));
    return has_header() ? bytes.subspan(moved - sizeof header) : head.subspan(moved);
  }
};

struct Outgoing {
  std::vector<std::byte> bytes;
  Progress progress;
};

struct Peer {
  Socket control;
  Socket data;
  bool has_said_goodbye = false;  // that its connections end then is no failure
  bool is_lost = false;
  std::deque<Outgoing> outgoing;    // control
  std::vector<std::byte> incoming;  // control: what is not a whole message yet
  int unconfirmed = 0;              // last messages that it has not received yet
  std::deque<Progress> sends;       // data
  std::deque<Progress> receives;
  std::int64_t sent = 0, received = 0;  // messages that are done

  bool is_connected() const { return control.is_open() && !is_lost; }
};

// A request: whether it receives, its peer, and its place among the messages of that direction.
constexpr int kPeerBits = 20;
constexpr int kPlaceBits = 43;
Request make_request(bool receives, int peer, std::int64_t place) {
  return (Request{receives} << (kPeerBits + kPlaceBits)) |
         (static_cast<Request>(peer) << kPlaceBits) | static_cast<Request>(place);
}

bool would_wait(std::ptrdiff_t moved) {
  return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

class TcpJob final : public Job {
 public:
  explicit TcpJob(const Launch& launch);
  ~TcpJob() override { say_goodbye(); }

  void send_control(int to, std::vector<std::byte> bytes) override {
    enqueue(to, Header::Kind::message, std::move(bytes));
  }
  void send_last_control(int to, std::vector<std::byte> bytes) override {
    if (at(to).is_connected()) ++at(to).unconfirmed;
    enqueue(to, Header::Kind::last, std::move(bytes));
  }
  bool has_sent_control() override;
  Request send(int to, const std::byte* bytes, std::int64_t nbytes) override;
  Request receive(int from, std::byte* bytes, std::int64_t nbytes) override;
  bool is_done(Request& request) override;
  std::string library() const override { return "TCP"; }

 private:
  std::optional<Received> next_control() override;

  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void enqueue(int to, Header::Kind kind, std::vector<std::byte> bytes);
  void lose(int rank, int error);
  void send_control_of(int rank);
  void receive_control_of(int rank);
  void take_messages(int rank);
  void move_control();
  void send_data(int rank);
  void receive_data(int rank);

  std::vector<Peer> peers_;  // by rank
  std::deque<Received> arrived_;
  std::vector<pollfd> polled_;
};

TcpJob::TcpJob(const Launch& launch) {
  rank_ = launch.rank;
  size_ = launch.size;
  Connections all = meet(launch);
  note_place(all.place);
  // A rank that only computes reads no data, but its machine always answers for control messages.
  constexpr std::chrono::milliseconds kUnanswered{10'000};
  const auto limit = std::min(kUnanswered, silence_limit());
  peers_.resize(static_cast<std::size_t>(size_));
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank].control = std::move(all.control[rank]);
    peers_[rank].data = std::move(all.data[rank]);
    if (peers_[rank].control.is_open()) end_when_unanswered(peers_[rank].control, limit);
  }
}

void TcpJob::enqueue(int to, Header::Kind kind, std::vector<std::byte> bytes) {
  if (!at(to).is_connected()) return;
  Outgoing& message = at(to).outgoing.emplace_back();
  message.bytes = std::move(bytes);
  message.progress = {{kind, 0, std::ssize(message.bytes)}, message.bytes, 0};
  send_control_of(to);
}

void TcpJob::lose(int rank, int error) {
  Peer& peer = at(rank);
  peer.is_lost = true;
  peer.outgoing.clear();
  peer.unconfirmed = 0;
  if (peer.has_said_goodbye) return;
  const bool is_killed = error == 0 || error == ECONNRESET || error == EPIPE;
  arrived_.push_back(
      {.from = rank,
       .bytes = {},
       .lost = is_killed ? "its process has ended without a word"
                         : fmt::format("its machine, or the network between, has failed: {}",
                                       std::strerror(error))});
}

void TcpJob::send_control_of(int rank) {
  Peer& peer = at(rank);
  while (peer.is_connected() && !peer.outgoing.empty()) {
    Progress& first = peer.outgoing.front().progress;
    const std::span<std::byte> rest = first.rest();
    const auto sent =
        ::send(peer.control.descriptor(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (would_wait(sent)) return;
    if (sent < 0) return lose(rank, errno);
    first.moved += static_cast<std::size_t>(sent);
    if (first.is_done()) peer.outgoing.pop_front();
  }
}

void TcpJob::receive_control_of(int rank) {
  Peer& peer = at(rank);
  std::array<std::byte, 16'384> block;
  while (peer.is_connected()) {
    const auto got = ::recv(peer.control.descriptor(), block.data(), block.size(), MSG_DONTWAIT);
    if (would_wait(got)) return;
    if (got <= 0) return lose(rank, got == 0 ? 0 : errno);
    peer.incoming.insert(peer.incoming.end(), block.begin(), block.begin() + got);
    take_messages(rank);
  }
}

void TcpJob::take_messages(int rank) {
  std::vector<std::byte>& incoming = at(rank).incoming;
  std::size_t begin = 0;
  for (Header header; incoming.size() - begin >= sizeof header;) {
    std::memcpy(&header, incoming.data() + begin, sizeof header);
    const std::size_t end = begin + sizeof header + static_cast<std::size_t>(header.nbytes);
    if (incoming.size() < end) break;
    const auto first = incoming.begin() + static_cast<std::ptrdiff_t>(begin + sizeof header);
    if (header.kind == Header::Kind::received) {
      --at(rank).unconfirmed;
    } else {
      at(rank).has_said_goodbye = header.nbytes == 0;
      arrived_.push_back({.from = rank, .bytes = {first, first + header.nbytes}, .lost = {}});
    }
    if (header.kind == Header::Kind::last) enqueue(rank, Header::Kind::received, {});
    begin = end;
  }
  incoming.erase(incoming.begin(), incoming.begin() + static_cast<std::ptrdiff_t>(begin));
}

// Asks the system once what can be done: a rank that waits comes here again and again.
void TcpJob::move_control() {
  polled_.clear();
  for (const Peer& peer : peers_) {
    // Descriptors below 0 are passed over.
    polled_.push_back({peer.is_connected() ? peer.control.descriptor() : -1,
                       static_cast<short>(POLLIN | (peer.outgoing.empty() ? 0 : POLLOUT)), 0});
  }
  if (::poll(polled_.data(), polled_.size(), 0) <= 0) return;
  for (int rank = 0; rank < size_; ++rank) {
    const short events = polled_[static_cast<std::size_t>(rank)].revents;
    if ((events & POLLOUT) != 0) send_control_of(rank);
    if ((events & ~POLLOUT) != 0) receive_control_of(rank);
  }
}

std::optional<Received> TcpJob::next_control() {
  if (arrived_.empty()) move_control();
  if (arrived_.empty()) return std::nullopt;
  Received first = std::move(arrived_.front());
  arrived_.pop_front();
  return first;
}

bool TcpJob::has_sent_control() {
  move_control();
  return std::ranges::all_of(
      peers_, [](const Peer& peer) { return peer.outgoing.empty() && peer.unconfirmed == 0; });
}

Request TcpJob::send(int to, const std::byte* bytes, std::int64_t nbytes) {
  Peer& peer = at(to);
  const std::int64_t place = peer.sent + std::ssize(peer.sends);
  // Only read from: a message that is sent never changes its bytes.
  // NOLINTBEGIN(cppcoreguidelines-pro-type-const-cast)
  peer.sends.push_back({{Header::Kind::message, 0, nbytes},
                        {const_cast<std::byte*>(bytes), static_cast<std::size_t>(nbytes)},
                        0});
  // NOLINTEND(cppcoreguidelines-pro-type-const-cast)
  send_data(to);
  return make_request(false, to, place);
}

Request TcpJob::receive(int from, std::byte* bytes, std::int64_t nbytes) {
  Peer& peer = at(from);
  const std::int64_t place = peer.received + std::ssize(peer.receives);
  peer.receives.push_back({{}, {bytes, static_cast<std::size_t>(nbytes)}, 0});
  receive_data(from);
  return make_request(true, from, place);
}

// A message may wait for another peer's: all move on.
bool TcpJob::is_done(Request& request) {
  const bool receives = (request >> (kPeerBits + kPlaceBits)) != 0;
  const auto peer = static_cast<int>((request >> kPlaceBits) & ((Request{1} << kPeerBits) - 1));
  const auto place = static_cast<std::int64_t>(request & ((Request{1} << kPlaceBits) - 1));
  const auto is_there = [&] { return place < (receives ? at(peer).received : at(peer).sent); };
  if (is_there()) return true;
  for (int rank = 0; rank < size_; ++rank) {
    send_data(rank);
    receive_data(rank);
  }
  return is_there();
}

// If the connection has ended, the one for control says so.
void TcpJob::send_data(int rank) {
  Peer& peer = at(rank);
  while (!peer.sends.empty()) {
    Progress& first = peer.sends.front();
    const std::span<std::byte> rest = first.rest();
    const auto sent =
        ::send(peer.data.descriptor(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return;
    first.moved += static_cast<std::size_t>(sent);
    if (!first.is_done()) continue;
    peer.sends.pop_front();
    ++peer.sent;
  }
}

void TcpJob::receive_data(int rank) {
  Peer& peer = at(rank);
  while (!peer.receives.empty()) {
    Progress& first = peer.receives.front();
    const std::span<std::byte> rest = first.rest();
    const auto got = ::recv(peer.data.descriptor(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    const bool was_header = !first.has_header();
    first.moved += static_cast<std::size_t>(got);
    FSDP_CHECK(!was_header || !first.has_header() || first.header.nbytes == std::ssize(first.bytes),
               "rank {} has sent {} bytes where rank {} expects {}: they have not called the same "
               "collectives",
               rank, first.header.nbytes, rank_, first.bytes.size());
    if (!first.is_done()) continue;
    peer.receives.pop_front();
    ++peer.received;
  }
}

}  // namespace

std::unique_ptr<Job> make_tcp_job(const Launch& launch) { return std::make_unique<TcpJob>(launch); }

}  // namespace fsdp::processes
