// Gradients that are scaled before they are summed: no bit changes where sums fit into their
// format, and in float16 they fit more often.
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::train::prescale_test {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

const Words kPrescaled = {"--training.prescale_gradients=true"};

TrainConfig configure(const std::vector<Words>& parts) {
  Words words = {"--model.preset=nano",         "--model.vocab_size=127",
                 "--training.seq_len=7",        "--training.local_batch_size=1",
                 "--training.steps=4",          "--training.global_batch_size=12",
                 "--lr_scheduler.kind=constant"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return load_config(std::nullopt, words);
}

struct Trained {
  RunResult result;
  std::vector<std::string> notes;
};

Trained train(const std::vector<Words>& parts) {
  Trained trained;
  RunOptions options;
  options.on_note = [&](const std::string& note) { trained.notes.push_back(note); };
  trained.result = run_training(configure(parts), some_text(), options);
  return trained;
}

Words placed(const std::string& name, int ranks, int replicas = 1) {
  return {"--parallel.strategy=" + name, "--parallel.ranks=" + std::to_string(ranks),
          "--parallel.data_parallel_replicate_degree=" + std::to_string(replicas)};
}

Words policy(const std::string& param, const std::string& reduce) {
  return {"--training.mixed_precision_param=" + param,
          "--training.mixed_precision_reduce=" + reduce};
}

constexpr bool kHasMeshes = FSDP_HAS_TASK8 != 0;  // not in a student kit that lacks task 8

/// Every strategy at every number of ranks, and meshes.
std::vector<Words> everywhere() {
  std::vector<Words> all = {placed("single", 1)};
  for (const int ranks : {1, 2, 3, 4}) {
    for (const char* name : {"ddp", "zero1", "zero2", "fsdp"}) all.push_back(placed(name, ranks));
  }
  if (!kHasMeshes) return all;
  for (const auto& [ranks, replicas] : {std::pair(4, 2), {6, 2}, {4, 4}}) {
    all.push_back(placed("fsdp", ranks, replicas));
  }
  return all;
}

// With it, a gradient of one micro-batch fits into float16, and the sum of twelve does not.
const Words kScale = {"--fp16.initial_scale_power=16", "--fp16.hysteresis=100"};

int skipped(const Trained& trained) {
  return static_cast<int>(std::ranges::count_if(trained.notes, [](const std::string& note) {
    return note.ends_with("the step was skipped");
  }));
}

}  // namespace

TEST_CASE("scaled before or after they are summed, gradients have the same bits",
          "[train][prescale]") {
  for (const Words& how : {Words{}, {"--training.no_sync=true", "--training.max_norm=0"}}) {
    for (const Words& where : everywhere()) {
      const RunResult after = train({how, where}).result;
      const RunResult before = train({how, where, kPrescaled}).result;
      INFO(where[0] << " " << where[1] << " " << where[2]);
      CHECK(before.losses == after.losses);
      CHECK(before.param_sha256 == after.param_sha256);
      CHECK(before.peak_bytes == bound_bytes(configure({how, where})));
    }
  }
}

TEST_CASE("a sum that overflows in float16 does not if its terms were scaled before",
          "[train][prescale]") {
  const Words wide = policy("float16", "float32"), narrow = policy("float16", "float16");
  // What 1/16 of the scale gives: 16 is the next power of two after twelve.
  const RunResult low = train({narrow, {"--fp16.initial_scale_power=12"}}).result;
  for (const Words& where : everywhere()) {
    INFO(where[0] << " " << where[1] << " " << where[2]);
    CHECK(skipped(train({wide, kScale, where})) == 0);
    CHECK(skipped(train({narrow, kScale, where})) == 4);
    const Trained before = train({narrow, kScale, where, kPrescaled});
    CHECK(skipped(before) == 0);
    if (where[1] == placed("", 3)[1] || where[1] == placed("", 6)[1]) continue;  // other orders
    CHECK(before.result.losses == low.losses);
    CHECK(before.result.param_sha256 == low.param_sha256);
  }
}

TEST_CASE("all ranks skip a step whose gradient overflows although it was scaled before",
          "[train][prescale]") {
  const Words how = {"--training.mixed_precision_param=float16",
                     "--training.mixed_precision_reduce=float16", "--fp16.initial_scale_power=25",
                     "--training.steps=12"};
  const Trained single = train({how, kPrescaled});
  CHECK(skipped(single) > 1);
  CHECK(skipped(single) < skipped(train({how})));
  for (const Words& where : everywhere()) {
    if (where[1] == placed("", 3)[1] || where[1] == placed("", 6)[1]) continue;
    INFO(where[0] << " " << where[1] << " " << where[2]);
    const Trained there = train({how, where, kPrescaled});
    CHECK(there.notes == single.notes);
    CHECK(there.result.param_sha256 == single.result.param_sha256);
  }
}

TEST_CASE("a checkpoint of a training in float16 asks for the same scaling",
          "[train][prescale][checkpoint]") {
  const auto resumed = [](const Words& how, const Words& first, const Words& second) {
    const TemporaryFolder folder;
    const Words there = {"--checkpoint.folder=" + folder.path().string()};
    train({how, placed("fsdp", 2), there, first, {"--training.steps=2"}});
    return train({how, placed("ddp", 4), there, second}).result;
  };
  const RunResult whole = train({}).result;
  CHECK(resumed({}, kPrescaled, {}).param_sha256 == whole.param_sha256);
  CHECK(resumed({}, {}, kPrescaled).param_sha256 == whole.param_sha256);
  for (const Words& half : {policy("float16", "float32"), policy("float32", "float16")}) {
    CHECK(resumed(half, kPrescaled, kPrescaled).param_sha256 ==
          train({half, kPrescaled}).result.param_sha256);
    CHECK_THAT(message_of<InputError>([&] { resumed(half, kPrescaled, {}); }),
               contains("was saved with training.prescale_gradients = true, now it is false; use "
                        "the same value"));
  }
}

TEST_CASE("the key of prescaling: wrong values, and where it has no effect", "[config][prescale]") {
  CHECK_THAT(message_of<InputError>([&] { configure({{"--training.prescale_gradients=1"}}); }),
             contains("training.prescale_gradients: is 1, must be true or false"));
  CHECK(configure({kPrescaled}).remarks.empty());
  CHECK(configure({kPrescaled}).prescale() == 1.0 / 16);
  CHECK(configure({}).prescale() == 1);
  const auto remarks = configure({kPrescaled, {"--training.global_batch_size=1"}}).remarks;
  REQUIRE(remarks.size() == 1);
  CHECK_THAT(remarks[0], contains("has no effect while a step has one micro-batch"));
}

}  // namespace fsdp::train::prescale_test
