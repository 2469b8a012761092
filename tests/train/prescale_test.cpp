// Gradients that are scaled before they are summed: no bit changes where sums fit into their
// format, and in float16 they fit more often.
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/program.h"
#include "train/run_state.h"
#include "train/short_training.h"

#include <vector>

namespace fsdp::train::prescale_test {
namespace {

using namespace short_training;
using testing::TemporaryFolder;

const Words kPrescaled = {"--training.prescale_gradients=true"};

config::TrainConfig configure(std::vector<Words> parts) {
  parts.insert(parts.begin(), Words{"--training.global_batch_size=24"});  // 8 divides it, and 6
  return short_training::configure(parts);
}

Trained train(const std::vector<Words>& parts) { return short_training::train(configure(parts)); }

/// Ranks whose sums are those of a single process.
bool is_exact(const Place& place) { return place.ranks != 3 && place.ranks != 6; }

// With it, a gradient of one micro-batch fits into float16, and the sum of 24 does not.
const Words kScale = {"--fp16.initial_scale_power=16", "--fp16.hysteresis=100"};

}  // namespace

TEST_CASE("scaled before or after they are summed, gradients have the same bits",
          "[train][prescale]") {
  for (const Words& how : {Words{}, {"--training.no_sync=true", "--training.max_norm=0"}}) {
    for (const Place& place : all_places()) {
      const Words where = place.words();
      const RunResult after = train({how, where}).result;
      const RunResult before = train({how, where, kPrescaled}).result;
      INFO(place.name());
      CHECK(before.losses == after.losses);
      CHECK(before.param_sha256 == after.param_sha256);
      CHECK(before.peak_bytes == bound_bytes(configure({how, where})));
    }
  }
}

TEST_CASE("a sum that overflows in float16 does not if its terms were scaled before",
          "[train][prescale]") {
  const Words wide = policy("float16", "float32"), narrow = policy("float16", "float16");
  // What 1/32 of the scale gives: 32 is the next power of two after 24.
  const RunResult low = train({narrow, {"--fp16.initial_scale_power=11"}}).result;
  for (const Place& place : all_places()) {
    const Words where = place.words();
    INFO(place.name());
    CHECK(skipped(train({wide, kScale, where})) == 0);
    CHECK(skipped(train({narrow, kScale, where})) == 4);
    const Trained before = train({narrow, kScale, where, kPrescaled});
    CHECK(skipped(before) == 0);
    if (!is_exact(place)) continue;
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
  for (const Place& place : all_places()) {
    const Words where = place.words();
    if (!is_exact(place)) continue;
    INFO(place.name());
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

TEST_CASE("the program scales gradients before they are summed", "[train][prescale][program]") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and the dog sat on the log. ";
  io::write_text_atomically(folder / "text.txt", text);
  const auto run = [&](const std::string& more) {
    const testing::Finished finished = testing::run_command(
        folder,
        "'" FSDP_TRAIN_PROGRAM
        "' --model.preset=nano --model.vocab_size=127 --training.seq_len=7 "
        "--training.local_batch_size=1 --training.global_batch_size=24 "
        "--training.steps=2 --training.mixed_precision_param=float16 "
        "--training.mixed_precision_reduce=float16 --strategy fsdp --ranks 3 --data.path='" +
            (folder / "text.txt").string() + "' " + more);
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    return finished.out;
  };
  const std::string overflow = "a gradient overflowed at loss scale 65536";
  CHECK_THAT(run(""), contains(overflow));
  CHECK(run("--training.prescale_gradients true").find(overflow) == std::string::npos);
}

TEST_CASE("the key of prescaling: wrong values, and where it has no effect", "[config][prescale]") {
  CHECK_THAT(message_of<InputError>([&] { configure({{"--training.prescale_gradients=1"}}); }),
             contains("training.prescale_gradients: is 1, must be true or false"));
  CHECK(configure({kPrescaled}).remarks.empty());
  CHECK(configure({kPrescaled}).recipe.plan().loss_scale == 1.0 / 32);
  CHECK(configure({}).recipe.plan().loss_scale == 1);
  const auto remarks = configure({kPrescaled, {"--training.global_batch_size=1"}}).remarks;
  REQUIRE(remarks.size() == 1);
  CHECK_THAT(remarks[0], contains("has no effect while a step has one micro-batch"));
}

TEST_CASE("a resumed training may prescale anew unless something is in float16",
          "[config][prescale]") {
  const std::string key = "training.prescale_gradients";
  CHECK(may_differ(configure({}), key));
  CHECK(may_differ(configure({{"--training.mixed_precision_param=bfloat16"}}), key));
  for (const char* word :
       {"--training.mixed_precision_param=float16", "--training.mixed_precision_reduce=float16",
        "--parallel.gradient_compression=float16"}) {
    INFO(word);
    CHECK_FALSE(may_differ(configure({{word}}), key));
  }
}

}  // namespace fsdp::train::prescale_test
