// Checkpoints of models on a CUDA device are files like any other.
#include "cuda_fsdp/trainings.h"
#include "io/file_io.h"
#include "support/temporary_folder.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

namespace fsdp::testing {
namespace {

/// The tensors' bytes in the files of all ranks, by file name. Before them a file has the length of
/// its header, in 8 bytes, and the header, where every save has another id.
std::map<std::string, std::string> bytes_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string text = io::read_text(entry.path());
    std::uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    files[entry.path().filename().string()] = text.substr(sizeof header + header);
  }
  return files;
}

}  // namespace

TEST_CASE("a checkpoint of the CPU is read on a CUDA device, and written again alike", "[fsdp]") {
  TrainingCase training = cuda_case(Strategy::fsdp, 2);
  const TemporaryFolder of_cpu, of_device;
  training.device = kCpu;
  training.save_to = of_cpu.path();
  const TrainingResult trained = train(training);

  TrainingCase copying = cuda_case(Strategy::fsdp, 2);
  copying.steps = 0;
  copying.first_step = training.steps;
  copying.seed_of_model = 77;
  copying.load_from = io::CheckpointFolder(of_cpu.path()).latest();
  copying.save_to = of_device.path();
  TrainingResult copied = train_on_device(copying, requested_or({Mode::lazy, 0})).result;
  copied.losses = trained.losses;
  CHECK(difference(copied, trained) == "");

  const auto expected = bytes_in(*io::CheckpointFolder(of_cpu.path()).latest());
  const auto written = bytes_in(*io::CheckpointFolder(of_device.path()).latest());
  CHECK(expected.size() == 2);
  CHECK(written == expected);
}

TEST_CASE("a checkpoint continues on more ranks of a CUDA device with the same bits", "[fsdp]") {
  TrainingCase base = cuda_case();
  base.recipe.clip = 0.1;
  base.recipe.micro_steps = 2;
  const TrainingResult expected = train_on_device(base, {Mode::eager, 17}).result;
  TrainingCase before = base.spread(Strategy::fsdp, 1);
  before.steps = 1;
  const TrainingCase after = before.spread(Strategy::fsdp, 2);
  for (const Plan& plan : two_plans()) {
    INFO(text_of(plan));
    const TemporaryFolder folder;
    Session session(plan);
    const TrainingResult joined = train_in_parts({before, after}, folder.path());
    session.finish();
    CHECK(difference(joined, expected) == "");
  }
}

}  // namespace fsdp::testing
