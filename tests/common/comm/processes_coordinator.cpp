// What the coordinator of ranks that are processes answers, told here what they do.
#include "comm/processes/coordinator.h"
#include "worlds.h"

#include <map>
#include <utility>

namespace fsdp::comm_test {
namespace {

using processes::Coordinator;
using processes::Message;
using Kind = Message::Kind;

/// A coordinator, and all that it has said.
struct Hearing {
  explicit Hearing(int world_size, int job_size = 0,
                   std::chrono::milliseconds patience = std::chrono::hours{1})
      : coordinator(world_size, job_size == 0 ? world_size : job_size, patience,
                    [this](int rank, const Message& message) {
                      said.emplace_back(rank, processes::from_bytes(processes::to_bytes(message)));
                    }) {}

  void call(int rank, const std::string& unit, std::int64_t sequence, bool unwinding = false) {
    Message message{.kind = Kind::call};
    message.call.op = CollectiveOp::all_reduce;
    message.call.numel = 4;
    message.call.label = {unit, Phase::forward};
    message.sequence = sequence;
    message.unwinding = unwinding;
    tell(rank, message);
  }
  void tell(int rank, const Message& message) {
    coordinator.on_message(rank, processes::from_bytes(processes::to_bytes(message)));
  }
  void tell(int rank, Kind kind, const std::string& text = "") {
    Message message{.kind = kind};
    message.text = text;
    tell(rank, message);
  }
  void wait(int rank, std::int64_t sequence, bool unwinding = false) {
    Message message{.kind = Kind::waits};
    message.sequence = sequence;
    message.unwinding = unwinding;
    tell(rank, message);
  }

  /// What `rank` was told, in order.
  std::vector<Message> told(int rank) const {
    std::vector<Message> messages;
    for (const auto& [to, message] : said)
      if (to == rank) messages.push_back(message);
    return messages;
  }
  Message last_told(int rank) const {
    const std::vector<Message> messages = told(rank);
    expect(!messages.empty(), "rank {} was told nothing", rank);
    return messages.back();
  }

  std::vector<std::pair<int, Message>> said;
  Coordinator coordinator;
};

bool mentions(const Message& message, const std::string& text) {
  return message.text.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("coordinator: data may move when all ranks have called, and not before") {
  Hearing hearing(3);
  hearing.call(0, "a", 0);
  hearing.call(0, "b", 1);
  hearing.call(2, "a", 0);
  CHECK(hearing.said.empty());
  CHECK(hearing.coordinator.has_open_calls());
  hearing.call(1, "a", 0);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(hearing.told(rank).size() == 1);
    CHECK(hearing.last_told(rank).kind == Kind::agreed);
    CHECK(hearing.last_told(rank).sequence == 0);
  }
  hearing.wait(1, 0);  // it has been agreed on: this is no wait for anybody
  hearing.tell(0, Kind::returned);
  CHECK(hearing.last_told(2).kind == Kind::agreed);
}

TEST_CASE("coordinator: calls that differ stop every rank, with the table") {
  Hearing hearing(2);
  hearing.call(0, "a", 0);
  hearing.call(1, "b", 0);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(hearing.last_told(rank).kind == Kind::stop);
    CHECK(mentions(hearing.last_told(rank),
                   "ranks disagree on the label of collective 0: a/forward on rank 0, b/forward on "
                   "rank 1\nrank  seq  operation"));
  }
  hearing.call(0, "c", 1);  // before it has heard of it
  CHECK(hearing.last_told(0).kind == Kind::stop);
  hearing.tell(0, Kind::threw, "Aborted: …");
  hearing.tell(1, Kind::threw, "Aborted: …");
  CHECK(hearing.coordinator.has_ended());
  CHECK(hearing.last_told(1).kind == Kind::end);
  CHECK(hearing.last_told(1).rank == -1);
  CHECK(mentions(hearing.last_told(1), "Aborted: ranks disagree"));
}

TEST_CASE("coordinator: what a rank throws is the reason, also if it waits on its way up") {
  Hearing hearing(2);
  hearing.call(0, "a", 0);
  hearing.wait(0, 0);
  hearing.call(1, "a", 0);  // agreed
  hearing.call(1, "b", 1);
  hearing.wait(1, 1, true);  // the destructor of a Work
  CHECK(hearing.last_told(1).kind == Kind::agreed);
  hearing.tell(0, Kind::returned);
  CHECK(hearing.last_told(1).kind == Kind::stop);
  CHECK(hearing.last_told(1).is_provisional);
  Message threw{.kind = Kind::threw};
  threw.text = "boom";
  threw.type = "a type";
  hearing.tell(1, threw);
  CHECK(hearing.last_told(0).kind == Kind::end);
  CHECK(hearing.last_told(0).rank == 1);
  CHECK(hearing.last_told(0).text == "boom");
  CHECK(hearing.last_told(0).type == "a type");
}

TEST_CASE("coordinator: who swallows the exception is waited for no longer than its next call") {
  Hearing hearing(2);
  hearing.call(1, "a", 0);
  hearing.wait(1, 0, true);
  hearing.tell(0, Kind::returned);
  CHECK(hearing.told(0).empty());
  hearing.call(1, "b", 1);
  CHECK(hearing.last_told(0).kind == Kind::stop);
  CHECK_FALSE(hearing.last_told(0).is_provisional);
  CHECK(mentions(hearing.last_told(0), "which rank 0 has not called, and rank 0 has returned"));
}

TEST_CASE("coordinator: and no longer than its patience") {
  Hearing hearing(2, 2, std::chrono::milliseconds{0});
  hearing.call(1, "a", 0);
  hearing.wait(1, 0, true);
  hearing.tell(0, Kind::returned);
  CHECK(hearing.told(0).empty());
  hearing.coordinator.on_time();
  CHECK(hearing.last_told(0).kind == Kind::stop);
}

TEST_CASE("coordinator: a poll a thousand times told is a wait in the end") {
  Hearing hearing(2);
  hearing.call(1, "a", 0);
  Message asks{.kind = Kind::asks};
  asks.times = 1'000;
  for (int i = 0; i < 99; ++i) hearing.tell(1, asks);
  hearing.call(0, "a", 0);
  CHECK(hearing.last_told(1).kind == Kind::agreed);
  hearing.call(1, "b", 1);
  hearing.tell(0, Kind::returned);
  CHECK(hearing.last_told(1).kind == Kind::agreed);
  asks.sequence = 1;
  hearing.tell(1, asks);  // rank 0 will never call
  CHECK(hearing.last_told(1).kind == Kind::stop);
}

TEST_CASE("coordinator: who waits or computes no longer polls") {
  Hearing hearing(2);
  for (int rank = 0; rank < 2; ++rank) {
    Message split{.kind = Kind::call};
    split.call.op = CollectiveOp::split;
    hearing.tell(rank, split);
  }
  hearing.call(1, "a", 1);
  Message asks{.kind = Kind::asks};
  asks.sequence = 1;
  asks.times = 100'000;
  hearing.tell(1, asks);  // it polls; but then it does something else
  hearing.tell(1, Kind::computes);
  Message call{.kind = Kind::call};
  call.group = hearing.last_told(0).part;
  call.call.op = CollectiveOp::barrier;
  hearing.tell(0, call);
  Message waits{.kind = Kind::waits};
  waits.group = call.group;
  hearing.tell(0, waits);  // for rank 1, which computes
  CHECK(hearing.last_told(0).kind == Kind::agreed);
}

TEST_CASE("coordinator: what comes from a rank that has ended is too late") {
  Hearing hearing(2);
  hearing.tell(1, Kind::returned);
  hearing.tell(1, Kind::aborts, "too late");
  CHECK(hearing.said.empty());
  hearing.tell(0, Kind::returned);
  CHECK(hearing.last_told(1).kind == Kind::end);
  CHECK(hearing.last_told(1).text.empty());
  hearing.tell(0, Kind::aborts, "much too late");
  CHECK(hearing.last_told(1).kind == Kind::end);
}

TEST_CASE("coordinator: a split gives each rank its new group, under a number of its own") {
  Hearing hearing(3);
  for (int rank = 0; rank < 3; ++rank) {
    Message split{.kind = Kind::call};
    split.call.op = CollectiveOp::split;
    split.choice = {.color = rank % 2, .key = -rank};
    hearing.tell(rank, split);
  }
  CHECK(hearing.last_told(0).members == std::vector<int>{2, 0});
  CHECK(hearing.last_told(2).members == std::vector<int>{2, 0});
  CHECK(hearing.last_told(1).members == std::vector<int>{1});
  CHECK(hearing.last_told(0).part == hearing.last_told(2).part);
  CHECK(hearing.last_told(0).part != hearing.last_told(1).part);
  CHECK(hearing.last_told(1).part > 0);
}

TEST_CASE("coordinator: processes that are no ranks hear of the end") {
  Hearing hearing(2, 4);
  hearing.call(0, "a", 0);
  hearing.call(1, "a", 0);
  CHECK(hearing.told(3).empty());
  hearing.tell(0, Kind::returned);
  hearing.tell(1, Kind::returned, "all_reduce of a/forward (collective 0 of ranks 0, 1)");
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(hearing.last_told(rank).kind == Kind::end);
    CHECK(mentions(hearing.last_told(rank), "rank 1 has returned, but its Work of all_reduce"));
  }
  CHECK(hearing.told(3).size() == 1);
}

TEST_CASE("coordinator: a process that is no rank may only say that it is there") {
  Hearing hearing(1, 3);
  hearing.tell(2, Kind::beat);
  CHECK_THAT(message_of<Error>([&] { hearing.call(2, "a", 0); }),
             contains("process 2 calls in a world of 1 rank, which it is none of"));
}

TEST_CASE("coordinator: a failure of devices is in the stop") {
  for (const bool have_devices_failed : {false, true}) {
    Hearing hearing(2);
    Message message{.kind = Kind::aborts};
    message.text = "no more";
    message.have_devices_failed = have_devices_failed;
    hearing.tell(1, message);
    for (const int rank : {0, 1}) {
      CHECK(mentions(hearing.last_told(rank), "rank 1: no more"));
      CHECK(hearing.last_told(rank).have_devices_failed == have_devices_failed);
    }
  }
}

TEST_CASE("coordinator: devices that fail after the stop are in a second one") {
  for (const int who : {0, 1}) {  // rank 1 has ended, and rank 0 has not
    Hearing hearing(3);
    hearing.tell(1, Kind::threw, "no more");
    for (const int rank : {0, 2}) CHECK_FALSE(hearing.last_told(rank).have_devices_failed);
    Message message{.kind = Kind::aborts};
    message.text = "NCCL could not start it";
    message.have_devices_failed = true;
    hearing.tell(who, message);
    hearing.tell(2, message);
    for (const int rank : {0, 1, 2}) {
      CHECK(mentions(hearing.last_told(rank), "rank 1: no more"));
      CHECK(hearing.last_told(rank).have_devices_failed);
      CHECK(hearing.told(rank).size() == 2);
    }
  }
}

TEST_CASE("coordinator: a message of another version is refused") {
  std::vector<std::byte> bytes = processes::to_bytes({});
  bytes.pop_back();
  CHECK_THROWS_AS(processes::from_bytes(bytes), Error);
}

}  // namespace fsdp::comm_test
