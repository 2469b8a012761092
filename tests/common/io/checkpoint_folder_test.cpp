// Checkpoints that survive a kill at every step of saving them.
#include "io/checkpoint_folder.h"

#include "base/check.h"
#include "support/catch.h"
#include "support/killed.h"
#include "support/temporary_folder.h"

#include <fstream>
#include <string>
#include <vector>

namespace fsdp::io {
namespace {

using testing::run_killed;
using testing::TemporaryFolder;

// A checkpoint of two files that both say which one it is: a mix would show.
void save(const CheckpointFolder& folder, std::int64_t step, const std::string& content) {
  folder.begin(step);
  for (const char* name : {"a", "b"}) {
    File file = File::create(folder.temporary(step) / name);
    const std::string half = content.substr(0, content.size() / 2);
    file.write(std::as_bytes(std::span(half)));
    file.write(std::as_bytes(std::span(content).subspan(half.size())));
    file.sync();
  }
  folder.publish(step);
}

// What a run that starts now would load; "" if it would start anew.
std::string loadable(const CheckpointFolder& folder) {
  const auto latest = folder.latest();
  if (!latest) return "";
  const std::string a = read_text(*latest / "a");
  const std::string b = read_text(*latest / "b");
  return a == b ? a : "a mix of " + a + " and " + b;
}

void check_no_rubbish(const TemporaryFolder& root) {
  for (const auto& entry : std::filesystem::directory_iterator(root.path())) {
    const std::string extension = entry.path().extension().string();
    CHECK_FALSE((extension == ".tmp" || extension == ".old"));
  }
}

class Recorder : public FileStepObserver {
 public:
  explicit Recorder(std::string root) : root_(std::move(root)) {}
  void before_step(const std::string& what) override {
    std::string shorter = what;
    for (std::size_t at; (at = shorter.find(root_)) != std::string::npos;) {
      shorter.replace(at, root_.size(), ".");
    }
    steps.push_back(shorter);
  }
  std::vector<std::string> steps;

 private:
  std::string root_;
};

}  // namespace

TEST_CASE("a checkpoint is synced before it is renamed, and renamed before it is latest",
          "[checkpoint]") {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.path());
  Recorder recorder(root.path().string());
  {
    const FileStepScope scope(recorder);
    save(folder, 3, "three");
  }
  CHECK(recorder.steps ==
        std::vector<std::string>{"create .",
                                 "create ./step_3.tmp",  //
                                 "create ./step_3.tmp/.unshard",
                                 "write ./step_3.tmp/.unshard",  //
                                 "create ./step_3.tmp/a",
                                 "write ./step_3.tmp/a",
                                 "write ./step_3.tmp/a",  //
                                 "sync ./step_3.tmp/a",   //
                                 "create ./step_3.tmp/b",
                                 "write ./step_3.tmp/b",
                                 "write ./step_3.tmp/b",  //
                                 "sync ./step_3.tmp/b",   //
                                 "create ./step_3.tmp/.unshard.tmp",
                                 "write ./step_3.tmp/.unshard.tmp",                         //
                                 "sync ./step_3.tmp/.unshard.tmp",                          //
                                 "rename ./step_3.tmp/.unshard.tmp ./step_3.tmp/.unshard",  //
                                 "sync ./step_3.tmp",
                                 "rename ./step_3.tmp ./step_3",
                                 "sync .",  //
                                 "create ./latest.tmp",
                                 "write ./latest.tmp",
                                 "sync ./latest.tmp",  //
                                 "rename ./latest.tmp ./latest",
                                 "sync ."});
  CHECK(loadable(folder) == "three");
}

TEST_CASE("kill -9 at any step of saving leaves a loadable checkpoint", "[checkpoint]") {
  int kills = 0;
  for (int last = 0;; ++last) {
    const TemporaryFolder root;
    const CheckpointFolder folder(root.path());
    save(folder, 1, "one");
    const bool killed = run_killed(last, [&] { save(folder, 2, "two!"); });
    const std::string found = loadable(folder);
    INFO("killed before step " << last);
    CHECK((found == "one" || found == "two!"));
    // The next run saves as if nothing had happened, and leaves no rubbish.
    save(folder, 2, "again");
    CHECK(loadable(folder) == "again");
    save(folder, 3, "three");
    CHECK(loadable(folder) == "three");
    check_no_rubbish(root);
    if (!killed) {
      CHECK(found == "two!");
      break;
    }
    ++kills;
  }
  CHECK(kills >= 17);
}

TEST_CASE("kill -9 while a checkpoint is replaced by one of the same step", "[checkpoint]") {
  for (int last = 0;; ++last) {
    const TemporaryFolder root;
    const CheckpointFolder folder(root.path());
    save(folder, 1, "first");
    const bool killed = run_killed(last, [&] { save(folder, 1, "second"); });
    const std::string found = loadable(folder);
    INFO("killed before step " << last);
    CHECK((found == "first" || found == "second"));
    save(folder, 1, "third");
    CHECK(loadable(folder) == "third");
    check_no_rubbish(root);
    if (!killed) {
      CHECK(found == "second");
      break;
    }
  }
}

TEST_CASE("the very first save may be killed too", "[checkpoint]") {
  for (int last = 0;; ++last) {
    const TemporaryFolder root;
    const CheckpointFolder folder(root / "new");
    const bool killed = run_killed(last, [&] { save(folder, 1, "first"); });
    const std::string found = loadable(folder);
    INFO("killed before step " << last);
    CHECK((found.empty() || found == "first"));
    if (!killed) break;
  }
}

TEST_CASE("what a checkpoint folder holds besides checkpoints stays", "[checkpoint]") {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.path());
  write_text_atomically(root / "notes.txt", "mine");
  for (const char* name : {"step_1.tmp", "step_2.old", "step_3", "step_me.tmp"}) {
    std::filesystem::create_directory(root / name);
    write_text_atomically(root / name / "thesis.tex", "mine");
  }
  save(folder, 4, "four");
  const auto refused = [&](std::int64_t step, const std::string& part) {
    CHECK_THAT(message_of<InputError>([&] { folder.begin(step); }), contains(part));
  };
  refused(1, "step_1.tmp: is in the way");
  refused(2, "step_2.old: is in the way");
  refused(3, "step_3: holds thesis.tex");
  CHECK(read_text(root / "notes.txt") == "mine");
  for (const char* name : {"step_1.tmp", "step_2.old", "step_3", "step_me.tmp"}) {
    CHECK(read_text(root / name / "thesis.tex") == "mine");
  }
  write_text_atomically(root / "latest.tmp", "mine");
  refused(5, "latest.tmp: already exists");
  CHECK(loadable(folder) == "four");
}

TEST_CASE("a folder of checkpoints belongs to one process at a time", "[checkpoint]") {
  const TemporaryFolder root;
  {
    const FolderLock lock(root / "runs");
    CHECK_THAT(message_of<InputError>([&] { const FolderLock second(root / "runs"); }),
               contains((root / "runs").string()) && contains("is in use by another training"));
    const FolderLock elsewhere(root / "other");
  }
  // The kernel releases the lock of a process that dies.
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(root / "runs");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  const FolderLock again(root / "runs");
  std::ofstream(root / "file") << "in the way";
  CHECK_THAT(message_of<Error>([&] { const FolderLock lock(root / "file"); }),
             contains((root / "file").string()));
}

TEST_CASE("latest that names nothing says so", "[checkpoint]") {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.path());
  CHECK_FALSE(folder.latest().has_value());
  for (const char* name : {"step_7\n", "../elsewhere\n", "\n", ".\n"}) {
    write_text_atomically(root / "latest", name);
    CHECK_THAT(message_of<InputError>([&] { folder.latest(); }),
               contains((root / "latest").string()) && contains("step_N"));
  }
  CHECK_THROWS_AS(folder.begin(-1), Error);
}

TEST_CASE("a folder that cannot be made is an error that names it", "[checkpoint]") {
  const TemporaryFolder root;
  std::ofstream(root / "file") << "in the way";
  CHECK_THAT(message_of<Error>([&] { CheckpointFolder(root / "file").begin(1); }),
             contains((root / "file").string()));
  CHECK_THAT(message_of<Error>([&] { sync_to_disk(root / "none"); }), contains("none"));
  CHECK_THAT(message_of<Error>([&] { write_text_atomically(root / "no" / "file", "x"); }),
             contains("cannot be written"));
}

}  // namespace fsdp::io
