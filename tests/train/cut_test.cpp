// A step of a global batch is the same sequences however it is cut into micro-batches and ranks. So
// gradient accumulation equals the large batch up to rounding, and a training goes on when its cut
// changes.
#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "io/sharded_checkpoint.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/run_state.h"
#include "train/short_training.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace fsdp::train::cut {
namespace {

using short_training::configure;
using short_training::placed;
using short_training::policy;
using short_training::Words;
using testing::TemporaryFolder;

struct Step {
  double loss;
  double norm;
};

std::vector<Step> steps_of(const std::vector<Words>& parts) {
  std::vector<Step> steps;
  RunOptions options;
  options.on_step = [&](const StepReport& step) { steps.push_back({step.loss, step.norm}); };
  run_training(configure(parts), some_text(), options);
  return steps;
}

Words of_batch(int sequences) { return {fmt::format("--training.local_batch_size={}", sequences)}; }

// Different sequences have losses that differ by a thousandth, and norms by a tenth.
void check_near(const std::vector<Step>& ours, const std::vector<Step>& theirs, double loss,
                double norm) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(std::abs(ours[i].loss - theirs[i].loss) < loss * theirs[i].loss);
    CHECK(std::abs(ours[i].norm - theirs[i].norm) < norm * theirs[i].norm);
  }
}

const std::vector<const char*> kStrategies = {"single", "ddp", "zero1", "zero2", "fsdp"};

}  // namespace

TEST_CASE("a step has the same sequences however it is cut", "[train][data]") {
  const TokenData data = some_text();
  constexpr int kGlobal = 12;
  Sampler one(data, 1, 1, 7);
  std::vector<std::int64_t> expected;
  for (int place = 0; place < kGlobal; ++place) expected.push_back(one.window(3, place, 0));
  for (const int batch : {1, 2, 3, 4, 6, 12}) {
    const Sampler sampler(data, 1, batch, 7);
    for (int place = 0; place < kGlobal; ++place) {
      CHECK(sampler.window(3, place / batch, place % batch) ==
            expected[static_cast<std::size_t>(place)]);
    }
  }
  // Of one sequence, a micro-batch is what it always was.
  one.set_order(SequenceOrder::by_micro_batch);
  for (int j = 0; j < kGlobal; ++j) {
    CHECK(one.window(3, j, 0) == expected[static_cast<std::size_t>(j)]);
  }
}

TEST_CASE("accumulation-other-data: accumulation is the large batch up to rounding",
          "[train][data]") {
  const std::vector<std::pair<Words, double>> policies = {{policy("float32", "float32"), 1e-5},
                                                          {policy("bfloat16", "float32"), 1e-2}};
  for (const auto& [how, norm] : policies) {
    const Words two = {"--training.steps=2"};
    const std::vector<Step> whole = steps_of({how, two, of_batch(12)});
    for (const std::string strategy : kStrategies) {
      for (const int ranks : {1, 2, 3, 4}) {
        if (strategy == "single" && ranks > 1) continue;
        for (const int batch : {1, 2, 3, 4, 6}) {
          if (12 % (batch * ranks) != 0) continue;
          INFO(strategy << " W=" << ranks << " B=" << batch << " " << how.front());
          check_near(steps_of({how, two, placed(strategy, ranks), of_batch(batch)}), whole,
                     norm / 10, norm);
        }
      }
    }
  }
}

TEST_CASE("resume-other-micro-batch: a training goes on when its cut changes", "[train][resume]") {
  for (const auto& [param, norm] : {std::pair("float32", 1e-5), std::pair("bfloat16", 1e-2)}) {
    const Words how = policy(param, "float32");
    const std::vector<Step> whole = steps_of({how, of_batch(1)});
    for (const std::string strategy : kStrategies) {
      INFO(strategy << " " << param);
      const TemporaryFolder folder;
      const Words there = {"--checkpoint.folder=" + folder.path().string()};
      const bool is_single = strategy == "single";
      const auto part = [&](int ranks, int batch, int steps) {
        return steps_of({how,
                         there,
                         placed(strategy, is_single ? 1 : ranks),
                         of_batch(batch),
                         {fmt::format("--training.steps={}", steps)}});
      };
      std::vector<Step> steps = part(4, 1, 1);
      for (const auto& [ranks, batch] : {std::pair(2, 3), std::pair(3, 4), std::pair(1, 6)}) {
        const std::vector<Step> more = part(ranks, batch, static_cast<int>(steps.size()) + 1);
        REQUIRE(more.size() == 1);
        steps.push_back(more.front());
      }
      check_near(steps, whole, norm / 10, norm);
    }
  }
}

TEST_CASE("a checkpoint of the old order goes on in it, and only with its micro-batches",
          "[train][resume]") {
  std::map<std::string, std::string> saved = {{"training.local_batch_size", "2"}};
  CHECK(order_of(saved, "step_3") == SequenceOrder::by_micro_batch);
  saved["training.local_batch_size"] = "1";
  CHECK(order_of(saved, "step_3") == SequenceOrder::by_place);
  const config::TrainConfig config = configure({of_batch(2)});
  const auto old = describe_run(config, some_text(), 3, SequenceOrder::by_micro_batch);
  CHECK(order_of(old, "step_3") == SequenceOrder::by_micro_batch);
  saved = describe_run(config, some_text(), 3);
  CHECK(order_of(saved, "step_3") == SequenceOrder::by_place);
  CHECK_FALSE(saved.contains("training.local_batch_size"));
  saved["data.order"] = "length";
  CHECK_THAT(message_of<InputError>([&] { order_of(saved, "step_3"); }),
             contains("step_3: orders its sequences by \"length\", which is not known here"));

  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "step_3");
  io::write_slices(folder / "step_3", 0, 1, {}, old);
  CHECK(check_same_run(folder / "step_3", config, some_text()) == 3);
  CHECK_THAT(message_of<InputError>(
                 [&] { check_same_run(folder / "step_3", configure({of_batch(3)}), some_text()); }),
             contains("was saved with training.local_batch_size = 2, now it is 3; use the same"));
}

}  // namespace fsdp::train::cut
