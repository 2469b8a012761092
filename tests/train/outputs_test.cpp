// Everything a run will write is tried before its first step, and nothing of a user's is replaced.
#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/trainer.h"

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

struct Attempt {
  std::string message;
  int steps = 0;
};

Attempt attempt(RunOptions options, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"--model.preset=nano", "--model.vocab_size=128",
                                  "--training.local_batch_size=1", "--training.steps=2",
                                  "--optimizer.lr=1e-2"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  Attempt done;
  options.on_step = [&](const StepReport&) { ++done.steps; };
  const config::TrainConfig config = config::load_config(std::nullopt, all);
  const TokenData data = TokenData::from_text(std::string(400, 'x'), "a text", 128);
  done.message = message_of<InputError>([&] { run_training(config, data, options); });
  return done;
}

void check_refused(const Attempt& attempt, const std::string& option, const std::string& part) {
  CHECK(attempt.steps == 0);
  CHECK_THAT(attempt.message, contains(option + ": ") && contains(part));
}

void write(const fs::path& file) {
  fs::create_directories(file.parent_path());
  io::write_text_atomically(file, "years");
}

}  // namespace

TEST_CASE("a folder with a user's file in it is not exported to", "[train][output]") {
  const TemporaryFolder home;
  write(home / "mine" / "thesis.tex");
  RunOptions options;
  options.export_folder = home / "mine";
  check_refused(attempt(options), "--export", "mine: holds thesis.tex");
  check_refused(attempt(options, {"--parallel.strategy=fsdp", "--parallel.ranks=2"}), "--export",
                "mine: holds thesis.tex");
  CHECK(io::read_text(home / "mine" / "thesis.tex") == "years");
  write(home / "new.tmp" / "thesis.tex");
  options.export_folder = home / "new";
  check_refused(attempt(options), "--export", "new.tmp: is in the way");
  options.export_folder = home / "mine" / "thesis.tex";
  check_refused(attempt(options), "--export", "is not a folder");
  options.export_folder = "/proc/model";
  check_refused(attempt(options), "--export", "/proc/model.tmp: cannot make this folder");

  for (const std::string& name : {std::string("model"), std::string("model/")}) {
    options.export_folder = home / name;
    CHECK(attempt(options).message.empty());
    CHECK(fs::exists(home / "model" / "config.json"));
  }
  write(home / "model" / "notes.txt");
  check_refused(attempt(options), "--export", "model: holds notes.txt");
}

TEST_CASE("the planned files are tried before the first step, too", "[train][output]") {
  const TemporaryFolder home;
  RunOptions options;
  options.planned_files = {{"--summary", home / "summary.json"},
                           {"--picture", home / "picture" / "timeline.html"},
                           {"--picture", home / "picture" / "trace.json"}};
  CHECK(attempt(options).steps == 2);
  write(home / "picture" / "trace.json");
  check_refused(attempt(options), "--picture", "trace.json: already exists");
  fs::remove(home / "picture" / "trace.json");
  write(home / "summary.json");
  check_refused(attempt(options), "--summary", "summary.json: already exists");
  options.planned_files = {{"--summary", "/proc/none/summary.json"}};
  check_refused(attempt(options), "--summary", "/proc/none: cannot make this folder");
}

TEST_CASE("nothing else is written into a folder that is replaced", "[train][output]") {
  const TemporaryFolder home;
  RunOptions options;
  options.export_folder = home / "model";
  const std::vector<std::string> there = {"--checkpoint.folder=" + (home / "model").string()};
  check_refused(attempt(options, there), "--export", "and checkpoint.folder");
  options.planned_files = {{"--summary", home / "model/summary.json"}};
  check_refused(attempt(options), "--export", "and --summary");
  options.planned_files = {{"--picture", home / "model/deep/down/trace.json"}};
  check_refused(attempt(options), "--export", "and --picture");
}

TEST_CASE("a checkpoint that will be written finds its place free", "[train][output]") {
  const TemporaryFolder home;
  const std::vector<std::string> there = {"--checkpoint.folder=" + home.path().string(),
                                          "--checkpoint.interval=2", "--training.steps=5"};
  const auto refused = [&](const std::string& name) {
    write(home / name / "thesis.tex");
    check_refused(attempt({}, there), "checkpoint.folder", name);
    CHECK(io::read_text(home / name / "thesis.tex") == "years");
    fs::remove_all(home / name);
  };
  refused("step_4");
  refused("step_5");
  refused("step_2.tmp");
  refused("step_5.old");
  write(home / "step_3" / "thesis.tex");  // will not be written
  write(home / "step_6" / "thesis.tex");
  CHECK(attempt({}, there).steps == 5);
  CHECK(io::read_text(home / "step_3" / "thesis.tex") == "years");
}

TEST_CASE("two runs do not share a checkpoint folder", "[train][output]") {
  const TemporaryFolder home;
  const std::vector<std::string> there = {"--checkpoint.folder=" + home.path().string()};
  {
    const io::FolderLock other(home.path());
    check_refused(attempt({}, there), "checkpoint.folder", "is in use by another training");
  }
  CHECK(attempt({}, there).steps == 2);
}

}  // namespace fsdp::train
