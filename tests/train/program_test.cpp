// The program as a script sees it: exit codes, what is printed where, and what is left behind.
#include "nn/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;

struct Finished {
  int code;
  std::string out, err;
};

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Finished unshard_train(const TemporaryFolder& folder, const std::string& arguments) {
  const std::string command = "'" FSDP_TRAIN_PROGRAM "' " + arguments + " >'" +
                              (folder / "out").string() + "' 2>'" + (folder / "err").string() + "'";
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), contents(folder / "out"), contents(folder / "err")};
}

std::string short_run(const TemporaryFolder& folder) {
  nn::write_text_atomically(folder / "text.txt", std::string(400, 'a') + "bcd");
  return "--model.preset=nano --model.vocabulary=128 --training.local_batch_size=1 "
         "--training.steps=2 --data.path='" +
         (folder / "text.txt").string() + "' ";
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
  refused("--model.vocabulary 50", "vocabulary");  // 'a' is byte 97
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
}

}  // namespace fsdp::train
