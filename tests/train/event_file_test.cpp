// Event files: the bytes of TensorBoard's own writer, and what a resumed training leaves.
#include "train/event_file.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/program.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace fsdp::train::event_file_test {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The records of a file, without their lengths and checksums.
std::vector<std::string> events_in(const fs::path& file) {
  const std::string bytes = testing::contents(file);
  std::vector<std::string> events;
  std::uint64_t nbytes = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 8 + 4 + nbytes + 4) {
    REQUIRE(at + 8 + 4 <= bytes.size());
    std::memcpy(&nbytes, bytes.data() + at, sizeof nbytes);
    REQUIRE(at + 8 + 4 + nbytes + 4 <= bytes.size());
    events.push_back(bytes.substr(at + 8 + 4, nbytes));
  }
  return events;
}

}  // namespace

TEST_CASE("an event file has the bytes of TensorBoard's own writer", "[train][metrics]") {
  const TemporaryFolder folder;
  constexpr double kSeconds = 1700000000.25;
  EventFile file(folder / "events", 300, kSeconds);
  file.add(301, {{"loss", 2.5F}, {"lr", 0}}, kSeconds);
  CHECK(file.path() == folder / "events/events.out.tfevents.1700000000.300");
  // Printed by tests/oracle/event_file.py.
  CHECK(hexadecimal(testing::contents(file.path())) ==
        "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9"
        "100000000000000095fbfe180900001040fc54d94110ad023a020801cb79b93b"
        "2600000000000000734fe3000900001040fc54d94110ad022a180a0b0a046c6f737315000020400a"
        "090a026c7215000000000b97a422");
}

TEST_CASE("a step's scalars are those that are known", "[train][metrics]") {
  StepReport step;
  step.loss = 3;
  step.norm = 0.5;
  const auto tags_of = [](const std::vector<Scalar>& scalars) {
    std::set<std::string> tags;
    for (const Scalar& each : scalars) tags.insert(each.tag);
    return tags;
  };
  const std::set<std::string> always = {"loss", "lr", "tokens_per_second", "peak_bytes"};
  CHECK(tags_of(scalars_of(step, false)) == always);
  step.validation_loss = 4;
  std::set<std::string> all = always;
  all.insert({"grad_norm", "validation_loss"});
  CHECK(tags_of(scalars_of(step, true)) == all);
}

TEST_CASE("a resumed training goes on in an event file of its own", "[train][metrics]") {
  const TemporaryFolder folder;
  testing::run_command(
      folder, fmt::format("head -c 4000 /dev/zero | tr '\\0' a > {}", (folder / "text").string()));
  for (const int steps : {2, 3}) {
    const std::string command = fmt::format(
        "{} --model.preset tiny --training.seq_len 8 --training.local_batch_size 1 --strategy fsdp "
        "--ranks 3 --data.path {} --training.steps {} --checkpoint.folder {} "
        "--metrics.tensorboard {}",
        FSDP_TRAIN_PROGRAM, (folder / "text").string(), steps, (folder / "steps").string(),
        (folder / "events").string());
    const testing::Finished run = testing::run_command(folder, command);
    INFO(run.err);
    REQUIRE(run.code == 0);
  }
  // A version, a start, and a record per step.
  std::vector<std::string> names;
  for (const fs::directory_entry& each : fs::directory_iterator(folder / "events"))
    names.push_back(each.path().filename().string());
  REQUIRE(names.size() == 2);
  if (names[0].ends_with(".2")) std::swap(names[0], names[1]);
  CHECK(names[0].ends_with(".0"));
  CHECK(names[1].ends_with(".2"));
  CHECK(events_in(folder / "events" / names[0]).size() == 2 + 2);
  CHECK(events_in(folder / "events" / names[1]).size() == 2 + 1);
}

TEST_CASE("a folder for event files that cannot be made is named before the first step",
          "[train][metrics]") {
  const TemporaryFolder folder;
  testing::run_command(
      folder, fmt::format("head -c 4000 /dev/zero | tr '\\0' a > {}", (folder / "text").string()));
  const testing::Finished run = testing::run_command(
      folder,
      fmt::format("{} --model.preset tiny --training.seq_len 8 --data.path {} "
                  "--training.steps 2 --metrics.tensorboard {}/events",
                  FSDP_TRAIN_PROGRAM, (folder / "text").string(), (folder / "text").string()));
  CHECK(run.code == 2);
  CHECK_THAT(run.err, contains("metrics.tensorboard: ") && contains("give another place"));
  CHECK_THAT(run.out, !contains("step 1/2"));
}

}  // namespace fsdp::train::event_file_test
