// unshard-train --eval, and evaluations during a training, as a script sees them.
#include "io/file_io.h"
#include "program/memory.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include "train/program.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::train::eval_program_test {
namespace {

using nlohmann::json;
using testing::contents;
using testing::Finished;
using testing::run_command;
using testing::TemporaryFolder;

constexpr const char* kModel = "--model.preset=nano --model.vocab_size=128 ";

Finished run(const TemporaryFolder& folder, const std::string& arguments) {
  return run_command(folder, "'" FSDP_TRAIN_PROGRAM "' " + (kModel + arguments));
}

std::string quoted(const std::filesystem::path& path) { return "'" + path.string() + "' "; }

// Words of a training in the folder, whose texts are written here.
std::string training(const TemporaryFolder& folder) {
  io::write_text_atomically(folder / "text.txt", std::string(400, 'a') + "bcd");
  io::write_text_atomically(folder / "other.txt", "abcd" + std::string(100, 'b'));
  return "--training.local_batch_size=1 --training.global_batch_size=4 --training.steps=3 "
         "--data.path " +
         quoted(folder / "text.txt") + "--checkpoint.folder " + quoted(folder / "c");
}

}  // namespace

TEST_CASE("progress and summary show the validation loss", "[train][program][eval]") {
  const TemporaryFolder folder;
  const Finished trained =
      run(folder, training(folder) + "--training.eval_every 2 --summary " +
                      quoted(folder / "summary.json") + "--metrics.log_freq 3 --data.validation " +
                      quoted(folder / "other.txt"));
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(trained.out.find("step 1/3") == std::string::npos);  // log_freq
  const json evaluations =
      json::parse(contents(folder / "summary.json")).at("runs").at(0).at("validation");
  REQUIRE(evaluations.size() == 2);
  for (const json& each : evaluations) {
    const double loss = each.at("loss");
    CHECK_THAT(trained.out, contains(fmt::format("step {}/3", each.at("step").get<int>())) &&
                                contains(fmt::format("  validation {:.4f}  ", loss)));
    CHECK(each.at("perplexity").get<double>() == Catch::Approx(std::exp(loss)));
  }
}

TEST_CASE("loss and perplexity are printed with --eval, and nothing is trained",
          "[train][program][eval]") {
  const TemporaryFolder folder;
  const std::string checkpoint = "--checkpoint.folder " + quoted(folder / "c");
  REQUIRE(run(folder, training(folder)).code == 0);
  const std::string saved = contents(folder / "c/latest");
  std::string said;
  for (const char* how : {"", "--strategy ddp --ranks 3 ", "--strategy fsdp --ranks 2 ",
                          "--strategy fsdp --ranks 4 --training.local_batch_size 3 "}) {
    INFO(how);
    const Finished found = run(folder, how + checkpoint + "--eval " + quoted(folder / "other.txt") +
                                           "--summary " + quoted(folder / "eval.json"));
    INFO(found.err);
    REQUIRE(found.code == 0);
    if (said.empty()) said = found.out;
    CHECK(found.out == said);
    const json summary = json::parse(contents(folder / "eval.json"));
    CHECK(summary.at("generator") == "made by unshard");
    const json& evaluation = summary.at("evaluation");
    CHECK(evaluation.at("step") == 3);
    CHECK(evaluation.at("windows") == 12);
    CHECK(evaluation.at("tokens") == 104);
    const float loss = evaluation.at("loss");
    CHECK_THAT(found.out,
               contains("evaluating " + (folder / "c/step_3").string()) &&
                   contains((folder / "other.txt").string() + ": 12 windows of 8 tokens: loss " +
                            fmt::format("{}, perplexity {:.6g}\n", loss,
                                        evaluation.at("perplexity").get<double>())));
  }
  CHECK(contents(folder / "c/latest") == saved);

  const auto refused = [&](const std::string& words, const std::string& part) {
    const Finished wrong = run(folder, words);
    CHECK(wrong.code == 2);
    CHECK_THAT(wrong.err, contains(part));
  };
  const std::string other = "--eval " + quoted(folder / "other.txt");
  refused(other, "--eval: there is no model to evaluate");
  refused(checkpoint + "--eval ''", "--eval: is empty; give a path");
  refused(checkpoint + "--eval " + quoted(folder / "none"),
          "--eval: " + (folder / "none").string() + ": no such file or folder");
  refused(checkpoint + other + "--model.vocab_size 99",
          "--eval: " + (folder / "other.txt").string() + ": token 99 at position 2 is outside");
  refused(checkpoint + other + "--export x", "--export");
  refused(checkpoint + other + "--picture x", "--picture");
  refused(checkpoint + other + "--summary " + quoted(folder / "text.txt"), "--summary: ");
  refused(checkpoint + other + "--model.num_hidden_layers 1", "--model.num_hidden_layers 2");
}

TEST_CASE("text is not evaluated on where tokens are trained", "[train][program][eval]") {
  const TemporaryFolder folder;
  const std::string words = training(folder);
  std::vector<std::int32_t> header = {20240801, 7, 40};
  header.resize(256 + 40, 5);
  std::ofstream(folder / "tokens.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(header.data()),
             static_cast<std::streamsize>(header.size() * 4));
  const Finished wrong = run(
      folder, words + "--training.eval_every 1 --data.validation " + quoted(folder / "tokens.bin"));
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, contains("data.validation: ") && contains("tokens.bin: is a token file") &&
                            contains("text.txt is text") && contains("the same kind"));
}

TEST_CASE("an evaluation is not refused for what a training would need", "[train][program][eval]") {
  const TemporaryFolder folder;
  const std::string text = training(folder);
  // About 12,480 F bytes to train, and 3,170 F to evaluate: 2.4 and 0.6 times what is free.
  const std::int64_t width = program::free_memory().nbytes / 5300;
  const std::string wide =
      fmt::format("--model.hidden_size=128 --model.intermediate_size={} ", width);
  const Finished trained = run(folder, text + wide);
  CHECK(trained.code == 2);
  CHECK_THAT(trained.err, contains("this training needs"));
  const Finished evaluated = run(folder, wide + "--eval " + quoted(folder / "other.txt"));
  CHECK(evaluated.code == 2);
  CHECK_THAT(evaluated.err, contains("--eval: there is no model to evaluate"));
}

}  // namespace fsdp::train::eval_program_test
