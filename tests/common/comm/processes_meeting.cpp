// How processes without MPI find each other. Here they are threads, each with a launch of its own.
#include "comm/processes/meeting.h"

#include "base/check.h"
#include "support/catch.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fsdp::comm_test {
namespace {

using processes::Connections;
using processes::Launch;

/// A place to meet, where rank 0 finds a listener as unshard-launch leaves it one.
class MeetingPlace {
 public:
  MeetingPlace() : listener_(processes::listen_at({"127.0.0.1", 0})) {
    const int inherited = ::dup(listener_.descriptor());  // it is closed with the meeting
    setenv(processes::kListener, std::to_string(inherited).c_str(), 1);
  }
  ~MeetingPlace() { unsetenv(processes::kListener); }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  Launch launch(int rank, int size) const {
    return {.rank = rank, .size = size, .meeting = address()};
  }
  processes::Address address() const { return {"127.0.0.1", processes::port_of(listener_)}; }
  /// Ends what waits for an answer there.
  void close() { listener_.close(); }

 private:
  processes::Socket listener_;
};

constexpr std::chrono::minutes kLong{2};

/// What each launch comes to, all at once: its connections, or its error.
struct Outcome {
  Connections all;
  std::string error;
};
std::vector<Outcome> meet(const std::vector<Launch>& launches,
                          std::chrono::milliseconds limit = kLong) {
  std::vector<Outcome> outcomes(launches.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    threads.emplace_back([&outcomes, &launches, limit, i] {
      try {
        outcomes[i].all = processes::meet(launches[i], limit);
      } catch (const Error& error) {
        outcomes[i].error = error.what();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  return outcomes;
}

}  // namespace

TEST_CASE("processes that meet are connected, each to each, for control and for data") {
  const int size = GENERATE(1, 2, 3, 4);
  const MeetingPlace place;
  // A stranger, who says nothing that is known.
  const processes::Socket stranger =
      processes::connect_to(place.address(), std::chrono::steady_clock::now() + kLong);
  const std::array<std::byte, 64> nonsense{};
  REQUIRE(processes::send_all(stranger, nonsense, std::chrono::steady_clock::now() + kLong));

  std::vector<Launch> launches;
  for (int rank = 0; rank < size; ++rank) launches.push_back(place.launch(rank, size));
  const std::vector<Outcome> outcomes = meet(launches);
  const auto until = std::chrono::steady_clock::now() + kLong;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    REQUIRE(outcomes[rank].error.empty());
    CHECK(outcomes[rank].all.place.rank == static_cast<int>(rank));
    CHECK(outcomes[rank].all.place.size == size);
    for (std::size_t other = 0; other < outcomes.size(); ++other) {
      CHECK(outcomes[rank].all.control[other].is_open() == (other != rank));
      CHECK(outcomes[rank].all.data[other].is_open() == (other != rank));
      if (other == rank) continue;
      const std::array sent = {static_cast<std::byte>(rank), static_cast<std::byte>(other)};
      std::array got = {std::byte{99}, std::byte{99}};
      for (const auto kind : {&Connections::control, &Connections::data}) {
        REQUIRE(processes::send_all((outcomes[rank].all.*kind)[other], sent, until));
        REQUIRE(processes::receive_all((outcomes[other].all.*kind)[rank], got, until));
        CHECK(got == sent);
      }
    }
  }
}

TEST_CASE("who is missing at a meeting is named") {
  const MeetingPlace place;
  const Outcome only = std::move(meet({place.launch(0, 3)}, std::chrono::milliseconds(1))[0]);
  CHECK_THAT(only.error, contains("rank 1, 2 did not come to 127.0.0.1:"));
}

TEST_CASE("a process that finds nobody says where it has looked") {
  MeetingPlace place;
  const Launch launch = place.launch(1, 2);
  place.close();
  ::close(std::atoi(std::getenv(processes::kListener)));
  const Outcome only = std::move(meet({launch}, std::chrono::milliseconds(1))[0]);
  CHECK_THAT(only.error, contains("rank 1 does not find rank 0: 127.0.0.1:"));
  CHECK_THAT(only.error, contains("MASTER_ADDR must be the machine of rank 0"));
}

TEST_CASE("nobody waits for a process that has gone to confirm a message") {
  const MeetingPlace place;
  std::thread goes([&] { processes::meet(place.launch(1, 2)); });
  const std::unique_ptr<processes::Job> job = processes::make_tcp_job(place.launch(0, 2));
  goes.join();
  std::optional<processes::Received> received;
  while (!received) received = job->receive_control();
  CHECK(received->from == 1);
  CHECK(received->lost == "its process has ended without a word");
  job->send_last_control(1, {std::byte{1}});
  CHECK(job->has_sent_control());
}

TEST_CASE("a meeting with the wrong ranks ends, and says what is wrong") {
  const MeetingPlace place;
  SECTION("one rank twice") {
    const auto outcomes = meet({place.launch(0, 3), place.launch(1, 3), place.launch(1, 3)});
    CHECK_THAT(outcomes[0].error, contains("two processes say that they are rank 1"));
    CHECK_THAT(outcomes[1].error, contains("has ended the connection before all ranks were there"));
  }
  SECTION("another size") {
    const auto outcomes = meet({place.launch(0, 2), place.launch(1, 3)});
    CHECK_THAT(outcomes[0].error, contains("that it is rank 1 of 3, and this is a job of 2"));
    CHECK_FALSE(outcomes[1].error.empty());
  }
}

}  // namespace fsdp::comm_test
