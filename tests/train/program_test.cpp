// The program as a script sees it: exit codes, what is printed where, and what is left behind.
#include "program/program.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include "train/program.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

using testing::Child;
using testing::contents;
using testing::Finished;
using testing::run_command;
using testing::TemporaryFolder;

Finished unshard_train(const TemporaryFolder& folder, const std::string& arguments) {
  return run_command(folder, "'" FSDP_TRAIN_PROGRAM "' " + arguments);
}

std::string short_run(const TemporaryFolder& folder) {
  io::write_text_atomically(folder / "text.txt", std::string(400, 'a') + "bcd");
  return "--model.preset=nano --model.vocab_size=128 --training.local_batch_size=1 "
         "--training.steps=2 --data.path='" +
         (folder / "text.txt").string() + "' ";
}

// The words of a training that would go on for a long time, with a checkpoint folder.
std::vector<std::string> long_run(const TemporaryFolder& folder, const std::string& strategy,
                                  int ranks) {
  short_run(folder);
  return {FSDP_TRAIN_PROGRAM,
          "--model.preset=nano",
          "--model.vocab_size=128",
          "--training.local_batch_size=1",
          "--training.steps=100000000",
          "--data.path=" + (folder / "text.txt").string(),
          "--checkpoint.folder=" + (folder / "checkpoints").string(),
          "--parallel.strategy=" + strategy,
          "--parallel.ranks=" + std::to_string(ranks)};
}

std::int64_t last_saved(const TemporaryFolder& folder) {
  const std::string name = contents(folder / "checkpoints" / "latest");
  REQUIRE(name.starts_with("step_"));
  return std::stoll(name.substr(5));
}

}  // namespace

TEST_CASE("a run that succeeds exits with 0 and writes its summary", "[train][program]") {
  const TemporaryFolder folder;
  const Finished run = unshard_train(
      folder, short_run(folder) + "--summary '" + (folder / "summary.json").string() + "'");
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.err.empty());
  CHECK_THAT(run.out, contains("step 2/2"));
  CHECK_THAT(contents(folder / "summary.json"), contains("param_sha256"));
}

TEST_CASE("what the user got wrong exits with 2, on the error stream", "[train][program]") {
  const TemporaryFolder folder;
  const std::string good = short_run(folder);
  const auto refused = [&](const std::string& wrong, const std::string& message) {
    INFO(wrong);
    const Finished run = unshard_train(folder, good + wrong);
    CHECK(run.code == 2);
    CHECK_THAT(run.err, contains(message));
  };
  refused("--training.stepz 3", "unknown key training.stepz");
  refused("--config /no/such/file.toml", "/no/such/file.toml");
  refused("--data.path /no/such/text", "/no/such/text");
  refused("--strategy fsdp --ranks 2 --training.global_batch_size 3", "global_batch_size");
  refused("--model.vocab_size 50", "vocabulary");  // 'a' is byte 97
}

TEST_CASE("what cannot be written is known before the first step", "[train][program]") {
  const TemporaryFolder folder;
  const std::string good = short_run(folder);
  const Finished run = unshard_train(folder, good + "--summary /proc/no/such/folder/summary.json");
  CHECK(run.code == 2);
  CHECK_THAT(run.err, contains("--summary: /proc/no/such/folder"));
  CHECK(run.out.find("step 1/2") == std::string::npos);
}

TEST_CASE("an export to the current folder works, and other outputs arrive", "[train][program]") {
  const TemporaryFolder folder;
  const std::string good = short_run(folder);
  std::filesystem::create_directory(folder / "here");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "here");
  const Finished run =
      unshard_train(folder, good + "--export . --summary ../summary.json --picture ../picture");
  std::filesystem::current_path(before);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(std::filesystem::exists(folder / "here" / "model.safetensors"));
  CHECK(std::filesystem::exists(folder / "summary.json"));
  CHECK(std::filesystem::exists(folder / "picture" / "timeline.html"));
  // The shell that started it now stands in a folder that is gone.
  const std::string remedy = "enter it anew (cd " + (folder / "here").string() + ")";
  CHECK_THAT(run.out, contains(remedy));
  const Finished elsewhere =
      unshard_train(folder, good + "--export '" + (folder / "here").string() + "'");
  CHECK(elsewhere.code == 0);
  CHECK(elsewhere.out.find("enter it anew") == std::string::npos);
}

TEST_CASE("a configuration from a pipe is read", "[train][program]") {
  const TemporaryFolder folder;
  const std::string text =
      "[model]\npreset = \"nano\"\nvocab_size = 128\n[training]\nsteps = 1\n"
      "local_batch_size = 1\n";
  short_run(folder);
  io::write_text_atomically(folder / "run.toml", text);
  const std::string program = "'" FSDP_TRAIN_PROGRAM "' --config /dev/stdin ";
  const std::string data = "--data.path='" + (folder / "text.txt").string() + "'";
  const Finished run =
      run_command(folder, "cat '" + (folder / "run.toml").string() + "' | " + program + data);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_THAT(run.out, contains("/dev/stdin: nano with"));
  const Finished empty = run_command(folder, "true | " + program + data);
  CHECK(empty.code == 2);
  CHECK_THAT(empty.err, contains("/dev/stdin: is empty"));
  const Finished endless = unshard_train(folder, "--config /dev/zero");
  CHECK(endless.code == 2);
  CHECK_THAT(endless.err, contains("/dev/zero: is a device; give a file"));
}

TEST_CASE("an option that says nothing, or two things, is refused", "[train][program]") {
  const TemporaryFolder folder;
  const std::string good = short_run(folder);
  const auto refused = [&](const std::string& wrong, const std::string& message) {
    INFO(wrong);
    const Finished run = unshard_train(folder, good + wrong);
    CHECK(run.code == 2);
    CHECK_THAT(run.err, contains(message));
  };
  refused("--config ''", "--config: is empty");
  refused("--config '" + folder.path().string() + "'", "is a folder; give a file");
  refused("--strategy ''", "parallel.strategy: is \"\", must be one of");
  refused("--export ''", "--export: is empty");
  refused("--strategy fsdp --ranks 2 --parallel.ranks 4",
          "parallel.ranks: is 4, but --ranks is 2; give one of them");
  refused("--config a --config b", "--config");
  refused("--model.vocab_size 1000000000 --model.hidden_size 64",
          "model.vocab_size: this training needs");
  refused("--config= --training.steps 1", "--config: is empty");
  CHECK(unshard_train(folder, good + "--strategy ddp --ranks 2 --parallel.ranks 2").code == 0);
}

TEST_CASE("a setting without effect is said in one line", "[train][program]") {
  const TemporaryFolder folder;
  const Finished run = unshard_train(folder, short_run(folder) + "--optimizer.momentum 0.9");
  CHECK(run.code == 0);
  CHECK_THAT(run.out, contains("note: command line: optimizer.momentum: has no effect with "
                               "optimizer.name adamw\n"));
  // Only the data say that the prompt is not text.
  std::vector<std::int32_t> tokens = {20240801, 7, 40};
  tokens.resize(256 + 40, 5);
  std::string bytes(tokens.size() * 4, '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  io::write_text_atomically(folder / "tokens.bin", bytes);
  const std::string sampled = "--sample.max_new_tokens 1 --sample.prompt x";
  const std::string note = "sample.prompt: has no effect with a token file";
  CHECK_THAT(unshard_train(folder, short_run(folder) + sampled).out, !contains(note));
  const Finished other = unshard_train(folder, short_run(folder) + sampled + " --data.path '" +
                                                   (folder / "tokens.bin").string() + "'");
  CHECK(other.code == 0);
  CHECK_THAT(other.out, contains("note: command line: " + note) && contains("\n5 5 5 5 5 5 5 5 "));
}

TEST_CASE("replicas are announced, and named in the picture", "[train][program][mesh]") {
  if (FSDP_HAS_TASK8 == 0) return;  // a student kit in which it is not written
  const TemporaryFolder folder;
  const Finished run =
      unshard_train(folder, short_run(folder) +
                                "--strategy fsdp --ranks 4 --training.global_batch_size=4 "
                                "--parallel.data_parallel_replicate_degree 2 --picture '" +
                                (folder / "picture").string() + "'");
  CHECK(run.code == 0);
  CHECK_THAT(run.out, contains("strategy fsdp, 2 replicas of 2 shards, 4 rank(s)"));
  CHECK_THAT(contents(folder / "picture/timeline.html"),
             contains("nano over 4 ranks, fsdp, 2 replicas of 2 shards"));
}

TEST_CASE("formats are announced if they are mixed", "[train][program]") {
  const TemporaryFolder folder;
  const std::string announced = "masters in float32, the model in bfloat16, sums of gradients in ";
  const std::string param = " --training.mixed_precision_param bfloat16";
  CHECK_THAT(unshard_train(folder, short_run(folder) + param).out,
             contains(announced + "float32\n"));
  CHECK_THAT(unshard_train(
                 folder, short_run(folder) + param + " --training.mixed_precision_reduce bfloat16")
                 .out,
             contains(announced + "bfloat16\n"));
  CHECK_THAT(unshard_train(folder, short_run(folder)).out, !contains("masters in"));
}

TEST_CASE("a skipped step's line has no rate and no norm", "[train][program]") {
  const TemporaryFolder folder;
  const Finished run = unshard_train(
      folder,
      short_run(folder) +
          "--training.mixed_precision_param=float16 --training.mixed_precision_reduce=float32 "
          "--fp16.initial_scale_power=40 --training.max_norm=1");
  CHECK(run.code == 0);
  const std::string line = run.out.substr(run.out.find("step 2/2  loss"));
  CHECK_THAT(line.substr(0, line.find('\n')),
             contains("  skipped  ") && !contains("  lr ") && !contains("  norm "));
}

TEST_CASE("resuming a finished training says that nothing is left", "[train][program]") {
  const TemporaryFolder folder;
  const std::string run =
      short_run(folder) + "--checkpoint.folder '" + (folder / "c").string() + "' ";
  CHECK(unshard_train(folder, run).code == 0);
  const Finished again =
      unshard_train(folder, run + "--picture '" + (folder / "picture").string() + "'");
  CHECK(again.code == 0);
  CHECK_THAT(again.out, contains("after step 2: all steps are done"));
  CHECK_THAT(again.out, contains("there is no picture"));
  const Finished less = unshard_train(folder, run + "--training.steps=1");
  CHECK(less.code == 2);
  CHECK_THAT(less.err, contains("training.steps: is 1, but") && contains("after step 2"));
}

TEST_CASE("an output that cannot be written is no success", "[program]") {
  const TemporaryFolder folder;
  const std::string good = short_run(folder);
  const std::string report =
      "'" FSDP_REPORT_PROGRAM "' --fake --model nano --out '" + (folder / "picture").string() + "'";
  const std::string train = "'" FSDP_TRAIN_PROGRAM "' ";
  for (const std::string& command :
       {train + good, train + "--help", report, std::string("'" FSDP_REPORT_PROGRAM "' --help"),
        std::string("'" FSDP_DEMO_PROGRAM "'"), std::string("'" FSDP_DEMO_PROGRAM "' --help")}) {
    INFO(command);
    const Finished full = run_command(folder, command + " >/dev/full");
    CHECK(full.code == 1);
    CHECK_THAT(full.err, contains("the standard output cannot be written: No space left"));
    const Finished closed = run_command(folder, command + " >&-");
    CHECK(closed.code == 1);
    CHECK_THAT(closed.err, contains("the standard output cannot be written: Bad file"));
  }
}

TEST_CASE("each program says its release", "[program]") {
  const TemporaryFolder folder;
  for (const auto& [name, path] : {std::pair{"unshard-train", FSDP_TRAIN_PROGRAM},
                                   std::pair{"unshard-report", FSDP_REPORT_PROGRAM},
                                   std::pair{"unshard-demo", FSDP_DEMO_PROGRAM}}) {
    const Finished done = run_command(folder, fmt::format("'{}' --version", path));
    CHECK(done.code == 0);
    CHECK(done.out == fmt::format("{} {}\n", name, program::version()));
  }
}

TEST_CASE("wrong options of the other programs exit with 2", "[program]") {
  const TemporaryFolder folder;
  for (const char* command :
       {"'" FSDP_REPORT_PROGRAM "'", "'" FSDP_REPORT_PROGRAM "' --ranks 0 --out x",
        "'" FSDP_REPORT_PROGRAM "' --ranks 4 --replicas 3 --out x",
        "'" FSDP_REPORT_PROGRAM "' --ranks 4 --replicas 2 --strategy ddp --out x",
        "'" FSDP_REPORT_PROGRAM "' --ranks 4 --box 2 --out x", "'" FSDP_REPORT_PROGRAM "' --what",
        "'" FSDP_REPORT_PROGRAM "' --offload params --out x",
        "'" FSDP_REPORT_PROGRAM "' --fake --strategy ddp --offload all --out x",
        "'" FSDP_REPORT_PROGRAM "' --fake --strategy zero2 --offload params --out x",
        "'" FSDP_REPORT_PROGRAM "' --fake --offload optimizer --out x",
        "'" FSDP_DEMO_PROGRAM "' --what"}) {
    INFO(command);
    const Finished run = run_command(folder, command);
    CHECK(run.code == 2);
    CHECK_THAT(run.err, contains("--"));
  }
}

TEST_CASE("a reader that goes away ends a program quietly", "[train][program]") {
  for (const int ranks : {0, 1, 3}) {
    INFO(ranks);
    const TemporaryFolder folder;
    const std::vector<std::string> words =
        ranks == 0 ? std::vector<std::string>{FSDP_DEMO_PROGRAM}
                   : long_run(folder, ranks == 1 ? "single" : "fsdp", ranks);
    Child child(words, folder / "err");
    child.line_with(ranks == 0 ? "transformer" : "step         1/");
    child.close_output();
    CHECK(child.wait() == 141);
    CHECK(contents(folder / "err").empty());
    if (ranks > 0) CHECK(last_saved(folder) >= 2);  // what was trained is not lost
  }
}

TEST_CASE("a signal ends a training after its step, with a checkpoint", "[train][program]") {
  struct Case {
    const char* strategy;
    int ranks;
    int number;
    const char* name;
  };
  for (const Case& each : {Case{"single", 1, SIGINT, "SIGINT"},
                           {"ddp", 3, SIGTERM, "SIGTERM"},
                           {"fsdp", 2, SIGTERM, "SIGTERM"},
                           {"fsdp", 4, SIGINT, "SIGINT"}}) {
    INFO(each.strategy << " " << each.ranks);
    const TemporaryFolder folder;
    std::vector<std::string> words = long_run(folder, each.strategy, each.ranks);
    Child child(words, folder / "err");
    child.line_with("step         3/");
    child.signal(each.number);
    const std::string rest = child.rest();
    CHECK(child.wait() == 128 + each.number);
    CHECK(contents(folder / "err").empty());
    const std::int64_t saved = last_saved(folder);
    CHECK(saved >= 3);
    CHECK_THAT(rest, contains("stopped by " + std::string(each.name) + " after step " +
                              std::to_string(saved) + "/100000000; the same command goes on"));
    words.push_back("--training.steps=" + std::to_string(saved + 1));
    Child again(words, folder / "err");
    CHECK_THAT(again.rest(), contains("after step " + std::to_string(saved) + "\n"));
    CHECK(again.wait() == 0);
  }
}

TEST_CASE("a signal without a checkpoint folder says that nothing was saved", "[train][program]") {
  const TemporaryFolder folder;
  std::vector<std::string> words = long_run(folder, "single", 1);
  words.push_back("--checkpoint.folder=");
  words.push_back("--export=" + (folder / "export").string());
  Child child(words, folder / "err");
  child.line_with("step         1/");
  child.signal(SIGINT);
  CHECK_THAT(child.rest(), contains("nothing was saved, because there is no checkpoint.folder"));
  CHECK(child.wait() == 130);
  CHECK_FALSE(std::filesystem::exists(folder / "export"));
}

TEST_CASE("an export belongs to one training at a time", "[train][program]") {
  const TemporaryFolder folder;
  const std::string there = (folder / "export").string();
  std::vector<std::string> words = long_run(folder, "single", 1);
  words.push_back("--checkpoint.folder=");
  words.push_back("--export=" + there);
  Child child(words, folder / "err");
  child.line_with("step         1/");
  const std::string good = short_run(folder);
  const Finished second = unshard_train(folder, good + "--export '" + there + "'");
  CHECK(second.code == 2);
  CHECK_THAT(second.err, contains("--export: " + there + ": is being written by another process"));
  CHECK(second.out.find("step 1/2") == std::string::npos);
  child.signal(SIGINT);
  child.rest();
  CHECK(child.wait() == 130);
  CHECK_FALSE(std::filesystem::exists(there + ".tmp"));
  CHECK(unshard_train(folder, good + "--export '" + there + "'").code == 0);
}

TEST_CASE("a second signal ends a training at once", "[train][program]") {
  const TemporaryFolder folder;
  std::vector<std::string> words = long_run(folder, "single", 1);
  words.push_back("--training.global_batch_size=1000000");  // a step of a minute
  Child child(words, folder / "err");
  child.line_with("strategy single");
  child.signal(SIGINT);
  child.signal(SIGTERM);  // two of one kind may arrive as one
  CHECK(child.rest().find("step ") == std::string::npos);
  const int code = child.wait();
  CHECK((code == 130 || code == 143));
}

}  // namespace fsdp::train
