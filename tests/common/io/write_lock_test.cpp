// Two processes that write one folder at the same time: the second gets an error, whenever it
// comes, and neither finds anything of the other in what it publishes.
#include "io/write_lock.h"

#include "base/check.h"
#include "io/file_io.h"
#include "io/output_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

// Two files that both say who wrote them: a mix would show.
void publish_pair(const fs::path& folder, const std::string& content) {
  const fs::path temporary = begin_folder(folder);
  for (const char* name : {"a", "b"}) {
    File file = File::create(temporary / name);
    file.write(std::as_bytes(std::span(content)));
    file.sync();
  }
  publish_folder(temporary, folder);
}

std::string pair_in(const fs::path& folder) {
  const std::string a = read_text(folder / "a");
  const std::string b = read_text(folder / "b");
  return a == b ? a : "a mix of " + a + " and " + b;
}

/// A process that pauses before file-system step `step` of `body`, until it is told to go on.
class PausedProcess : private FileStepObserver {
 public:
  PausedProcess(int step, const std::function<void()>& body) : left_(step) {
    REQUIRE(::pipe(paused_) == 0);
    REQUIRE(::pipe(go_on_) == 0);
    process_ = ::fork();
    if (process_ == 0) run(body);
    ::close(paused_[1]);
    char byte = 0;
    is_paused_ = ::read(paused_[0], &byte, 1) == 1;
  }
  ~PausedProcess() override {
    if (process_ > 0) finish();
  }
  /// False if `body` has ended before, in fewer steps.
  bool is_paused() const { return is_paused_; }
  void kill() const { ::kill(process_, SIGKILL); }
  /// Lets it go on. @return its exit code: 0, or 1 if `body` threw; -1 if it was killed
  int finish() {
    if (is_paused_) REQUIRE(::write(go_on_[1], "g", 1) == 1);
    for (const int end : {paused_[0], go_on_[0], go_on_[1]}) ::close(end);
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  [[noreturn]] void run(const std::function<void()>& body) {
    ::close(paused_[0]);
    ::close(go_on_[1]);
    try {
      const FileStepScope scope(*this);
      body();
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);  // no destructors: they belong to the parent
  }
  void before_step(const std::string&) override {
    if (left_-- != 0) return;
    char byte = 'p';
    if (::write(paused_[1], &byte, 1) == 1) (void)!::read(go_on_[0], &byte, 1);
  }

  int left_;
  int paused_[2] = {}, go_on_[2] = {};
  pid_t process_ = -1;
  bool is_paused_ = false;
};

}  // namespace

TEST_CASE("of two processes that write one folder one is refused", "[output]") {
  int refused = 0;
  for (int step = 0;; ++step) {
    const TemporaryFolder home;
    const fs::path folder = home / "model";
    publish_pair(folder, "before");
    PausedProcess other(step, [&] { publish_pair(folder, "the other"); });
    INFO("the other waits before step " << step);
    const bool is_end = !other.is_paused();
    const std::string message = message_of<InputError>([&] { publish_pair(folder, "mine"); });
    if (!message.empty()) {
      ++refused;
      CHECK_THAT(message, contains(folder.string() + ": is being written by another process"));
    }
    CHECK(other.finish() == 0);
    CHECK(pair_in(folder) == (is_end ? "mine" : "the other"));
    publish_pair(folder, "after");  // neither is in the way of the next
    CHECK(pair_in(folder) == "after");
    CHECK_FALSE(fs::exists(home / "model.tmp"));
    CHECK_FALSE(fs::exists(home / "model.old"));
    if (is_end) break;
  }
  CHECK(refused >= 15);
}

TEST_CASE("a process that dies leaves no lock", "[output]") {
  const TemporaryFolder home;
  const fs::path folder = home / "model";
  PausedProcess other(3, [&] { publish_pair(folder, "the other"); });
  REQUIRE(other.is_paused());
  clear_temporary(folder);
  CHECK(fs::exists(home / "model.tmp"));  // not ours as long as it lives
  other.kill();
  CHECK(other.finish() == -1);
  publish_pair(folder, "mine");
  CHECK(pair_in(folder) == "mine");
}

TEST_CASE("a claim keeps other processes out until it ends", "[output]") {
  const TemporaryFolder home;
  const fs::path folder = home / "model";
  const auto body = [&] { publish_pair(folder, "the other"); };
  PausedProcess during(0, body);
  PausedProcess after(0, body);  // a process inherits locks: both begin before the claim
  {
    const FolderClaim claim(folder);
    CHECK(during.finish() == 1);
    publish_pair(folder, "mine");  // its own process may
    CHECK(pair_in(folder) == "mine");
  }
  CHECK(after.finish() == 0);
  CHECK(pair_in(folder) == "the other");
}

TEST_CASE("a lock belongs to the folder that has the name now", "[output]") {
  const TemporaryFolder home;
  REQUIRE(lock_for_writing(home / "a"));
  CHECK(lock_for_writing(home / "a"));
  CHECK(is_locked_for_writing(home / "a"));
  rename_path(home / "a", home / "b");
  CHECK(is_locked_for_writing(home / "b"));
  CHECK_FALSE(is_locked_for_writing(home / "a"));
  unlock_for_writing(home / "a");
  CHECK_FALSE(is_locked_for_writing(home / "b"));
}

}  // namespace fsdp::io
