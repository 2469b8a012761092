// Too few threads, too little address space: an error, with everything shut down that had begun.
#include "comm/world.h"
#include "support/catch.h"
#include "tensor/ops.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

namespace fsdp::faults {
namespace {

const std::string kSkipped = "skipped";

/// What `body` returns in a child process, which `limit` has limited. The child dies with us: one
/// that hangs is seen by ctest, and is gone.
std::string in_child(const std::function<bool()>& limit, const std::function<std::string()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    std::string said;
    try {
      said = limit() ? body() : kSkipped;
    } catch (const std::exception& error) {
      said = error.what();
    }
    const bool written = write(ends[1], said.data(), said.size()) >= 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  return said;
}

auto threads_alive() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// At most `more` threads besides the one there is. Root has no such limit: it becomes a user of
/// its own, who has no other process (jails use 40,000 and up). The sanitizers start threads of
/// their own, and not all of them before this.
bool limit_threads(int more) {
  if (FSDP_SANITIZED) return false;
  const auto count = static_cast<rlim_t>(threads_alive() + more);
  const auto user = static_cast<uid_t>(20'000 + getpid() % 20'000);
  if (geteuid() != 0 || setuid(user) != 0) return false;
  const rlimit threads{count, count};
  return setrlimit(RLIMIT_NPROC, &threads) == 0;
}

/// `extra` more bytes of address space. The sanitizers need terabytes.
bool limit_memory(std::size_t extra) {
  if (FSDP_SANITIZED) return false;
  mallopt(M_ARENA_MAX, 1);  // an arena takes 64 MiB for each thread, if it can
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t nbytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + extra;
  const rlimit memory{nbytes, nbytes};
  return setrlimit(RLIMIT_AS, &memory) == 0;
}

bool is_skipped(const std::string& said) {
  if (said != kSkipped) return false;
  std::cout << "skipped: this limit cannot be set here (not root, or under a sanitizer)\n";
  return true;
}

/// What run_ranks throws ("" = nothing), and how many ranks had begun.
std::string run(const RankOptions& options, const std::function<void()>& body) {
  std::atomic<int> begun = 0;
  const std::string error = message_of<Error>([&] {
    run_ranks(options, [&](ProcessGroup& group) {
      ++begun;
      body();
      group.barrier({}).wait();
    });
  });
  return fmt::format("{} ranks have begun: {}", begun.load(), error);
}

int communication_threads(int world_size) {
  return std::min(world_size, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

}  // namespace

TEST_CASE("limits: a world that gets too few threads never begins") {
  const int ranks = 4;
  const int helpers = communication_threads(ranks);
  for (int had = 0; had <= helpers + ranks; ++had) {
    const std::string said = in_child([&] { return limit_threads(had); },
                                      [&] { return run({.world_size = ranks}, [] {}); });
    if (is_skipped(said)) return;
    CAPTURE(had, said);
    if (had == helpers + ranks) {
      CHECK(said == "4 ranks have begun: ");
    } else if (had < helpers) {
      CHECK_THAT(said, contains(fmt::format("0 ranks have begun: the system started only {} of {} "
                                            "communication threads of a world of 4 ranks",
                                            had, helpers)));
    } else {
      CHECK_THAT(said, contains(fmt::format("0 ranks have begun: the system started only {} of 4 "
                                            "rank threads",
                                            had - helpers)));
    }
    if (had < helpers + ranks) {
      CHECK_THAT(said, contains("Use fewer ranks"));
      CHECK_THAT(said, contains("`ulimit -u`"));
    }
  }
}

TEST_CASE("limits: a rank that gets too few threads for its kernels") {
  const int helpers = communication_threads(2);
  for (const int had : {0, 1, 2, 3}) {
    const std::string said = in_child([&] { return limit_threads(helpers + 2 + had); },
                                      [&] {
                                        return run({.world_size = 2, .threads_per_rank = 3},
                                                   [] { Context::current().pool(); });
                                      });
    if (is_skipped(said)) return;
    CAPTURE(had, said);
    CHECK_THAT(said, contains("2 ranks have begun: rank "));
    CHECK_THAT(said, contains(" of 2 compute threads (a pool of 3)"));
    CHECK_THAT(said, contains("Lower threads_per_rank"));
  }
}

TEST_CASE("limits: no room for the stacks of 64 ranks") {
  const std::string said = in_child([] { return limit_memory(4 * kMiB); },
                                    [] { return run({.world_size = 64}, [] {}); });
  if (is_skipped(said)) return;
  CHECK_THAT(said, contains("0 ranks have begun: the system started only "));
  CHECK_THAT(said, contains("`ulimit -v`"));
}

TEST_CASE("limits: a matrix product reserves no address space of its own") {
  const auto multiply = [] {
    const Tensor a = Tensor::zeros({256, 256});
    ops::matmul(Tensor::empty({256, 256}), a, ops::Transpose::no, a, ops::Transpose::no);
  };
  const std::string said =
      in_child([] { return limit_memory(100 * kMiB); },  // half of it for the stacks of threads
               [&] { return run({.world_size = 2}, multiply); });
  if (is_skipped(said)) return;
  CHECK(said == "2 ranks have begun: ");
}

TEST_CASE("limits: loading the library starts no thread") {
  if (FSDP_SANITIZED) return;   // a sanitizer has threads of its own
  CHECK(threads_alive() == 1);  // here: a child begins with one in any case
}

}  // namespace fsdp::faults
