// A jail that is started once: what it answers is what a judge hears of a run, also when it dies.
#include "graded/child.h"
#include "support/catch.h"

#include <pthread.h>
#include <sys/wait.h>

#include <csignal>
#include <string>
#include <vector>

namespace fsdp::graded {
namespace {

/// Plays a jail. It does not start the command: the command's first word is what it answers, or
/// "die", "leave" or "sleep". What it reads as the input, with its process id before, are the
/// observations.
const std::vector<std::string> kPretends{"python3", "-c", R"(
import os, signal, socket
line = socket.socket(fileno=0)
while True:
    words, handles, _, _ = socket.recv_fds(line, 1 << 16, 3)
    if not words:
        break
    given, printed, observations = handles
    with os.fdopen(given, "rb") as input, open(f"/proc/self/fd/{observations}", "wb") as seen:
        seen.write(b"%d %s" % (os.getpid(), input.read()))
    os.write(printed, words.replace(b"\0", b"+"))
    for each in (printed, observations):
        os.close(each)
    first = words.split(b"\0")[0]
    if first == b"die":
        os.write(2, b"dies")
        os._exit(3)
    if first == b"leave":
        os._exit(0)
    if first == b"sleep":
        signal.pause()
    line.send(first)
)"};

std::string text(const ChildResult& result) {
  return {result.observations.begin(), result.observations.end()};
}

}  // namespace

TEST_CASE("a jail that stays runs one command after another", "[judge]") {
  ResidentJail jail(kPretends);
  const ChildResult first = run_child({"0 0.5", "--case"}, "of one", 20, &jail);
  CHECK(first.exit_code == 0);
  CHECK(first.signal == 0);
  CHECK(first.used_seconds == 0.5);
  CHECK(first.errors == "0 0.5+--case");
  CHECK_THAT(text(first), contains(" of one"));
  const ChildResult second = run_child({"-11 2"}, "of two", 20, &jail);
  CHECK(second.exit_code == -1);
  CHECK(second.signal == SIGSEGV);
  CHECK_THAT(text(second), contains(" of two"));
  const std::string pid = text(first).substr(0, text(first).find(' '));
  CHECK(text(second).substr(0, text(second).find(' ')) == pid);
}

TEST_CASE("a jail that dies or does not answer is started anew", "[judge]") {
  ResidentJail jail(kPretends);
  const ChildResult died = run_child({"die"}, "", 20, &jail);
  CHECK(died.exit_code == 3);
  CHECK_FALSE(died.timed_out);
  CHECK(died.errors == "diedies");  // what it printed for the command, and by itself
  const ChildResult left = run_child({"leave"}, "", 20, &jail);
  CHECK((left.exit_code != 0 && left.signal == SIGKILL));
  CHECK(run_child({"0 0"}, "", 20, &jail).exit_code == 0);
  const ChildResult slept = run_child({"sleep"}, "", 0, &jail);
  CHECK(slept.timed_out);
  CHECK(slept.signal == SIGKILL);
  CHECK(run_child({"7 0"}, "", 20, &jail).exit_code == 7);
}

TEST_CASE("a jail that cannot be started is a run that ended with its exit code", "[judge]") {
  static bool ends_first = false;  // whether fork() returns only when the child has ended
  const auto wait_for_end = [] {
    siginfo_t ended{};
    if (ends_first) waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
  };
  REQUIRE(pthread_atfork(nullptr, wait_for_end, nullptr) == 0);
  for (const bool is_first : {false, true}) {
    ends_first = is_first;
    ResidentJail absent({"/nonexistent/jail"});
    const ChildResult result = run_child({"0 0"}, "", 20, &absent);
    ends_first = false;
    CHECK(result.exit_code == 127);
    CHECK_FALSE(result.timed_out);
  }
}

}  // namespace fsdp::graded
