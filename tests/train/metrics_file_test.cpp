// metrics.file: a line per step, once each, however a training is stopped and resumed.
#include "train/metrics_file.h"
#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace fsdp::train::metrics_file_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::contents;
using testing::TemporaryFolder;

constexpr const char* kNames =
    "step,loss,lr,tokens_per_second,peak_bytes,grad_norm,validation_loss,forward_seconds,"
    "backward_seconds,reduce_seconds,step_seconds,skipped\n";

StepReport step_number(int number) {
  StepReport step{.step = number, .steps = 9, .loss = 5.5F / static_cast<float>(number)};
  step.lr = 1e-3;
  step.norm = 0.25;
  step.tokens_per_second = 1234.5;
  step.seconds = {.forward = 0.5, .backward = 1, .reduce = 0.125, .step = 2e-7};
  step.peak_bytes = 34'567'891'234;
  return step;
}

void write(const fs::path& file, int first_step, int last_step) {
  MetricsFile metrics(file, first_step);
  for (int step = first_step + 1; step <= last_step; ++step) metrics.add(step_number(step), true);
}

std::vector<int> steps_in(const fs::path& file) {
  std::istringstream lines(contents(file));
  std::vector<int> steps;
  for (std::string line; std::getline(lines, line);) {
    if (file.extension() == ".jsonl") {
      steps.push_back(Json::parse(line).at("step"));
    } else if (line + "\n" != kNames) {
      steps.push_back(std::stoi(line));
    }
  }
  return steps;
}

std::vector<int> up_to(int last) {
  std::vector<int> steps;
  for (int step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

void put(const fs::path& file, const std::string& text) {
  io::File::create(file).write(std::as_bytes(std::span(text)));
}

std::vector<fs::path> both(const TemporaryFolder& folder) {
  return {folder / "run.jsonl", folder / "run.csv"};
}

}  // namespace

TEST_CASE("a line has the values of its step, and null where there is none", "[train][metrics]") {
  const TemporaryFolder folder;
  StepReport step = step_number(1);
  step.validation_loss = 4.75F;
  StepReport skipped = step_number(2);
  skipped.loss = std::numeric_limits<float>::infinity();
  skipped.is_skipped = true;
  for (const fs::path& file : both(folder)) {
    MetricsFile metrics(file, 0);
    metrics.add(step, true);
    metrics.add(skipped, true);
    metrics.add(step_number(3), false);
  }
  CHECK(contents(folder / "run.jsonl") ==
        R"({"step":1,"loss":5.5,"lr":0.001,"tokens_per_second":1234.5,"peak_bytes":34567891234,)"
        R"("grad_norm":0.25,"validation_loss":4.75,"forward_seconds":0.5,"backward_seconds":1,)"
        R"("reduce_seconds":0.125,"step_seconds":2e-07,"skipped":false})"
        "\n"
        R"({"step":2,"loss":null,"lr":0.001,"tokens_per_second":1234.5,"peak_bytes":34567891234,)"
        R"("grad_norm":null,"validation_loss":null,"forward_seconds":0.5,"backward_seconds":1,)"
        R"("reduce_seconds":0.125,"step_seconds":2e-07,"skipped":true})"
        "\n"
        R"({"step":3,"loss":1.8333334,"lr":0.001,"tokens_per_second":1234.5,)"
        R"("peak_bytes":34567891234,"grad_norm":null,"validation_loss":null,)"
        R"("forward_seconds":0.5,"backward_seconds":1,"reduce_seconds":0.125,)"
        R"("step_seconds":2e-07,"skipped":false})"
        "\n");
  CHECK(contents(folder / "run.csv") ==
        std::string(kNames) +
            "1,5.5,0.001,1234.5,34567891234,0.25,4.75,0.5,1,0.125,2e-07,false\n"
            "2,,0.001,1234.5,34567891234,,,0.5,1,0.125,2e-07,true\n"
            "3,1.8333334,0.001,1234.5,34567891234,,,0.5,1,0.125,2e-07,false\n");
  for (const float loss : {5.5962F, 1e-30F, 3.4e38F, 0.1F}) {
    step.loss = loss;
    MetricsFile(folder / "run.jsonl", 0).add(step, true);
    CHECK(Json::parse(contents(folder / "run.jsonl")).at("loss").get<float>() == loss);
  }
}

TEST_CASE("wherever a run was killed, the next one leaves each step once", "[train][metrics]") {
  const TemporaryFolder folder;
  for (const fs::path& file : both(folder)) {
    write(file, 0, 4);
    const std::string whole = contents(file);
    CHECK(steps_in(file) == up_to(4));
    for (std::size_t nbytes = 0; nbytes <= whole.size(); ++nbytes) {
      INFO(file << " cut after " << nbytes << " bytes");
      put(file, whole.substr(0, nbytes));
      MetricsFile::probe(file);
      CHECK(contents(file) == whole.substr(0, nbytes));
      // So many lines were whole, and a checkpoint is never newer than its line.
      const auto lines = std::ranges::count(whole.substr(0, nbytes), '\n');
      const int steps = std::max(0, static_cast<int>(lines) - (file.extension() == ".csv" ? 1 : 0));
      for (int saved = 0; saved <= steps; ++saved) {
        put(file, whole.substr(0, nbytes));
        write(file, saved, 4);
        CHECK(contents(file) == whole);
      }
    }
  }
}

TEST_CASE("a file that is not ours is refused, and stays as it is", "[train][metrics]") {
  const TemporaryFolder folder;
  write(folder / "mine.jsonl", 0, 2);
  write(folder / "mine.csv", 0, 2);
  const std::string jsonl = contents(folder / "mine.jsonl"), csv = contents(folder / "mine.csv");
  const std::string foreign = "already exists and was not written by this program";
  const std::vector<std::vector<std::string>> cases = {
      {"a.jsonl", "{\"step\": 1, \"loss\": 2.5}\n", foreign},
      {"a.jsonl", "{\"step\":1,\"loss\":2.5}\n", foreign},
      {"a.jsonl", "my notes\n", foreign},
      {"a.jsonl", "my notes", foreign},
      {"a.jsonl", "\n", foreign},
      {"a.jsonl", csv, foreign},
      {"a.jsonl", jsonl + "{}\n", "line 3 is no step of a training"},
      {"a.jsonl", jsonl + "\n" + jsonl, "line 3 is no step of a training"},
      {"a.csv", "step,loss\n1,2.5\n", foreign},
      {"a.csv", "1,2,3,4,5,6,7,8,9,10,11,12\n", foreign},
      {"a.csv", jsonl, foreign},
      {"a.csv", csv + "x,,,,,,,,,,,\n", "line 4 is no step of a training"},
      {"a.csv", csv + "3,1\n", "line 4 is no step of a training"}};
  for (const auto& each : cases) {
    INFO(each[1]);
    const fs::path file = folder / each[0];
    put(file, each[1]);
    for (const bool probes : {true, false}) {
      const std::string message = message_of<InputError>([&] {
        if (probes) {
          MetricsFile::probe(file);
        } else {
          MetricsFile metrics(file, 9);
        }
      });
      CHECK_THAT(message, contains(file.string() + ": " + each[2]) &&
                              contains("give another name, or move it away"));
    }
    CHECK(contents(file) == each[1]);
  }
  fs::create_directory(folder / "b.csv");
  CHECK_THAT(message_of<InputError>([&] { MetricsFile::probe(folder / "b.csv"); }),
             contains("is not a plain file"));
  MetricsFile::probe(folder / "new/c.csv");
  CHECK_FALSE(fs::exists(folder / "new/c.csv"));
}

TEST_CASE("a resumed training goes on in its metrics file, without a gap or a double line",
          "[train][metrics][program]") {
  const TemporaryFolder folder;
  testing::run_command(
      folder, fmt::format("head -c 4000 /dev/zero | tr '\\0' a > {}", (folder / "text").string()));
  for (const fs::path& file : both(folder)) {
    const fs::path saved = file.string() + ".steps";
    const auto train = [&](int steps) {
      const testing::Finished run = testing::run_command(
          folder, fmt::format("{} --model.preset tiny --training.seq_len 8 --strategy fsdp "
                              "--training.local_batch_size 1 --ranks 3 --data.path {} "
                              "--training.steps {} --checkpoint.folder {} --checkpoint.interval 2 "
                              "--summary {} --metrics.file {}",
                              FSDP_TRAIN_PROGRAM, (folder / "text").string(), steps, saved.string(),
                              (folder / "summary.json").string(), file.string()));
      INFO(run.err);
      REQUIRE(run.code == 0);
    };
    train(5);
    CHECK(steps_in(file) == up_to(5));
    // As if it had been killed in the fifth step, in the middle of its line.
    fs::remove_all(saved / "step_5");
    io::write_text_atomically(saved / "latest", "step_2\n");
    fs::resize_file(file, fs::file_size(file) - 10);
    train(6);
    CHECK(steps_in(file) == up_to(6));
    const Json run = Json::parse(contents(folder / "summary.json")).at("runs").at(0);
    if (file.extension() != ".jsonl") continue;
    std::istringstream lines(contents(file));
    std::string line;
    for (int step = 1; step <= 2; ++step) std::getline(lines, line);
    for (std::size_t i = 0; i < 4 && std::getline(lines, line); ++i) {
      const Json json = Json::parse(line);
      CHECK(json.at("loss").get<float>() == run.at("losses")[i].get<float>());
      CHECK(json.at("peak_bytes").get<std::int64_t>() > 0);
      CHECK(json.at("grad_norm").get<double>() > 0);
      CHECK(json.at("skipped") == false);
    }
  }
}

TEST_CASE("a phase from an export writes each step once, killed and cut anew",
          "[train][metrics][phase][program]") {
  const TemporaryFolder folder;
  testing::run_command(
      folder, fmt::format("head -c 4000 /dev/zero | tr '\\0' a > {}", (folder / "text").string()));
  const fs::path exported = folder / "exported", saved = folder / "saved";
  const auto train = [&](const std::string& words) {
    const testing::Finished run = testing::run_command(
        folder, fmt::format("{} --model.preset tiny --training.seq_len 8 --data.path {} "
                            "--training.global_batch_size 12 {}",
                            FSDP_TRAIN_PROGRAM, (folder / "text").string(), words));
    INFO(run.err);
    REQUIRE(run.code == 0);
  };
  for (const fs::path& file : both(folder)) {
    fs::remove_all(exported);
    fs::remove_all(saved);
    const std::string into = " --metrics.file " + file.string();
    train("--strategy fsdp --ranks 3 --training.local_batch_size 2 --training.steps 3 --export " +
          exported.string() + " --export.optimizer true" + into);
    CHECK(steps_in(file) == up_to(3));
    const std::string phase =
        fmt::format(" --checkpoint.from {} --checkpoint.folder {} --checkpoint.interval 2",
                    exported.string(), saved.string());
    train("--strategy zero2 --ranks 4 --training.local_batch_size 1 --training.steps 5" + into +
          phase);
    CHECK(steps_in(file) == up_to(5));
    fs::remove_all(saved / "step_5");
    fs::remove_all(saved / "step_4");
    io::write_text_atomically(saved / "latest", "step_2\n");
    fs::resize_file(file, fs::file_size(file) - 10);
    train("--strategy fsdp --ranks 2 --training.local_batch_size 3 --training.steps 6" + into +
          phase);
    CHECK(steps_in(file) == up_to(6));
  }
}

TEST_CASE("a metrics file that cannot be written is named before the first step",
          "[train][metrics][program]") {
  const TemporaryFolder folder;
  testing::run_command(
      folder, fmt::format("head -c 4000 /dev/zero | tr '\\0' a > {}", (folder / "text").string()));
  put(folder / "notes.csv", "mine\n");
  const auto refused = [&](const std::string& name) {
    const testing::Finished run = testing::run_command(
        folder,
        fmt::format("{} --model.preset tiny --training.seq_len 8 --data.path {} "
                    "--training.steps 2 --metrics.file {}",
                    FSDP_TRAIN_PROGRAM, (folder / "text").string(), (folder / name).string()));
    CHECK(run.code == 2);
    CHECK_THAT(run.out, !contains("step 1/2"));
    return run.err;
  };
  CHECK_THAT(refused("notes.csv"), contains("metrics.file: ") && contains("give another name"));
  CHECK_THAT(refused("text/run.csv"), contains("metrics.file: "));
  CHECK_THAT(refused("run.txt"),
             contains("metrics.file: is ") && contains("must end in .jsonl or .csv"));
  CHECK(contents(folder / "notes.csv") == "mine\n");
}

}  // namespace fsdp::train::metrics_file_test
