#include "base/check.h"
#include "comm/processes/job.h"

#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

namespace fsdp::processes {
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

std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, std::min(whole.find(','), whole.find('\n')));
}

class MpiJob final : public Job {
 public:
  explicit MpiJob(const Launch& launch);
  ~MpiJob() override;
  void send_control(int to, std::vector<std::byte> bytes) override;
  void send_last_control(int to, std::vector<std::byte> bytes) override;
  std::optional<Received> next_control() override;
  bool has_sent_control() override;
  Request send(int to, const std::byte* bytes, std::int64_t nbytes) override;
  Request receive(int from, std::byte* bytes, std::int64_t nbytes) override;
  bool is_done(Request& request) override;
  std::string library() const override { return library_name(); }
};

MpiJob::MpiJob(const Launch& launch) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    fail("this MPI ({}) does not allow calls from more than one thread (MPI_THREAD_SERIALIZED)",
         library_name());
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if (size_ != launch.size) {
    MPI_Finalize();
    fail(
        "the launcher started {} processes, but this program's MPI ({}) knows {}: the two are of "
        "different MPI libraries. Start the program with the launcher of its own",
        launch.size, library_name(), size_);
  }
  note_place(place_on_this_machine());
  MPI_Comm_dup(MPI_COMM_WORLD, &communicators.control);
  MPI_Comm_dup(MPI_COMM_WORLD, &communicators.data);
}

// Only together into MPI_Finalize: libraries warn of messages that nobody has received, and Open
// MPI's mpirun may hang if a process dies while another one is in there.
MpiJob::~MpiJob() {
  say_goodbye();
  MPI_Comm_free(&communicators.control);
  MPI_Comm_free(&communicators.data);
  MPI_Finalize();
}

void MpiJob::send_control(int to, std::vector<std::byte> bytes) {
  start_sending(MPI_Isend, to, std::move(bytes));
}

void MpiJob::send_last_control(int to, std::vector<std::byte> bytes) {
  start_sending(MPI_Issend, to, std::move(bytes));
}

bool MpiJob::has_sent_control() {
  while (!sending.empty()) {
    int sent = 0;
    MPI_Test(&sending.front().request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) return false;
    sending.pop_front();
  }
  return true;
}

std::optional<Received> MpiJob::next_control() {
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
  return received;
}

Request MpiJob::send(int to, const std::byte* bytes, std::int64_t nbytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(bytes, count_of(nbytes), MPI_BYTE, to, kTag, communicators.data, &request);
  return to_handle(request);
}

Request MpiJob::receive(int from, std::byte* bytes, std::int64_t nbytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(bytes, count_of(nbytes), MPI_BYTE, from, kTag, communicators.data, &request);
  return to_handle(request);
}

bool MpiJob::is_done(Request& handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  std::memcpy(&request, &handle, sizeof request);
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  handle = to_handle(request);
  return done != 0;
}

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<Job> make_mpi_job(const Launch& launch) { return std::make_unique<MpiJob>(launch); }

}  // namespace fsdp::processes
