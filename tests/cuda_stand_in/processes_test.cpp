// NCCL between processes: rank 0 is this one, and the others are this program started again, which
// then runs the test case "a rank that is a process" alone.
#include "cuda_stand_in/plans.h"
#include "cuda_stand_in/rank_values.h"
#include "cuda_stand_in/ranks.h"

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

namespace {

constexpr int kOut = 100;  // the descriptor that a rank writes to

Floats sums(int ranks, std::size_t n) {
  Floats result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = sum_of_ranks(ranks, i);
  return result;
}

Floats concat(const std::vector<Floats>& parts) {
  Floats all;
  for (const Floats& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// What every collective gives this rank, one after the other, in one stream.
Floats every_collective(const Rank& me) {
  const auto ranks = static_cast<std::size_t>(me.ranks);
  OnDevice<float> own(me.stream, values(me.rank, kCount));
  OnDevice<float> long_own(me.stream, values(me.rank, kCount * ranks));
  OnDevice<float> whole(me.stream, kCount * ranks), part(me.stream, kCount);
  OnDevice<float> sum(me.stream, values(me.rank, kCount)), sent(me.stream, values(me.rank, kCount));
  OnDevice<float> reduced(me.stream, values(me.rank, kCount));
  all_gather(me, whole.data, own.data, kCount);
  reduce_scatter(me, part.data, long_own.data, kCount);
  all_reduce(me, sum.data, kCount);
  broadcast(me, sent.data, kCount, me.ranks - 1);
  reduce(me, reduced.data, own.data, kCount, 0);
  const Floats result = concat({whole.read_back(), part.read_back(), sum.read_back(),
                                sent.read_back(), reduced.read_back()});
  for (auto* each : {&own, &long_own, &whole, &part, &sum, &sent, &reduced}) each->free();
  return result;
}

Floats expected(int rank, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<Floats> all;
  for (int r = 0; r < ranks; ++r) all.push_back(values(r, kCount));
  const Floats long_sums = sums(ranks, kCount * count);
  const auto begin = long_sums.begin() + static_cast<std::ptrdiff_t>(kCount) * rank;
  return concat({concat(all), Floats(begin, begin + kCount), sums(ranks, kCount),
                 values(ranks - 1, kCount),
                 rank == 0 ? sums(ranks, kCount) : values(rank, kCount)});
}

/// "0 17 2 1 all <id>": mode and seed of the plan, ranks, rank, what to do, id.
struct Role {
  int mode, ranks, rank;
  unsigned long long seed;
  char task[16];
  ncclUniqueId id;
};

/// A rank that is a process.
class Process {
 public:
  Process(const Plan& plan, int ranks, int rank, const std::string& task, const ncclUniqueId& id) {
    const std::string role = fmt::format("{} {} {} {} {} {}", static_cast<int>(plan.mode), ranks,
                                         rank, plan.seed, task, id.internal);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    report_ = memfd_create("report", MFD_CLOEXEC);
    id_ = fork();
    if (id_ == 0) {
      dup2(ends[1], kOut);
      dup2(report_, STDOUT_FILENO);
      setenv("FSDP_RANK_ROLE", role.c_str(), 1);
      execl("/proc/self/exe", "test", "a rank that is a process", nullptr);
      _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~Process() { finish(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Until it has written `n` numbers, or closed its end.
  Floats read(std::size_t n) const {
    Floats numbers(n);
    std::size_t got = 0;
    while (got < n * sizeof(float)) {
      const ssize_t count =
          ::read(out_, reinterpret_cast<char*>(numbers.data()) + got, n * sizeof(float) - got);
      if (count <= 0) break;
      got += static_cast<std::size_t>(count);
    }
    numbers.resize(got / sizeof(float));
    return numbers;
  }
  /// Its exit code. If that is not 0, its report is printed.
  int finish() {
    if (id_ <= 0) return code_;
    close(out_);
    int status = 0;
    waitpid(std::exchange(id_, 0), &status, 0);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    char text[4096];
    const ssize_t length = code_ == 0 ? 0 : pread(report_, text, sizeof text, 0);
    std::cerr.write(text, std::max<ssize_t>(length, 0));
    close(report_);
    return code_;
  }

 private:
  pid_t id_ = 0;
  int out_ = -1, report_ = -1, code_ = -1;
};

ncclUniqueId new_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  return id;
}

/// Joins as a rank whose communicator does not block.
Rank begin_to_join(const ncclUniqueId& id, int ranks, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  Rank me = {rank, ranks, nullptr, nullptr};
  check(cudaSetDevice(rank));
  check(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
  CHECK(ncclCommInitRankConfig(&me.comm, ranks, id, rank, &config) == ncclInProgress);
  return me;
}

/// Until its last call has ended.
void poll(const Rank& me) {
  ncclResult_t state = ncclInProgress;
  int polls = 0;
  for (; state == ncclInProgress; ++polls) check(ncclCommGetAsyncError(me.comm, &state));
  check(state);
  CHECK(polls > 1);
}

/// The sum of all ranks, by a communicator that does not block.
/// @param begun called when this rank has begun to join
void polled_sum(
    const ncclUniqueId& id, int ranks, int rank, const std::function<void(const Floats&)>& body,
    const std::function<void()>& begun = [] {}) {
  const Rank me = begin_to_join(id, ranks, rank);
  begun();
  poll(me);
  OnDevice<float> own(me.stream, values(rank, kCount));
  const auto sum_up = [&] {
    return ncclAllReduce(own.data, own.data, kCount, ncclFloat32, ncclSum, me.comm, me.stream);
  };
  CHECK(sum_up() == ncclInProgress);
  poll(me);
  body(own.read_back());
  own.free();
  CHECK(ncclCommFinalize(me.comm) == ncclInProgress);
  poll(me);
  check(ncclCommDestroy(me.comm));
  check(cudaStreamDestroy(me.stream));
}

/// Ranks 1, 2, …: `task`, and of the last one `last`.
std::vector<std::unique_ptr<Process>> start_others(const Plan& plan, int ranks,
                                                   const std::string& task, const ncclUniqueId& id,
                                                   const std::string& last) {
  std::vector<std::unique_ptr<Process>> others;
  for (int rank = 1; rank < ranks; ++rank) {
    others.push_back(
        std::make_unique<Process>(plan, ranks, rank, rank == ranks - 1 ? last : task, id));
  }
  return others;
}

const std::vector<Plan> kSome = {{Mode::lazy, 0}, {Mode::eager, 1}, {Mode::random, 3}};

}  // namespace

TEST_CASE("a rank that is a process", "[.]") {
  const char* text = std::getenv("FSDP_RANK_ROLE");
  if (text == nullptr) return;
  Role role{};
  REQUIRE(std::sscanf(text, "%d %d %d %llu %15s %127s", &role.mode, &role.ranks, &role.rank,
                      &role.seed, role.task, role.id.internal) == 6);
  const std::string task = role.task;
  const auto write_out = [](const Floats& numbers) {
    const std::size_t nbytes = numbers.size() * sizeof(float);
    REQUIRE(write(kOut, numbers.data(), nbytes) == static_cast<ssize_t>(nbytes));
  };
  Session session({static_cast<Mode>(role.mode), role.seed});
  if (task == "same") {
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRank(&comm, role.ranks, role.id, role.rank) == ncclInvalidUsage);
    return;
  }
  if (task == "polls") return polled_sum(role.id, role.ranks, role.rank, write_out);
  const Rank me = join(role.id, role.ranks, role.rank);
  if (task == "dies") _exit(0);
  if (task == "waits") {
    OnDevice<float> own(me.stream, values(me.rank, kCount));
    all_reduce(me, own.data, kCount);
    CHECK_THAT(message_of<Misuse>([&] { check(cudaStreamSynchronize(me.stream)); }),
               contains("has lost a process with other ranks, which has ended or failed"));
    return;
  }
  if (task == "other") {
    CHECK_THAT(message_of<Misuse>([&] {
                 OnDevice<float> own(me.stream, values(me.rank, kCount));
                 all_reduce(me, own.data, kCount - 1);
                 check(cudaStreamSynchronize(me.stream));
               }),
               contains("ranks disagree"));
    return;
  }
  const int times = task == "twice" ? 2 : 1;
  for (int i = 0; i < times; ++i) write_out(every_collective(me));
  leave(me);
  check(cudaStreamDestroy(me.stream));
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("collectives between processes give what they give between threads") {
  for (const int ranks : {2, 3, 4}) {
    for (const Plan& plan : kSome) {
      INFO(text_of(plan) << ", " << ranks << " ranks");
      Session session(plan);
      const ncclUniqueId id = new_id();
      const auto others = start_others(plan, ranks, "twice", id, "twice");
      const Rank me = join(id, ranks, 0);
      for (int time = 0; time < 2; ++time) CHECK(every_collective(me) == expected(0, ranks));
      for (int rank = 1; rank < ranks; ++rank) {
        Process& other = *others[static_cast<std::size_t>(rank - 1)];
        const Floats once = expected(rank, ranks);
        CHECK(other.read(2 * once.size()) == concat({once, once}));
      }
      leave(me);
      for (const auto& other : others) CHECK(other->finish() == 0);
      check(cudaStreamDestroy(me.stream));
      CHECK_NOTHROW(session.finish());
    }
  }
}

TEST_CASE("a process runs what another waits for, though nothing here waits for it") {
  Session session({Mode::lazy, 0});
  const ncclUniqueId id = new_id();
  Process other({Mode::lazy, 0}, 2, 1, "all", id);
  const Rank me = join(id, 2, 0);
  OnDevice<float> own(me.stream, values(0, kCount)), whole(me.stream, 2 * kCount);
  OnDevice<float> long_own(me.stream, values(0, 2 * kCount)), part(me.stream, kCount);
  OnDevice<float> sum(me.stream, values(0, kCount)), sent(me.stream, values(0, kCount));
  OnDevice<float> reduced(me.stream, kCount);
  all_gather(me, whole.data, own.data, kCount);
  reduce_scatter(me, part.data, long_own.data, kCount);
  all_reduce(me, sum.data, kCount);
  broadcast(me, sent.data, kCount, 1);
  reduce(me, reduced.data, own.data, kCount, 0);
  CHECK(other.read(expected(1, 2).size()) == expected(1, 2));  // it has ended all of its own
  leave(me);
  CHECK(other.finish() == 0);
  for (auto* each : {&own, &whole, &long_own, &part, &sum, &sent, &reduced}) each->free();
  check(cudaStreamDestroy(me.stream));
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("processes that disagree about a collective are told on both sides") {
  for (const Plan& plan : kSome) {
    INFO(text_of(plan));
    Session session(plan);
    const ncclUniqueId id = new_id();
    Process other(plan, 2, 1, "other", id);
    const std::string message = message_of<Misuse>([&] {
      const Rank me = join(id, 2, 0);
      OnDevice<float> own(me.stream, values(0, kCount));
      all_reduce(me, own.data, kCount);
      check(cudaStreamSynchronize(me.stream));
    });
    CHECK_THAT(message, contains("ranks disagree: rank 0 calls ncclAllReduce of 5 elements") &&
                            contains("rank 1 calls ncclAllReduce of 4 elements"));
    CHECK(other.finish() == 0);
  }
}

TEST_CASE("a communicator that does not block says when it goes on") {
  for (const Plan& plan : kSome) {
    INFO(text_of(plan));
    Session session(plan);
    const ncclUniqueId id = new_id();
    std::vector<std::unique_ptr<Process>> others;
    polled_sum(
        id, 3, 0, [](const Floats& found) { CHECK(found == sums(3, kCount)); },
        [&] { others = start_others(plan, 3, "polls", id, "polls"); });
    for (const auto& other : others) {
      CHECK(other->read(kCount) == sums(3, kCount));
      CHECK(other->finish() == 0);
    }
    CHECK_NOTHROW(session.finish());
  }
}

TEST_CASE("nothing can be called while a communicator is in progress") {
  Session session({Mode::lazy, 0});
  const Rank me = begin_to_join(new_id(), 1, 0);
  OnDevice<float> own(me.stream, values(0, kCount));
  CHECK_THAT(message_of<Misuse>([&] { all_reduce(me, own.data, kCount); }),
             contains("ncclAllReduce of 5 elements") && contains("the call before is in progress"));
}

TEST_CASE("a communicator that does not block is finalized before it is destroyed") {
  const auto message_after = [](const std::function<void(const Rank&)>& body) {
    Session session({Mode::lazy, 0});
    const Rank me = begin_to_join(new_id(), 1, 0);
    poll(me);
    return message_of<Misuse>([&] { body(me); });
  };
  CHECK_THAT(message_after([](const Rank& me) { ncclCommDestroy(me.comm); }),
             contains("ncclCommDestroy by rank 0, whose communicator does not block: without "
                      "ncclCommFinalize before it"));
  CHECK_THAT(message_after([](const Rank& me) {
               ncclCommFinalize(me.comm);
               ncclCommDestroy(me.comm);
             }),
             contains("ncclCommDestroy by rank 0: the call before is in progress"));
  CHECK_THAT(message_after([](const Rank& me) {
               OnDevice<float> own(me.stream, values(0, kCount));
               ncclAllReduce(own.data, own.data, kCount, ncclFloat32, ncclSum, me.comm, me.stream);
               poll(me);
               ncclCommFinalize(me.comm);
             }),
             contains("ncclCommFinalize by rank 0, 1 of whose collectives have not run"));
}

TEST_CASE("a process that ends breaks the communicator for the others") {
  for (const int ranks : {2, 3}) {
    Session session({Mode::lazy, 0});
    const ncclUniqueId id = new_id();
    const auto others = start_others({Mode::lazy, 0}, ranks, "waits", id, "dies");
    const Rank me = join(id, ranks, 0);
    for (const auto& other : others) CHECK(other->finish() == 0);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) check(ncclCommGetAsyncError(me.comm, &state));
    CHECK(state == ncclRemoteError);
    check(ncclCommAbort(me.comm));
    check(cudaStreamDestroy(me.stream));
    CHECK_NOTHROW(session.finish());
  }
}

TEST_CASE("a rank that fails takes those of other processes with it") {
  for (const Plan& plan : kSome) {
    Session session(plan);
    const ncclUniqueId id = new_id();
    const auto others = start_others(plan, 3, "waits", id, "waits");
    join(id, 3, 0);
    CHECK_THROWS_AS(cudaFree(&session), Misuse);
    for (const auto& other : others) CHECK(other->finish() == 0);
  }
}

TEST_CASE("two processes cannot be on one device") {
  Session session({Mode::lazy, 0});
  const ncclUniqueId id = new_id();
  const auto others = start_others({Mode::lazy, 0}, 3, "same", id, "same");
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 3, id, 0) == ncclInvalidUsage);
  for (const auto& other : others) CHECK(other->finish() == 0);
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("a process that has ended cannot be joined") {
  Session session({Mode::lazy, 0});
  ncclUniqueId id{};
  std::strcpy(id.internal, "unshard-nccl-0-1");
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, id, 1) == ncclRemoteError);
  CHECK_NOTHROW(session.finish());
}
