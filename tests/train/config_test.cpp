// What a user may write, and what is said about what he may not.
#include "train/config.h"

#include "base/check.h"
#include "nn/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;

std::string complaint(const std::vector<std::string>& overrides) {
  return message_of<InputError>([&] { load_config(std::nullopt, overrides); });
}

// The message about a file of this text, which must name the file.
std::string complaint_about(const std::string& text) {
  const TemporaryFolder folder;
  nn::write_text_atomically(folder / "run.toml", text);
  const std::string message = message_of<InputError>([&] { load_config(folder / "run.toml", {}); });
  CHECK_THAT(message, contains((folder / "run.toml").string()));
  return message;
}

}  // namespace

TEST_CASE("an override beats the file, and the file beats the default", "[config]") {
  const TemporaryFolder folder;
  nn::write_text_atomically(folder / "run.toml",
                            "[model]\npreset = \"nano\"\nheads = 4\n"
                            "[training]\nsteps = 7\nclip = 2\nno_sync = true\n"
                            "[schedule]\nkind = \"warmup_cosine\"\nlr = 1e-3\n");
  const TrainConfig config = load_config(
      folder / "run.toml", {"--training.steps", "9", "--data.path=x=y", "--training.steps=11"});
  CHECK(config.model.width == 16);
  CHECK(config.model.heads == 4);
  CHECK(config.training.steps == 11);
  CHECK(config.training.clip == 2.0);
  CHECK(config.training.no_sync);
  CHECK(config.training.seed == 1);
  CHECK(config.data.path == "x=y");
  CHECK(config.schedule.total == 11);
  CHECK(config.schedule.kind == optim::Schedule::Kind::warmup_cosine);
  CHECK(config.sequence_length() == 8);
}

TEST_CASE("the configurations of the repository are right", "[config]") {
  const std::filesystem::path folder = FSDP_PROJECT_ROOT "/apps/train/configs";
  const auto load = [&](const char* name) { return load_config(folder / name, {}); };
  CHECK(load("tiny.toml").model.width == 128);
  CHECK(load("tiny.toml").micro_batches() == 8);
  CHECK(load("small.toml").model.width == 384);
  CHECK(load("gpt2_124m.toml").model.tie_embeddings);
  CHECK(load("gpt2_xl.toml").model.parameter_count() == 2'127'208'000);
}

TEST_CASE("an unknown key is named, with the one that was meant", "[config]") {
  CHECK_THAT(complaint_about("[training]\nsteps = 3\nlocal_batchsize = 4\n"),
             contains(":3: unknown key training.local_batchsize; did you mean "
                      "training.local_batch_size?"));
  CHECK_THAT(complaint_about("[trainin]\nsteps = 3\n"),
             contains(":2: unknown key trainin.steps; did you mean training.steps?"));
  CHECK_THAT(complaint_about("[cucumber]\n"), contains("unknown key cucumber; --help"));
  CHECK_THAT(complaint_about("training = 5\n"), contains("unknown key training"));
  CHECK_THAT(complaint({"--model.widht", "64"}),
             contains("command line: unknown key model.widht; did you mean model.width?"));
  // The misspelt key is why the batch does not fit: it is said first.
  CHECK_THAT(complaint({"--training.global_batch_size", "8", "--training.local_batch_sice", "8",
                        "--training.local_batch_size", "5"}),
             contains("local_batch_sice"));
}

TEST_CASE("a value of the wrong type says which is right", "[config]") {
  CHECK_THAT(complaint_about("[training]\nsteps = \"many\"\n"),
             contains(":2: training.steps: needs a whole number, got the text \"many\""));
  CHECK_THAT(complaint_about("[training]\nsteps = 2.5\n"),
             contains("training.steps: needs a whole number, got 2.5"));
  CHECK_THAT(complaint_about("[training]\nsteps = [1]\n"), contains("a list"));
  CHECK_THAT(complaint_about("[training]\nno_sync = 1\n"),
             contains("training.no_sync: needs true or false, got 1"));
  CHECK_THAT(complaint_about("[data]\npath = 3\n"), contains("data.path: needs a text in quotes"));
  CHECK_THAT(complaint_about("[schedule]\nlr = true\n"), contains("schedule.lr: needs a number"));
  CHECK_THAT(complaint({"--training.steps", "3x"}),
             contains("command line: training.steps: needs a whole number, got \"3x\""));
  CHECK_THAT(complaint({"--schedule.lr", "fast"}), contains("needs a number, got \"fast\""));
  CHECK_THAT(complaint({"--schedule.lr", "nan"}), contains("schedule.lr: is nan"));
  CHECK_THAT(complaint({"--training.no_sync", "yes"}),
             contains("needs true or false, got \"yes\""));
  CHECK_THAT(complaint({"--parallel.reshard_after_forward", "maybe"}),
             contains("needs true, false or a whole number"));
}

TEST_CASE("a value out of range says the range", "[config]") {
  CHECK_THAT(complaint({"--training.steps", "0"}),
             contains("command line: training.steps: is 0, must be between 1 and 1000000000"));
  CHECK_THAT(complaint({"--training.seed", "-1"}),
             contains("training.seed: is -1, must be at least 0"));
  CHECK_THAT(complaint({"--optimizer.beta1", "1"}), contains("optimizer.beta1: is 1, must be"));
  CHECK_THAT(complaint({"--parallel.strategy", "zero"}),
             contains("is \"zero\", must be one of single, ddp, fsdp"));
  CHECK_THAT(complaint({"--model.preset", "huge"}), contains("gpt2_124m, gpt2_xl, nano"));
  CHECK_THAT(complaint({"--model.heads", "3"}), contains("model.heads: must divide width 128"));
  CHECK_THAT(complaint({"--model.kv_heads", "3"}), contains("model.kv_heads"));
  CHECK_THAT(complaint({"--training.seq_len", "129"}),
             contains("training.seq_len: is 129, at most model.max_sequence = 128"));
}

TEST_CASE("a batch that cannot be cut says which could", "[config]") {
  const std::vector<std::string> ranks = {"--parallel.strategy", "ddp", "--parallel.ranks", "2"};
  const auto with = [&](const std::string& global, const std::string& local) {
    std::vector<std::string> all = ranks;
    all.insert(all.end(),
               {"--training.global_batch_size", global, "--training.local_batch_size", local});
    return complaint(all);
  };
  CHECK_THAT(with("30", "4"),
             contains("training.global_batch_size: is 30, which is not training.local_batch_size 4 "
                      "x parallel.ranks 2 x a whole number of micro-steps; use 24 or 32, or a "
                      "training.local_batch_size of 1, 3, 5, 15"));
  CHECK_THAT(with("3", "4"), contains("use 8"));
  CHECK(with("32", "4").empty());
  const TrainConfig config = load_config(
      std::nullopt, {"--parallel.strategy", "fsdp", "--parallel.ranks", "2",
                     "--training.local_batch_size", "4", "--training.global_batch_size", "32"});
  CHECK(config.micro_batches() == 8);
  CHECK(config.plan().micro_steps == 4);
  CHECK(config.plan().micro_steps_per_reduction == 1);
}

TEST_CASE("strategy, ranks and resharding must fit together", "[config]") {
  CHECK_THAT(complaint({"--parallel.ranks", "2"}),
             contains("parallel.ranks: is 2, but strategy \"single\" is one process"));
  const auto reshard = [](const std::string& value, const std::string& ranks) {
    return complaint({"--parallel.strategy", "fsdp", "--parallel.ranks", ranks,
                      "--parallel.reshard_after_forward", value});
  };
  CHECK(reshard("true", "4").empty());
  CHECK(reshard("false", "4").empty());
  CHECK(reshard("2", "4").empty());
  for (const char* ranks : {"1", "2", "3"}) {
    CHECK_THAT(reshard("2", ranks), contains("parallel.reshard_after_forward: is 2: a number s"));
  }
  CHECK_THAT(reshard("0", "4"), contains("must divide the 4 ranks"));
}

TEST_CASE("a file that is not TOML, or not there, says where", "[config]") {
  CHECK_THAT(complaint_about("[training]\nsteps = = 3\n"), contains(":2: not TOML"));
  CHECK_THAT(complaint_about("[training]\nsteps = 3\nsteps = 4\n"), contains(":3: not TOML"));
  CHECK_THAT(message_of<InputError>([] { load_config("no/such.toml", {}); }),
             contains("no/such.toml: cannot be read"));
}

TEST_CASE("a command line that is no setting says what one looks like", "[config]") {
  CHECK_THAT(complaint({"--training.steps"}), contains("training.steps: a value must follow"));
  CHECK_THAT(complaint({"steps", "3"}), contains("unexpected \"steps\""));
  CHECK_THAT(complaint({"--steps", "3"}), contains("--training.steps 100"));
}

TEST_CASE("every key is described", "[config]") {
  const std::string text = describe_keys();
  CHECK_THAT(text, contains("--training.local_batch_size"));
  CHECK_THAT(text, contains("--parallel.reshard_after_forward"));
}

}  // namespace fsdp::train
