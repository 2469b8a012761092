// Trainings with every optimizer: the same bits for every strategy, and the bytes of the formula.
#include "base/check.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/short_training.h"

#include <string>
#include <utility>
#include <vector>

namespace fsdp::train::optimizers_test {
namespace {

using short_training::placed;
using short_training::Words;
using testing::TemporaryFolder;

config::TrainConfig configure(std::vector<Words> parts) {
  parts.insert(parts.begin(), Words{"--training.global_batch_size=8"});
  return short_training::configure(parts);
}

RunResult train(const std::vector<Words>& parts) {
  return short_training::train(configure(parts)).result;
}

const std::vector<Words>& all_optimizers() {
  static const std::vector<Words> all = {
      {"--optimizer.name=sgd", "--optimizer.lr=1e-1", "--optimizer.momentum=0.9"},
      {"--optimizer.name=adamw", "--optimizer.lr=1e-2"},
      {"--optimizer.name=adam", "--optimizer.lr=1e-2", "--optimizer.weight_decay=0.01"},
      {"--optimizer.name=adamax", "--optimizer.lr=1e-2", "--optimizer.beta2=0.999"},
      {"--optimizer.name=adagrad", "--optimizer.lr=1e-1", "--optimizer.eps=1e-10",
       "--optimizer.lr_decay=0.1", "--optimizer.initial_accumulator_value=0.1"},
      {"--optimizer.name=adadelta", "--optimizer.lr=1", "--optimizer.eps=1e-6"},
      {"--optimizer.name=lion", "--optimizer.lr=1e-3", "--optimizer.beta2=0.99"}};
  return all;
}

}  // namespace

TEST_CASE("every optimizer gives the same bits for every strategy", "[train][optimizer]") {
  const Words mixed = {"--training.mixed_precision_param=bfloat16"};
  for (const Words& optimizer : all_optimizers()) {
    for (const Words& precision : {Words{}, mixed}) {
      const RunResult single = train({optimizer, precision});
      CHECK(single.losses.back() < single.losses.front());
      CHECK(single.param_sha256 != train({precision}).param_sha256);
      for (const char* name : {"ddp", "fsdp"}) {
        for (const int ranks : {1, 2, 3, 4}) {
          if (FSDP_SANITIZED && ranks != 3) continue;
          INFO(optimizer[0] << " " << name << " W=" << ranks);
          Words where = placed(name, ranks);
          if (ranks == 3) where.emplace_back("--training.global_batch_size=6");
          const RunResult sharded = train({optimizer, precision, where});
          CHECK(sharded.peak_bytes == bound_bytes(configure({optimizer, precision, where})));
          if (ranks == 3) continue;  // adds up in another order
          CHECK(sharded.losses == single.losses);
          CHECK(sharded.param_sha256 == single.param_sha256);
        }
      }
      CHECK(train({optimizer, precision, placed("fsdp", 2), {"--training.no_sync=true"}})
                .param_sha256 == single.param_sha256);
    }
  }
}

TEST_CASE("the state of every optimizer is saved, and resumed at another W",
          "[train][checkpoint][optimizer]") {
  for (const Words& optimizer : all_optimizers()) {
    INFO(optimizer[0]);
    const RunResult whole = train({optimizer});
    const std::vector<std::pair<Words, Words>> ways = {{placed("fsdp", 4), placed("single", 1)},
                                                       {placed("single", 1), placed("fsdp", 2)},
                                                       {placed("ddp", 2), placed("fsdp", 4)}};
    for (const auto& [first, second] : ways) {
      const TemporaryFolder folder;
      const Words there = {"--checkpoint.folder=" + folder.path().string()};
      train({optimizer, first, there, {"--training.steps=2"}});
      const RunResult rest = train({optimizer, second, there});
      CHECK(rest.first_step == 2);
      CHECK(rest.param_sha256 == whole.param_sha256);
      const std::string name = optimizer[0].substr(17);
      const Words other = {"--optimizer.name=" + std::string(name == "adamw" ? "adam" : "adamw")};
      const std::string message = message_of<InputError>([&, again = second] {
        train({again, there, other});
      });
      CHECK_THAT(message, contains("optimizer.name = " + name));
    }
  }
}

TEST_CASE("keys that an optimizer does not look at have no effect, and the user learns it",
          "[train][config][optimizer]") {
  const auto remarks = [](const Words& words) { return configure({words}).remarks; };
  CHECK(remarks({"--optimizer.name=adadelta", "--optimizer.rho=0.8"}).empty());
  CHECK(remarks({"--optimizer.name=adagrad", "--optimizer.lr_decay=0.1"}).empty());
  CHECK(remarks({"--optimizer.name=adamax", "--optimizer.beta1=0.8"}).empty());
  for (const char* name : {"adamw", "adam", "adamax"}) {
    const Words words = {std::string("--optimizer.name=") + name, "--optimizer.rho=0.8",
                         "--optimizer.lr_decay=0.1", "--optimizer.momentum=0.5"};
    REQUIRE(remarks(words).size() == 3);
    CHECK_THAT(
        remarks(words)[0],
        contains(std::string("optimizer.momentum: has no effect with optimizer.name ") + name));
  }
  // A checkpoint does not ask for them.
  const TemporaryFolder folder;
  const Words there = {"--checkpoint.folder=" + folder.path().string()};
  train({there, {"--training.steps=1"}});
  CHECK(train({there, {"--optimizer.rho=0.5"}}).first_step == 1);
}

}  // namespace fsdp::train::optimizers_test
