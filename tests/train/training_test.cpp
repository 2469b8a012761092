// Whole trainings: every strategy gives the same bits, stopped or not, and what cannot be resumed
// is refused.
#include "train/trainer.h"

#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "io/hf_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/some_text.h"

#include <fstream>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;

config::TrainConfig make_config(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"--model.preset=nano",
                                  "--model.vocab_size=128",
                                  "--training.seq_len=8",
                                  "--training.local_batch_size=1",
                                  "--training.steps=6",
                                  "--training.global_batch_size=8",
                                  "--lr_scheduler.kind=warmup_cosine",
                                  "--optimizer.lr=1e-2",
                                  "--lr_scheduler.warmup_steps=2",
                                  "--lr_scheduler.total_steps=6"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return config::load_config(std::nullopt, all);
}

RunResult run(const std::vector<std::string>& overrides) {
  return run_training(make_config(overrides), some_text());
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> strategy(const std::string& name, int ranks) {
  return {"--parallel.strategy=" + name, "--parallel.ranks=" + std::to_string(ranks)};
}

std::vector<std::vector<std::string>> every_strategy() {
  return {strategy("single", 1), strategy("ddp", 2),  strategy("ddp", 3), strategy("fsdp", 1),
          strategy("fsdp", 2),   strategy("fsdp", 3), strategy("fsdp", 4)};
}

void check_same(const RunResult& a, const RunResult& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.param_sha256 == b.param_sha256);
}

// The last losses of `whole` are those of `rest`.
void check_continues(const RunResult& whole, const RunResult& rest) {
  CHECK(static_cast<std::size_t>(rest.first_step) + rest.losses.size() == whole.losses.size());
  CHECK(std::vector<float>(whole.losses.begin() + rest.first_step, whole.losses.end()) ==
        rest.losses);
  CHECK(whole.param_sha256 == rest.param_sha256);
}

}  // namespace

TEST_CASE("single, DDP and FSDP give the same bits", "[train]") {
  const RunResult single = run({});
  CHECK(single.losses.size() == 6);
  CHECK(single.comm_bytes == 0);
  for (const char* name : {"ddp", "fsdp"}) {
    for (const int ranks : {1, 2, 4}) {
      INFO(name << " W=" << ranks);
      const RunResult sharded = run(strategy(name, ranks));
      check_same(single, sharded);
      if (ranks > 1) CHECK(sharded.comm_bytes > 0);
    }
  }
  check_same(single,
             run(strategy("fsdp", 2) + std::vector<std::string>{"--training.no_sync=true"}));
  check_same(single, run(strategy("fsdp", 4) +
                         std::vector<std::string>{"--parallel.reshard_after_forward=2"}));
  check_same(single, run(strategy("fsdp", 2) +
                         std::vector<std::string>{"--parallel.reshard_after_forward=false",
                                                  "--parallel.prefetch_depth=0"}));
  check_same(single, run({"--parallel.threads_per_rank=2"}));
}

TEST_CASE("weight decay that spares the norms is the same in every strategy", "[train]") {
  const std::vector<std::string> spared = {"--optimizer.decay_norms=false"};
  const RunResult single = run(spared);
  CHECK(single.param_sha256 != run({}).param_sha256);
  for (const int ranks : {1, 2, 4}) {
    INFO("W=" << ranks);
    const std::vector<std::string> options = strategy("fsdp", ranks) + spared;
    const RunResult sharded = run(options);
    CHECK(sharded.peak_bytes == bound_bytes(make_config(options)));
    check_same(single, sharded);
    check_same(single, run(strategy("ddp", ranks) + spared));
  }
}

TEST_CASE("another seed is another training", "[train]") {
  CHECK(run({}).param_sha256 != run({"--training.seed=2"}).param_sha256);
}

TEST_CASE("FSDP needs less memory than a single process", "[train]") {
  CHECK(run(strategy("fsdp", 4)).peak_bytes < run({}).peak_bytes);
}

TEST_CASE("the loss falls quickly on real text", "[train]") {
  const RunResult result =
      run({"--training.steps=40", "--lr_scheduler.kind=constant", "--training.local_batch_size=4",
           "--training.global_batch_size=32"});
  CHECK(result.losses.front() > 4.5F);  // ln 128 = 4.85
  CHECK(result.losses.back() < 3.0F);
}

TEST_CASE("a stopped training goes on with the same bits", "[train][checkpoint]") {
  const RunResult whole = run({});
  struct Case {
    std::vector<std::string> first, second;
  };
  const std::vector<Case> cases = {{{}, {}},
                                   {strategy("ddp", 2), {}},
                                   {strategy("fsdp", 4), strategy("fsdp", 2)},
                                   {strategy("fsdp", 2), strategy("fsdp", 3 - 2)},
                                   {strategy("fsdp", 2), {}},
                                   {{}, strategy("fsdp", 4)}};
  for (const Case& each : cases) {
    const TemporaryFolder folder;
    const std::vector<std::string> there = {"--checkpoint.folder=" + folder.path().string()};
    const RunResult first =
        run(each.first + there + std::vector<std::string>{"--training.steps=3"});
    CHECK(first.losses.size() == 3);
    const RunResult second = run(each.second + there);
    CHECK(second.first_step == 3);
    check_continues(whole, second);
    // A third time there is nothing left to do.
    const RunResult third = run(each.second + there);
    CHECK(third.losses.empty());
    CHECK(third.param_sha256 == whole.param_sha256);
  }
}

TEST_CASE("checkpoints are made as often as asked", "[train][checkpoint]") {
  const TemporaryFolder folder;
  run({"--checkpoint.folder=" + folder.path().string(), "--checkpoint.interval=4"});
  CHECK(std::filesystem::exists(folder / "step_4"));
  CHECK(std::filesystem::exists(folder / "step_6"));
  CHECK_FALSE(std::filesystem::exists(folder / "step_3"));
  // From an earlier one the same end is reached.
  io::write_text_atomically(folder / "latest", "step_4\n");
  check_continues(run({}), run({"--checkpoint.folder=" + folder.path().string()}));
}

TEST_CASE("a checkpoint of another training is refused", "[train][checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<std::string> there = {"--checkpoint.folder=" + folder.path().string()};
  run(there + std::vector<std::string>{"--training.steps=2"});
  const auto refuse = [&](const std::vector<std::string>& change, const std::string& part) {
    for (const auto& how : {std::vector<std::string>{}, strategy("fsdp", 2)}) {
      const std::string message = message_of<InputError>([&] { run(there + how + change); });
      CHECK_THAT(message, contains((folder / "step_2").string()) && contains(part));
    }
  };
  refuse({"--training.seed=2"}, "saved with training.seed = 1, now it is 2");
  refuse({"--training.global_batch_size=16"}, "training.global_batch_size = 8, now it is 16");
  refuse({"--optimizer.name=sgd"}, "optimizer.name = adamw");
  refuse({"--model.intermediate_size=44"}, "model.intermediate_size = 40, now it is 44");
  refuse({"--model.num_hidden_layers=3"}, "model.num_hidden_layers = 2, now it is 3");
  CHECK_THAT(message_of<InputError>(
                 [&] { run(there + std::vector<std::string>{"--checkpoint.resume=false"}); }),
             contains("holds a training already (step_2)"));
  const TokenData other = TokenData::from_text(std::string(999, 'x'), "other", 128);
  CHECK_THAT(message_of<InputError>([&] { run_training(make_config(there), other); }),
             contains("data.crc32"));
}

TEST_CASE("a damaged checkpoint is refused by every strategy", "[train][checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<std::string> there = {"--checkpoint.folder=" + folder.path().string()};
  run(there + strategy("fsdp", 2) + std::vector<std::string>{"--training.steps=2"});
  const auto file = folder / "step_2/shard-00001-of-00002.safetensors";
  const std::string whole = io::read_text(file);
  const auto refused = [&](const std::string& part) {
    for (const auto& how : {std::vector<std::string>{}, strategy("fsdp", 2), strategy("ddp", 2)}) {
      const std::string message = message_of<InputError>([&] { run(there + how); });
      CHECK_THAT(message, contains(file.string()) && contains(part));
    }
  };
  const auto damage = [&](const std::string& text) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  };
  damage(whole.substr(0, whole.size() - 1));
  refused("not a complete safetensors file");
  damage(whole.substr(0, 100));
  refused("its header should take");
  std::string flipped = whole;
  flipped[whole.size() - 20] = static_cast<char>(flipped[whole.size() - 20] ^ 1);
  damage(flipped);
  refused("is damaged");
  std::filesystem::remove(file);
  refused("cannot be read");
  damage(whole);
  CHECK(run(there).first_step == 2);
}

TEST_CASE("the exported model is the trained one, whatever the strategy", "[train]") {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const auto& how : {std::vector<std::string>{}, strategy("fsdp", 3)}) {
    RunOptions options;
    options.export_folder = folder / std::to_string(files.size());
    // Three ranks cannot share a power of two: compare what they start from.
    run_training(make_config(how + std::vector<std::string>{"--training.steps=1",
                                                            "--training.global_batch_size=12",
                                                            "--optimizer.lr=0"}),
                 some_text(), options);
    CHECK(io::read_hf_config(options.export_folder + "/config.json").hidden_size == 16);
    files.push_back(io::read_text(options.export_folder + "/model.safetensors"));
  }
  CHECK(files[0] == files[1]);
}

TEST_CASE("every rank samples the same text", "[train]") {
  const std::vector<std::string> sampled = {"--sample.max_new_tokens=12", "--sample.prompt=the"};
  const RunResult single = run(sampled);
  CHECK(single.sample.size() == 15);
  CHECK(run(sampled + strategy("fsdp", 2)).sample == single.sample);
  CHECK_THAT(message_of<InputError>([&] {
               run({"--sample.max_new_tokens=1", "--sample.prompt=\xff"});
             }),
             contains("sample.prompt"));
}

TEST_CASE("what is not finite stops every strategy before it is saved", "[train][checkpoint]") {
  struct Case {
    std::vector<std::string> options;
    const char* part;
  };
  // Found by trying: an infinite gradient of a finite loss, a loss that is NaN, and a gradient of
  // which only the norm tells.
  const Case cases[] = {{{"--optimizer.name=sgd", "--optimizer.lr=1e6", "--training.max_norm=0"},
                         "its gradient is not"},
                        {{"--optimizer.lr=1e6", "--training.max_norm=0"}, "the loss is nan"},
                        {{"--optimizer.name=sgd", "--optimizer.lr=1e6", "--training.max_norm=1e30"},
                         "the gradient norm"}};
  const std::vector<std::string> base = {"--lr_scheduler.kind=constant", "--training.steps=60",
                                         "--training.global_batch_size=12",
                                         "--checkpoint.interval=1"};
  for (const Case& each : cases) {
    std::string first;
    for (const auto& how : every_strategy()) {
      const TemporaryFolder folder;
      const std::vector<std::string> there = {"--checkpoint.folder=" + (folder / "c").string()};
      RunOptions options;
      options.export_folder = folder / "export";
      std::string message = message_of<Error>([&] {
        run_training(make_config(base + each.options + there + how), some_text(), options);
      });
      INFO(each.part << ": " << how[0] << " " << how[1] << ": " << message);
      CHECK_THAT(message, contains("step ") && contains(each.part) && contains("lower") &&
                              contains("are all from before"));
      CHECK_FALSE(std::filesystem::exists(folder / "export"));
      // The last that was saved is whole: it can be resumed, and exported, which is checked too.
      const auto latest = io::CheckpointFolder(folder / "c").latest();
      REQUIRE(latest);
      const std::string step = latest->filename().string().substr(5);
      const RunResult resumed =
          run_training(make_config(base + each.options + there + how +
                                   std::vector<std::string>{"--training.steps=" + step}),
                       some_text(), options);
      CHECK(resumed.first_step == std::stoll(step));
      CHECK(std::filesystem::exists(folder / "export"));
    }
  }
}

TEST_CASE("a parameter that a finite gradient makes infinite is never written",
          "[train][checkpoint]") {
  const std::vector<std::string> base = {"--lr_scheduler.kind=constant",
                                         "--training.global_batch_size=12"};
  const std::vector<std::string> once = {"--training.steps=1"}, twice = {"--training.steps=2"};
  const auto run_wildly = [](config::TrainConfig config, const RunOptions& options) {
    config.schedule.lr = 1e39;  // more than a float holds, and than a configuration may say
    return message_of<Error>([&] { run_training(config, some_text(), options); });
  };
  for (const auto& how : every_strategy()) {
    const TemporaryFolder folder;
    const std::vector<std::string> there = {"--checkpoint.folder=" + (folder / "c").string()};
    RunOptions options;
    options.export_folder = folder / "export";
    INFO(how[0] << " " << how[1]);
    const std::string part = ": its gradient was finite, but a parameter is not any more";
    // Without a checkpoint, the export is what must not be written.
    CHECK_THAT(run_wildly(make_config(base + how + once), options), contains("step 1" + part));
    CHECK_FALSE(std::filesystem::exists(folder / "export"));

    run(base + how + there + once);
    CHECK_THAT(run_wildly(make_config(base + how + there + twice), options),
               contains("step 2" + part) && contains("are all from before"));
    CHECK_FALSE(std::filesystem::exists(folder / "export"));
    CHECK_FALSE(std::filesystem::exists(folder / "c/step_2"));
    CHECK(io::CheckpointFolder(folder / "c").latest() == folder / "c/step_1");
    check_continues(run(base + how + twice), run(base + how + there + twice));
  }
}

TEST_CASE("asked to stop, all ranks end after the same step", "[train][checkpoint]") {
  const RunResult whole = run({});
  for (const auto& how : {strategy("single", 1), strategy("ddp", 2), strategy("fsdp", 1),
                          strategy("fsdp", 2), strategy("fsdp", 4)}) {
    INFO(how[0] << " " << how[1]);
    const TemporaryFolder folder;
    const std::vector<std::string> there = {"--checkpoint.folder=" + (folder / "c").string()};
    RunOptions options;
    options.export_folder = folder / "export";
    int polls = 0;
    bool is_trained = false;
    options.poll_stop = [&] { return ++polls < 3 ? 0 : 15; };
    options.on_trained = [&] { is_trained = true; };
    const RunResult stopped = run_training(make_config(how + there), some_text(), options);
    CHECK(stopped.stopped_by == 15);
    CHECK(stopped.losses.size() == 3);
    CHECK(polls == 3);
    CHECK(is_trained);
    CHECK(stopped.sample.empty());
    CHECK_FALSE(std::filesystem::exists(folder / "export"));
    check_continues(whole, run(how + there));
  }
}

TEST_CASE("a checkpoint after more steps than asked for is refused", "[train][checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<std::string> there = {"--checkpoint.folder=" + folder.path().string()};
  run(there);
  for (const auto& how : {strategy("single", 1), strategy("ddp", 2), strategy("fsdp", 4)}) {
    const std::string message = message_of<InputError>([&] {
      run(there + how +
          std::vector<std::string>{"--training.steps=4", "--training.global_batch_size=8"});
    });
    CHECK_THAT(message, contains("training.steps: is 4, but") && contains("after step 6"));
  }
}

}  // namespace fsdp::train
