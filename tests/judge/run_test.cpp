// How a judge ends the runs of a runner that does not end by itself, and what of a run counts.
#include "graded/run.h"
#include "base/check.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace fsdp::graded {
namespace {

/// Makes a shell script the runner that the judge watches.
void set_runner(const testing::TemporaryFolder& folder, const std::string& script) {
  const std::filesystem::path runner = folder / "runner";
  std::ofstream(runner) << "#!/bin/sh\n" << script;
  std::filesystem::permissions(runner, std::filesystem::perms::owner_all);
  setenv("FSDP_RUNNER", runner.c_str(), 1);
}

std::string failure_of(const char* scenario, const Setup& setup = {}) {
  return message_of<Error>([&] { (void)run(scenario, setup); });
}

/// A whole report of one rank: what it is made of stands in runner.cpp.
const char* const kReports = R"(
nonce=$(head -c 32) case=$(cat)
report() {
  printf 'R\000\000\000\245enonce\170\040%seranks\201\240gfailure\366' "$nonce"
  printf 'ncontradictions\201`etodos\200'
}
)";

}  // namespace

TEST_CASE("after as many hangs as are allowed no run is started", "[judge]") {
  const testing::TemporaryFolder folder;
  // Dies as a loop does that has used up its processor time, and counts how often it was started.
  set_runner(folder, "echo >> '" + (folder / "starts").string() + "'\nkill -XCPU $$\n");
  setenv("FSDP_MOST_HANGS", "2", 1);
  CHECK_THAT(failure_of("one"), contains("did not end"));
  CHECK_THAT(failure_of("two"), contains("did not end"));
  CHECK_THAT(failure_of("three"), contains("not run, because 2 runs before it did not end"));
  CHECK(std::filesystem::file_size(folder / "starts") == 2);
  unsetenv("FSDP_MOST_HANGS");
}

TEST_CASE("what ended a run that did not end is said", "[judge]") {
  const testing::TemporaryFolder folder;
  set_runner(folder, "case $(cat) in *killed*) kill -KILL $$;; *) while :; do :; done;; esac\n");
  setenv("FSDP_SECONDS", "1", 1);
  const std::string loops = failure_of("loops"), killed = failure_of("killed");
  unsetenv("FSDP_SECONDS");
  CHECK_THAT(loops, contains("stopped after 1 s of processor time. A rank is in an endless loop"));
  CHECK_THAT(killed, contains("s of processor time, as it does when its memory runs out"));
}

TEST_CASE("a report counts only if the run then ends by itself, with exit code 0", "[judge]") {
  const testing::TemporaryFolder folder;
  set_runner(folder, std::string(kReports) + R"(
report > /proc/self/fd/3
case $case in *'"leaves"'*) exit 3;; *'"crashes"'*) kill -SEGV $$;; esac
)");
  CHECK(run("reports", {}).world_size() == 1);
  CHECK_THAT(failure_of("leaves"), contains("ended early, with exit code 3."));
  CHECK_THAT(failure_of("crashes"), contains("crashed: Segmentation fault"));
}

TEST_CASE("the descriptor of the observations can be neither written nor read", "[judge]") {
  const testing::TemporaryFolder folder;
  set_runner(folder, std::string(kReports) + "report >&3; cat <&3; exit 0\n");
  CHECK_THAT(failure_of("writes"), contains("with exit code 0 and without its observations"));
}

TEST_CASE("a report of another run does not count", "[judge]") {
  const testing::TemporaryFolder folder;
  set_runner(folder, std::string(kReports) + R"(
nonce=0123456789abcdef0123456789abcdef
report > /proc/self/fd/3
)");
  CHECK_THAT(failure_of("recorded"), contains("what came back does not belong to this run"));
}

TEST_CASE("a salt is added to the seed of a run", "[judge]") {
  const testing::TemporaryFolder folder;
  set_runner(folder, std::string(kReports) + "printf %s \"$case\" > '" +
                         (folder / "case").string() + "'\nreport > /proc/self/fd/3\n");
  setenv("FSDP_SALT", "41", 1);
  CHECK(salted(7) == 48);
  CHECK(run("salted", {.seed = 7}).asked().seed == 48);
  unsetenv("FSDP_SALT");
  std::ifstream in(folder / "case");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  CHECK_THAT(text, contains("\"seed\":48"));
  CHECK(salted(7) == 7);
}

}  // namespace fsdp::graded
