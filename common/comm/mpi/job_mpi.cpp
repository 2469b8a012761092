#include "base/check.h"
#include "comm/mpi/job.h"
#include "comm/mpi/pause.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

namespace fsdp::mpi {
namespace {

static_assert(sizeof(MPI_Request) <= sizeof(Request));

// Control and data have a communicator each, so that no message is taken for another.
struct Communicators {
  MPI_Comm control = MPI_COMM_NULL;
  MPI_Comm data = MPI_COMM_NULL;
};
Communicators communicators;

struct Sending {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};
std::deque<Sending> sending;  // control messages that have not left yet

constexpr int kTag = 0;

Request to_handle(MPI_Request request) {
  Request handle = 0;
  std::memcpy(&handle, &request, sizeof request);
  return handle;
}

int count_of(std::int64_t nbytes) { return static_cast<int>(nbytes); }

template <class Function>
void start_sending(Function function, int to, std::vector<std::byte> bytes) {
  sending.push_back({std::move(bytes), MPI_REQUEST_NULL});
  Sending& message = sending.back();
  function(message.bytes.data(), count_of(std::ssize(message.bytes)), MPI_BYTE, to, kTag,
           communicators.control, &message.request);
}

Place place_on_this_machine() {
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  Place place;
  MPI_Comm_rank(machine, &place.rank);
  MPI_Comm_size(machine, &place.size);
  MPI_Comm_free(&machine);
  return place;
}

// MPI begins once; a second try is answered like the first.
std::string why_not;

[[noreturn]] void give_up(std::string why) {
  MPI_Finalize();
  why_not = std::move(why);
  fail("{}", why_not);
}

}  // namespace

Job& Job::instance() {
  static Job job;
  return job;
}

Job::Job() {
  if (!why_not.empty()) fail("{}", why_not);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    give_up(
        fmt::format("this MPI ({}) does not allow calls from more than one thread "
                    "(MPI_THREAD_SERIALIZED)",
                    library()));
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  const Launch launch = launched().value_or(Launch{});
  if (size_ != launch.size) {
    give_up(fmt::format(
        "the launcher started {} processes, but this program's MPI ({}) knows {}: the two are of "
        "different MPI libraries. Start the program with the launcher of its own",
        launch.size, library(), size_));
  }
  note_place(place_on_this_machine());
  MPI_Comm_dup(MPI_COMM_WORLD, &communicators.control);
  MPI_Comm_dup(MPI_COMM_WORLD, &communicators.data);
}

// A program that ends tells the others: one that still waits for it must not wait forever.
Job::~Job() {
  if (is_running_) kill();  // std::exit() in the middle of a world
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) send_control(rank, {});
  // Only together into MPI_Finalize: libraries warn of messages that nobody has received, and Open
  // MPI's mpirun may hang if a process dies while another one is in there.
  for (Pause pause; ended_ < size_ - 1 || !has_sent_control();)
    if (!receive_control()) sleep(pause.next(false));
  MPI_Comm_free(&communicators.control);
  MPI_Comm_free(&communicators.data);
  MPI_Finalize();
}

void Job::send_control(int to, std::vector<std::byte> bytes) {
  start_sending(MPI_Isend, to, std::move(bytes));
}

void Job::send_last_control(int to, std::vector<std::byte> bytes) {
  start_sending(MPI_Issend, to, std::move(bytes));
}

bool Job::has_sent_control() {
  while (!sending.empty()) {
    int sent = 0;
    MPI_Test(&sending.front().request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) return false;
    sending.pop_front();
  }
  return true;
}

std::optional<Received> Job::receive_control() {
  has_sent_control();
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, kTag, communicators.control, &arrived, &message, &status);
  if (arrived == 0) return std::nullopt;
  int nbytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &nbytes);
  Received received{status.MPI_SOURCE, std::vector<std::byte>(static_cast<std::size_t>(nbytes))};
  MPI_Mrecv(received.bytes.data(), nbytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  if (nbytes == 0) ++ended_;
  return received;
}

Request Job::send(int to, const std::byte* bytes, std::int64_t nbytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(bytes, count_of(nbytes), MPI_BYTE, to, kTag, communicators.data, &request);
  return to_handle(request);
}

Request Job::receive(int from, std::byte* bytes, std::int64_t nbytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(bytes, count_of(nbytes), MPI_BYTE, from, kTag, communicators.data, &request);
  return to_handle(request);
}

bool Job::is_done(Request& handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  std::memcpy(&request, &handle, sizeof request);
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  handle = to_handle(request);
  return done != 0;
}

// A launcher ends the job if a process ends without MPI_Finalize. MPI_Abort asks it for the same,
// but waits for an answer; and Open MPI's mpirun may hang if several processes ask.
void Job::kill() { std::_Exit(EXIT_FAILURE); }

std::string Job::library() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, std::min(whole.find(','), whole.find('\n')));
}

}  // namespace fsdp::mpi
