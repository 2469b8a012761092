// ZeRO-1 and ZeRO-2 through unshard-train: the bits of a single process, and bytes by formula.
#include "comm/thread_world.h"
#include "device/context.h"
#include "io/file_io.h"
#include "strategies/model_files.h"
#include "strategies/trained_model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/evaluation.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::train::zero_test {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

config::TrainConfig configure(const std::vector<Words>& parts) {
  Words words = {"--model.preset=nano",  "--model.vocab_size=128",
                 "--training.seq_len=7", "--training.local_batch_size=1",
                 "--training.steps=4",   "--training.global_batch_size=8"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return config::load_config(std::nullopt, words);
}

const Words kMixed = {"--training.mixed_precision_param=bfloat16",
                      "--training.mixed_precision_reduce=float32"};

RunResult train(const std::vector<Words>& parts) {
  return run_training(configure(parts), some_text());
}

Words placed(const std::string& name, int ranks, const std::string& partition = "") {
  Words words = {"--parallel.strategy=" + name, "--parallel.ranks=" + std::to_string(ranks)};
  if (!partition.empty()) words.push_back("--parallel.zero_partition=" + partition);
  return words;
}

}  // namespace

TEST_CASE("ZeRO with every elementwise optimizer: the bits of a single process, and the bound",
          "[train][zero][optimizer]") {
  const Words optimizer = GENERATE(
      Words{"--optimizer.name=sgd", "--optimizer.lr=1e-1", "--optimizer.momentum=0.9"},
      Words{"--optimizer.name=adamw", "--optimizer.lr=1e-2", "--optimizer.decay_norms=false"},
      Words{"--optimizer.name=adam", "--optimizer.lr=1e-2", "--optimizer.weight_decay=0.01"},
      Words{"--optimizer.name=adamax", "--optimizer.lr=1e-2"},
      Words{"--optimizer.name=adagrad", "--optimizer.lr=1e-1", "--optimizer.lr_decay=0.1"},
      Words{"--optimizer.name=adadelta", "--optimizer.lr=1"});
  for (const Words& precision : {Words{}, {"--training.mixed_precision_param=bfloat16"}}) {
    const RunResult single = train({optimizer, precision});
    for (const char* name : {"zero1", "zero2"}) {
      for (const auto& [ranks, partition] : {std::pair(1, "flat"),
                                             {2, "greedy"},
                                             {2, "flat"},
                                             {3, "flat"},
                                             {4, "greedy"},
                                             {8, "flat"}}) {
        if (FSDP_SANITIZED && ranks != 3 && ranks != 4) continue;
        INFO(optimizer[0] << " " << name << " W=" << ranks << " " << partition);
        Words where = placed(name, ranks, partition);
        if (ranks == 3) where.emplace_back("--training.global_batch_size=6");
        if (ranks == 4) where.emplace_back("--training.no_sync=true");
        const RunResult result = train({optimizer, precision, where});
        CHECK(result.peak_bytes == bound_bytes(configure({optimizer, precision, where})));
        if (ranks == 3) continue;  // adds up in another order
        CHECK(result.losses == single.losses);
        CHECK(result.param_sha256 == single.param_sha256);
      }
    }
  }
}

TEST_CASE("ZeRO with a scaled loss: all ranks skip the same steps", "[train][zero]") {
  const Words scaled = {"--training.mixed_precision_param=float16",
                        "--training.mixed_precision_reduce=float16",
                        "--fp16.initial_scale_power=24", "--fp16.hysteresis=1"};
  const RunResult single = train({scaled});
  CHECK(train({scaled, {"--fp16.initial_scale_power=8"}}).param_sha256 != single.param_sha256);
  for (const char* name : {"zero1", "zero2"}) {
    CHECK(train({scaled, placed(name, 4, "flat")}).param_sha256 == single.param_sha256);
  }
}

TEST_CASE("LoRA under ZeRO: the adapters alone have owners", "[train][zero][lora]") {
  const Words lora = {"--lora.rank=2", "--optimizer.lr=1e-2"};
  const RunResult single = train({lora});
  for (const char* name : {"zero1", "zero2"}) {
    for (const char* partition : {"greedy", "flat"}) {
      const Words where = placed(name, 4, partition);
      const RunResult result = train({lora, where});
      CHECK(result.param_sha256 == single.param_sha256);
      CHECK(result.peak_bytes == bound_bytes(configure({lora, where})));
    }
  }
}

// OSS receives 2·(W-1)/W·N for the all-reduce and N for the broadcast. Chapter 0's ZeRO-1 would
// reduce-scatter and all-gather: 2·(W-1)/W·N in all.
TEST_CASE("ZeRO receives the bytes of the formula", "[train][zero]") {
  constexpr std::int64_t kMicroSteps = 2;
  for (const bool no_sync : {false, true}) {
    for (const bool halves : {false, true}) {
      for (const std::int64_t W : {1, 2, 4, 8}) {
        if (FSDP_SANITIZED && W != 2) continue;
        for (const char* partition : {"greedy", "flat"}) {
          const auto received = [&](const char* name, const Words& precision = {}) {
            const config::TrainConfig config =
                configure({placed(name, static_cast<int>(W), partition),
                           precision,
                           {"--training.global_batch_size=" + std::to_string(kMicroSteps * W),
                            "--training.max_norm=0", "--training.steps=2",
                            std::string("--training.no_sync=") + (no_sync ? "true" : "false"),
                            std::string("--parallel.broadcast_fp16=") + (halves ? "true" : "false"),
                            "--parallel.reduce_buffer_size=1000"}});
            return run_training(config, some_text()).comm_bytes / config.training.steps;
          };
          const std::int64_t N = configure({}).model.parameter_count();
          const std::int64_t reductions = no_sync ? 1 : kMicroSteps;
          const std::int64_t told = (W - 1) * 4 * (kMicroSteps + 2);  // losses, and two flags
          const std::int64_t broadcast = W == 1 ? 0 : (halves ? 2 : 4) * N;
          CAPTURE(no_sync, halves, W, partition);
          CHECK(received("zero1") == reductions * 2 * (W - 1) * 4 * N / W + broadcast + told);
          CHECK(received("zero2") == (W == 1 ? 0 : reductions * 4 * N) + broadcast + told);
          // The model reads 16 bits, and gradients are summed in 32.
          const std::int64_t in_halves = W == 1 ? 0 : 2 * N;
          CHECK(received("zero1", kMixed) ==
                reductions * 2 * (W - 1) * 4 * N / W + in_halves + told);
          CHECK(received("zero2", kMixed) == (W == 1 ? 0 : reductions * 4 * N) + in_halves + told);
        }
      }
    }
  }
}

TEST_CASE("a training goes on from ZeRO as anything, and as ZeRO from anything",
          "[train][zero][checkpoint]") {
  const Words how = GENERATE(Words{}, kMixed, Words{"--lora.rank=2", "--optimizer.lr=1e-2"});
  const RunResult whole = train({how});
  const std::vector<std::pair<Words, Words>> cases = {
      {placed("zero1", 4, "greedy"), placed("single", 1)},
      {placed("zero1", 8, "flat"), placed("zero2", 2, "greedy")},
      {placed("zero2", 4, "flat"), placed("fsdp", 2)},
      {placed("zero2", 2, "greedy"), placed("ddp", 4)},
      {placed("zero1", 2, "greedy"), placed("zero1", 2, "flat")},
      {placed("single", 1), placed("zero2", 8, "flat")},
      {placed("ddp", 2), placed("zero1", 4, "greedy")},
      {placed("fsdp", 4), placed("zero2", 1, "greedy")}};
  int number = 0;
  for (const auto& [first, second] : cases) {
    if (FSDP_SANITIZED && number++ % 3 != 0) continue;  // a part of the cases is enough there
    INFO(first[0] << " " << first[1] << ", then " << second[0] << " " << second[1]);
    const TemporaryFolder folder;
    const Words there = {"--checkpoint.folder=" + folder.path().string()};
    train({how, first, there, {"--training.steps=2"}});
    const RunResult rest = train({how, second, there});
    CHECK(rest.first_step == 2);
    CHECK(rest.param_sha256 == whole.param_sha256);
    CHECK(run_evaluation(configure({how, first, there}), some_text()).loss ==
          run_evaluation(configure({how, there}), some_text()).loss);
  }
}

TEST_CASE("every rank of ZeRO writes what it owns, once", "[train][zero][checkpoint]") {
  const Words how = GENERATE(Words{}, kMixed);
  const TemporaryFolder folder;
  train({placed("zero2", 4, "flat"), how, {"--checkpoint.folder=" + folder.path().string()}});
  std::vector<std::uintmax_t> sizes;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (each.path().extension() == ".safetensors") sizes.push_back(each.file_size());
  }
  REQUIRE(sizes.size() == 4);
  const auto N = static_cast<std::uintmax_t>(configure({}).model.parameter_count());
  for (const std::uintmax_t size : sizes) CHECK(size < 3 * 4 * N / 4 + 20'000);
}

TEST_CASE("one rank of ZeRO exports the model", "[train][zero][export]") {
  const TemporaryFolder home;
  const auto exported = [&](const Words& words, const char* name) {
    RunOptions options;
    options.export_folder = (home / name).string();
    run_training(configure({words}), some_text(), options);
    return io::read_text(home / name / "model.safetensors");
  };
  const Words how = GENERATE(Words{}, kMixed);
  const auto with = [&](Words words) {
    words.insert(words.end(), how.begin(), how.end());
    return words;
  };
  const std::string single = exported(how, "single");
  CHECK(exported(with(placed("zero1", 2, "flat")), "zero1") == single);
  CHECK(exported(with(placed("zero2", 4, "greedy")), "zero2") == single);
}

TEST_CASE("ZeRO in 16 bits: building and exporting a model hold one float32 parameter at a time",
          "[train][zero][export]") {
  for (const char* partition : {"greedy", "flat"}) {
    const config::TrainConfig config = configure({placed("zero2", 4, partition), kMixed});
    const std::int64_t N = config.model.parameter_count();
    const std::int64_t largest = config.model.vocab_size * config.model.hidden_size;
    const TemporaryFolder home;
    std::vector<std::int64_t> held(4), building(4), exporting(4);
    threads::run_ranks({.world_size = 4}, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      MemoryTracker& tracker = Context::current().tracker();
      const auto made = strategies::make_trained_model(config, borrowed(group));
      held[rank] = tracker.current()[MemoryKind::unsharded_param];
      building[rank] = tracker.peak()[MemoryKind::unsharded_param];
      tracker.reset_peak();
      save_full(*made, home / "model", {});
      exporting[rank] = tracker.peak().total() - tracker.current().total();
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      CAPTURE(partition, rank);
      CHECK(building[rank] <= held[rank] + 4 * largest);
      CHECK(building[rank] < 4 * N);
      CHECK(exporting[rank] == 4 * largest);
    }
    CHECK(std::accumulate(held.begin(), held.end(), std::int64_t{0}) == 4 * 2 * N + 4 * N);
  }
}

TEST_CASE("a broadcast in float16 rounds, the same at every W, and a checkpoint says so",
          "[train][zero][checkpoint]") {
  const Words halves = {"--parallel.broadcast_fp16=true", "--optimizer.lr=1e-2"};
  const RunResult exact = train({{"--optimizer.lr=1e-2"}});
  const RunResult rounded = train({halves, placed("zero1", 1)});
  CHECK(rounded.param_sha256 != exact.param_sha256);
  CHECK(rounded.losses[0] == exact.losses[0]);  // the initial weights are not rounded
  for (std::size_t i = 1; i < exact.losses.size(); ++i) {
    CHECK(std::abs(rounded.losses[i] - exact.losses[i]) < 1e-2F * exact.losses[i]);
  }
  for (const char* name : {"zero1", "zero2"}) {
    for (const char* partition : {"greedy", "flat"}) {
      CHECK(train({halves, placed(name, 4, partition)}).param_sha256 == rounded.param_sha256);
    }
  }
  const TemporaryFolder folder;
  const Words there = {"--checkpoint.folder=" + folder.path().string(), "--training.steps=2"};
  train({halves, placed("zero1", 2), there});
  CHECK_THAT(message_of<InputError>([&] {
               train({{"--optimizer.lr=1e-2"}, there});
             }),
             contains("was saved with parallel.broadcast_fp16 = true, now it is false; use "
                      "--parallel.strategy zero1 or zero2 with --parallel.broadcast_fp16 true"));
  CHECK(train({halves, placed("zero2", 4), there, {"--training.steps=4"}}).param_sha256 ==
        rounded.param_sha256);
}

TEST_CASE("keys of ZeRO: wrong values, and where they have no effect", "[config][zero]") {
  const auto complaint = [](const Words& words) {
    return message_of<InputError>([&] { configure({words}); });
  };
  CHECK_THAT(complaint({"--parallel.strategy=zero3"}),
             contains("must be one of single, ddp, zero1, zero2, fsdp"));
  CHECK_THAT(complaint({"--parallel.zero_partition=sorted"}),
             contains("one of greedy, flat, round_robin"));
  CHECK_THAT(complaint({"--parallel.reduce_buffer_size=-1"}), contains("between 0 and 1e+18"));
  CHECK_THAT(complaint({"--parallel.broadcast_fp16=1"}), contains("must be true or false"));
  const Words all = {"--parallel.zero_partition=flat", "--parallel.reduce_buffer_size=4",
                     "--parallel.broadcast_fp16=true"};
  const auto remarks = [&](const char* name) {
    return configure({placed(name, name == std::string("single") ? 1 : 2), all}).remarks;
  };
  CHECK(remarks("zero2").empty());
  REQUIRE(remarks("zero1").size() == 1);
  CHECK_THAT(remarks("zero1")[0], contains("parallel.reduce_buffer_size: has no effect without "
                                           "parallel.strategy zero2"));
  for (const char* name : {"single", "ddp", "fsdp"}) {
    REQUIRE(remarks(name).size() == 3);
    CHECK_THAT(remarks(name)[0], contains("without parallel.strategy zero1 or zero2"));
  }
  // What has no effect changes no bit, and no checkpoint asks for it.
  CHECK(train({placed("ddp", 2), all}).param_sha256 == train({}).param_sha256);
}

}  // namespace fsdp::train::zero_test
