// What a user may write, and what is said about what he may not.
#include "config/config.h"

#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;

std::string complaint(const std::vector<std::string>& overrides) {
  return message_of<InputError>([&] { config::load_config(std::nullopt, overrides); });
}

// The message about a file of this text, which must name the file.
std::string complaint_about(const std::string& text) {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "run.toml", text);
  const std::string message =
      message_of<InputError>([&] { config::load_config(folder / "run.toml", {}); });
  CHECK_THAT(message, contains((folder / "run.toml").string()));
  return message;
}

}  // namespace

TEST_CASE("an override beats the file, and the file beats the default", "[config]") {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "run.toml",
                            "[model]\nnum_attention_heads = 4\npreset = \"nano\"\n"
                            "[training]\nsteps = 7\nmax_norm = 2\nno_sync = true\n"
                            "[optimizer]\nlr = 3e-3\n"
                            "[lr_scheduler]\nkind = \"warmup_cosine\"\n");
  const config::TrainConfig config = config::load_config(
      folder / "run.toml", {"--training.steps", "9", "--data.path=x=y", "--training.steps=11"});
  CHECK(config.model.hidden_size == 16);
  CHECK(config.model.num_attention_heads == 4);
  CHECK(config.training.steps == 11);
  CHECK(config.recipe.clip == 2.0);
  CHECK(config.training.no_sync);
  CHECK(config.training.seed == 1);
  CHECK(config.data.path == "x=y");
  CHECK(config.schedule.lr == 3e-3);
  CHECK(config.schedule.total_steps == 11);
  CHECK(config.schedule.kind == optim::LrSchedule::Kind::warmup_cosine);
  CHECK(config.sequence_length() == 8);
}

TEST_CASE("the configurations of the repository are right", "[config]") {
  const std::filesystem::path folder = FSDP_PROJECT_ROOT "/apps/train/configs";
  const auto load = [&](const char* name) { return config::load_config(folder / name, {}); };
  CHECK(load("tiny.toml").model.hidden_size == 128);
  CHECK(load("tiny.toml").micro_batches() == 8);
  CHECK(load("small.toml").model.hidden_size == 384);
  CHECK(load("llama_124m.toml").model.tie_word_embeddings);
  CHECK(load("llama_2b.toml").model.parameter_count() == 2'127'208'000);
}

TEST_CASE("an unknown key is named, with the one that was meant", "[config]") {
  CHECK_THAT(complaint_about("[training]\nsteps = 3\nlocal_batchsize = 4\n"),
             contains(":3: unknown key training.local_batchsize; did you mean "
                      "training.local_batch_size?"));
  CHECK_THAT(complaint_about("[trainin]\nsteps = 3\n"),
             contains(":2: unknown key trainin.steps; did you mean training.steps?"));
  CHECK_THAT(complaint_about("[training]\n\"steps=5\" = 1\n"),
             contains(":2: unknown key training.steps=5; did you mean training.steps?"));
  CHECK_THAT(complaint_about("[cucumber]\n"),
             contains("unknown key cucumber; did you mean") && contains("--help lists all"));
  CHECK_THAT(complaint_about("training = 5\n"),
             contains(":1: unknown key training; did you mean training.steps?"));
  CHECK_THAT(
      complaint({"--model.hiden_size", "64"}),
      contains("command line: unknown key model.hiden_size; did you mean model.hidden_size?"));
  CHECK_THAT(complaint({"--lr", "1"}), contains("did you mean optimizer.lr?"));
  CHECK_THAT(complaint({"--model.heads", "1"}),
             contains("did you mean model.num_attention_heads?"));
  // The misspelled key is why the batch does not fit: it is said first.
  CHECK_THAT(complaint({"--training.global_batch_size", "8", "--training.local_batch_sice", "8",
                        "--training.local_batch_size", "5"}),
             contains("local_batch_sice"));
}

TEST_CASE("a value of the wrong type says which is right", "[config]") {
  CHECK_THAT(complaint_about("[training]\nsteps = \"many\"\n"),
             contains(":2: training.steps: is \"many\", must be a whole number between 1 and"));
  CHECK_THAT(complaint_about("[training]\nsteps = 2.5\n"),
             contains("training.steps: is 2.5, must be a whole number"));
  CHECK_THAT(complaint_about("[training]\nsteps = [1]\n"),
             contains("is [ 1 ], must be a whole number"));
  CHECK_THAT(complaint_about("[training]\nno_sync = 1\n"),
             contains("training.no_sync: is 1, must be true or false"));
  CHECK_THAT(complaint_about("[data]\npath = 3\n"),
             contains("data.path: is 3, must be text") && contains(", in quotes"));
  CHECK_THAT(complaint_about("[optimizer]\nlr = true\n"),
             contains("optimizer.lr: is true, must be a number"));
  CHECK_THAT(complaint({"--training.steps", "3x"}),
             contains("command line: training.steps: is 3x, must be a whole number"));
  CHECK_THAT(complaint({"--optimizer.lr", "fast"}), contains("is fast, must be a number"));
  CHECK_THAT(complaint({"--optimizer.lr", "nan"}), contains("optimizer.lr: is nan"));
  CHECK_THAT(complaint({"--training.no_sync", "yes"}), contains("is yes, must be true or false"));
  CHECK_THAT(complaint({"--parallel.reshard_after_forward", "maybe"}),
             contains("must be true, false or a whole number between 2 and 256"));
}

TEST_CASE("a file and the command line are told the same", "[config]") {
  const auto both = [](const std::string& section, const std::string& name,
                       const std::string& value) {
    const std::string file = complaint_about("[" + section + "]\n" + name + " = " + value + "\n");
    const std::string line = complaint({"--" + section + "." + name, value});
    CHECK(file.substr(file.find(":2: ") + 4) == line.substr(std::string("command line: ").size()));
  };
  both("training", "steps", "0");
  both("training", "steps", "2.5");
  both("training", "no_sync", "1");
  both("optimizer", "lr", "-1");
  both("optimizer", "lr", "nan");
  both("parallel", "reshard_after_forward", "2.5");
  both("model", "num_attention_heads", "3");
  both("model", "hiden_size", "64");
}

TEST_CASE("any text is a value, even one that looks like an option", "[config]") {
  for (const std::string text :
       {"", "-x", "--", "--data.path=", "[a]", "{}", "a=b", "The \xC3\xA9"}) {
    INFO(text);
    CHECK(config::load_config(std::nullopt, {"--sample.prompt=" + text}).sample.prompt == text);
    const TemporaryFolder folder;
    io::write_text_atomically(folder / "run.toml", "[sample]\nprompt = \"" + text + "\"\n");
    CHECK(config::load_config(folder / "run.toml", {}).sample.prompt == text);
  }
}

TEST_CASE("a number is the nearest one there is, to the last bit", "[config]") {
  // Just above the middle of two doubles: rounded to a long double first, it would be 0.5.
  const config::TrainConfig config =
      config::load_config(std::nullopt, {"--optimizer.lr=0.500000000000000055511177701037"});
  CHECK(config.schedule.lr == 0x1.0000000000001p-1);
  CHECK(config.settings.at("optimizer.lr") == "0.5000000000000001");
}

TEST_CASE("a value out of range says the range", "[config]") {
  CHECK_THAT(
      complaint({"--training.steps", "0"}),
      contains(
          "command line: training.steps: is 0, must be a whole number between 1 and 1000000000"));
  CHECK_THAT(complaint({"--training.seed", "-1"}),
             contains("training.seed: is -1, must be a whole number between 0 and"));
  CHECK_THAT(complaint({"--optimizer.beta1", "1"}), contains("optimizer.beta1: is 1, must be"));
  CHECK_THAT(complaint({"--parallel.strategy", "zero"}),
             contains("is \"zero\", must be one of single, ddp, zero1, zero2, fsdp"));
  CHECK_THAT(complaint({"--model.preset", "huge"}), contains("llama_124m, llama_2b, nano"));
  CHECK_THAT(complaint({"--model.num_attention_heads", "3"}),
             contains("model.num_attention_heads: must divide hidden_size 128"));
  CHECK_THAT(complaint({"--model.num_key_value_heads", "3"}),
             contains("model.num_key_value_heads"));
  CHECK_THAT(complaint({"--training.seq_len", "129"}),
             contains("training.seq_len: is 129, at most model.max_position_embeddings = 128"));
}

TEST_CASE("a batch that cannot be cut says which could", "[config]") {
  const std::vector<std::string> ranks = {"--parallel.strategy", "ddp", "--parallel.ranks", "2"};
  const auto with = [&](const std::string& global, const std::string& local) {
    std::vector<std::string> all = ranks;
    all.insert(all.end(),
               {"--training.global_batch_size", global, "--training.local_batch_size", local});
    return complaint(all);
  };
  CHECK_THAT(with("30", "4"), contains("training.global_batch_size: is 30, must be a multiple of "
                                       "training.local_batch_size 4 x parallel.ranks 2 = 8, "
                                       "such as 24 or 32"));
  CHECK_THAT(with("3", "4"), contains("such as 8 or 16"));
  CHECK(with("32", "4").empty());
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--parallel.strategy", "fsdp", "--parallel.ranks", "2",
                     "--training.local_batch_size", "4", "--training.global_batch_size", "32"});
  CHECK(config.micro_batches() == 8);
  CHECK(config.recipe.plan().micro_steps == 4);
  CHECK(config.recipe.plan().micro_steps_per_reduction == 1);
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
    CHECK_THAT(reshard("2", ranks),
               contains("parallel.reshard_after_forward: is 2, must be true, false, or a"));
  }
  CHECK_THAT(reshard("0", "4"), contains("is 0, must be true, false or a whole number"));
}

TEST_CASE("a file that is not TOML, or not there, says where", "[config]") {
  CHECK_THAT(complaint_about("[training]\nsteps = = 3\n"), contains(":2: not TOML"));
  CHECK_THAT(complaint_about("[training]\nsteps = 3\nsteps = 4\n"), contains(":3: not TOML"));
  CHECK_THAT(message_of<InputError>([] { config::load_config("no/such.toml", {}); }),
             contains("no/such.toml: cannot be read"));
}

TEST_CASE("a command line that is no setting says what one looks like", "[config]") {
  CHECK_THAT(complaint({"--training.steps"}),
             contains("training.steps: is missing, must be a whole number"));
  CHECK_THAT(complaint({"training.steps", "3"}), contains("is missing, must be a whole number"));
  CHECK_THAT(complaint({"--training.seed=-1", "cucumber"}), contains("training.seed: is -1"));
  CHECK_THAT(complaint({"--training.seed=-1", "--sample.prompt"}),
             contains("training.seed: is -1"));
  CHECK_THAT(complaint({"steps", "3"}),
             contains("unknown key steps") && contains("--training.steps 100"));
  CHECK_THAT(complaint({"--steps", "3"}),
             contains("unknown key steps") && contains("--training.steps 100"));
}

TEST_CASE("every key is described", "[config]") {
  const std::string text = config::describe_keys();
  CHECK_THAT(text, contains("--training.local_batch_size"));
  CHECK_THAT(text, contains("--parallel.reshard_after_forward"));
}

namespace {

// Every key with its values: "a whole number between 1 and 256", "true or false", "one of a, b".
std::vector<std::pair<std::string, std::string>> keys_of_help() {
  std::vector<std::pair<std::string, std::string>> keys;
  std::istringstream lines(config::describe_keys());
  for (std::string line; std::getline(lines, line);) {  // "  --key  default  meaning (values)"
    const std::size_t values = line.rfind(" (") + 2;
    keys.emplace_back(line.substr(4, line.find(' ', 4) - 4),
                      line.substr(values, line.size() - values - 1));
  }
  return keys;
}

// Values that the key cannot have, as they are given on the command line.
std::vector<std::string> wrong_values(const std::string& values) {
  const auto is = [&](const char* type) { return values.starts_with(type); };
  if (is("a whole number")) {
    return {"abc",
            "",
            "1.5",
            "-1",
            "1e3",
            "nan",
            "inf",
            "true",
            " 3",
            "9223372036854775808",
            "-9223372036854775809",
            "1e300"};
  }
  if (is("a number"))
    return {"abc", "", "nan", "inf", "-inf", "-1", "1e300", "1e999", "0x10", "true"};
  if (is("true or false")) return {"yes", "True", "1", "", "0", "nan", "falsee"};
  if (is("one of")) return {"", "abc", "TINY", "ADAMW", "1", "auto,text"};
  if (is("true, false or a whole")) return {"maybe", "", "1.5", "True", "nan", "0", "-1", "1e300"};
  return {};  // any text will do
}

// The same in a file.
std::vector<std::string> wrong_tokens(const std::string& values) {
  std::vector<std::string> wrong = {"[1]", "{}", "{ a = 1 }", "[]", "2026-01-01"};
  const auto is = [&](const char* type) { return values.starts_with(type); };
  if (!is("true or false") && !is("true, false")) wrong.insert(wrong.end(), {"true"});
  if (!is("a whole number") && !is("a number") && !is("true, false")) wrong.push_back("3");
  if (!is("a number")) wrong.insert(wrong.end(), {"2.5", "nan", "inf"});
  if (!is("text")) wrong.push_back("\"abc\"");
  return wrong;
}

}  // namespace

TEST_CASE("whatever is wrong with a key, the message begins with it", "[config]") {
  int tried = 0;
  const auto begins = [&](const std::string& message, const std::string& begin) {
    INFO(message << "\nshould begin with " << begin);
    CHECK(message.starts_with(begin));
    ++tried;
  };
  const TemporaryFolder folder;
  const std::string file = folder / "run.toml";
  for (const auto& [key, values] : keys_of_help()) {
    for (const std::string& value : wrong_values(values)) {
      if (value == "-1" && values.find("between -1 and") != std::string::npos) continue;
      begins(complaint({"--" + key, value}), "command line: " + key + ": ");
      begins(complaint({"--" + key + "=" + value}), "command line: " + key + ": ");
    }
    for (const std::string& value : wrong_tokens(values)) {
      const std::string text = "\n" + key + " = " + value + "\n";
      begins(complaint_about(text).erase(0, complaint_about(text).find("run.toml:")),
             "run.toml:2: " + key + ": ");
    }
  }
  CHECK(tried > 900);
}

TEST_CASE("several errors are told at once, in the order of the user", "[config]") {
  // Whatever comes first, the others neither hide it nor become unknown.
  for (const char* key :
       {"model.num_attention_heads", "lr_scheduler.warmup_steps", "sample.top_k"}) {
    for (const char* other : {"model.preset", "data.format", "checkpoint.interval", "no.such"}) {
      const auto check = [](const std::string& a, const std::string& b) {
        const std::string message = complaint({"--" + a, "abc", "--" + b, "abc"});
        const std::size_t end = message.find('\n');
        REQUIRE(end != std::string::npos);
        CHECK_THAT(message.substr(0, end), contains(a) && !contains(b));
        CHECK_THAT(message.substr(end + 1), contains(b) && !contains(a) && !contains("\n"));
      };
      check(key, other);
      check(other, key);
    }
  }
  CHECK_THAT(complaint_about("[training]\nsteps = 0\n[model]\nnum_attention_heads = 0\n"),
             contains(":2: training.steps: is 0"));
  // A file of many mistakes shows the first 20.
  std::string many = "[training]\n";
  for (int i = 0; i < 30; ++i) many += "wrong" + std::to_string(i) + " = 1\n";
  const std::string message = complaint_about(many);
  CHECK(std::ranges::count(message, '\n') == 20);
  CHECK_THAT(message, contains("training.wrong19") && !contains("training.wrong20"));
  CHECK_THAT(message, contains("\nand 10 more problems"));
  // Contradictions come last: what is wrong by itself may be their reason.
  CHECK_THAT(complaint({"--parallel.ranks", "2", "--parallel.strategy", "zero"}),
             contains("parallel.strategy: is \"zero\""));
}

TEST_CASE("a section is no value, and a value is no section", "[config]") {
  CHECK(message_of<InputError>([] { config::load_config(std::nullopt, {}); }).empty());
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "run.toml", "[model]\n[sample]\n[training]\nsteps = 3\n");
  CHECK(config::load_config(folder / "run.toml", {}).training.steps == 3);
  CHECK_THAT(complaint_about("[[training]]\nsteps = 3\n"), contains(":1: unknown key training;"));
  CHECK_THAT(complaint_about("[training.steps]\nmany = 3\n"),
             contains(":1: training.steps: is many = 3, must be a whole number"));
  CHECK_THAT(complaint_about("[training]\nsteps = 3\n\n[training]\nmax_norm = 1\n"),
             contains(":4: not TOML"));
  CHECK_THAT(complaint_about("\"training.steps\" = 7\n[training]\nsteps = 3\n"),
             contains(":1: unknown key training.steps in quotes; did you mean training.steps?"));
  CHECK_THAT(complaint_about("[training]\nsteps = 9223372036854775808\n"),
             contains(":2: not TOML, at \"steps = 9223372036854775808\""));
}

TEST_CASE("a configuration that is empty, or no file, is refused", "[config]") {
  CHECK_THAT(complaint_about(""), contains("is empty; write settings into it"));
  const TemporaryFolder folder;
  CHECK_THAT(message_of<InputError>([&] { config::load_config(folder.path(), {}); }),
             contains("is a folder; give a file"));
  CHECK_THAT(complaint_about(std::string(2 << 20, '#')), contains("is longer than"));
}

TEST_CASE("what would silently do something else is refused", "[config]") {
  CHECK_THAT(complaint({"--checkpoint.interval", "4"}),
             contains("command line: checkpoint.interval: is 4, but without a checkpoint.folder"));
  CHECK_THAT(complaint({"--checkpoint.resume", "true"}), contains("nothing to resume"));
  CHECK(complaint({"--checkpoint.resume", "false"}).empty());
  for (const char* kind : {"warmup_linear", "warmup_cosine", "warmup_log"}) {
    const std::vector<std::string> base = {"--lr_scheduler.kind", kind, "--training.steps", "10"};
    const auto with = [&](const std::string& key, const std::string& value) {
      std::vector<std::string> all = base;
      all.insert(all.end(), {key, value});
      return complaint(all);
    };
    CHECK_THAT(
        with("--lr_scheduler.warmup_steps", "11"),
        contains(
            "command line: lr_scheduler.warmup_steps: is 11, but lr_scheduler.total_steps is 10"));
    CHECK(with("--lr_scheduler.warmup_steps", "10").empty());
    CHECK_THAT(with("--lr_scheduler.min_lr", "0.1"),
               contains("command line: lr_scheduler.min_lr: is 0.1, more than optimizer.lr 0.001"));
  }
}

TEST_CASE("cuda is refused by a program without it, and any other device by all", "[config]") {
  CHECK(complaint({"--training.device", "cuda"}) ==
        "command line: training.device: is cuda, but this program was built without CUDA; use one "
        "that was built with the preset cuda (see docs/gpu.md), or cpu");
  CHECK_THAT(complaint({"--training.device", "gpu"}),
             contains("command line: training.device: is \"gpu\", must be one of cpu, cuda"));
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--parallel.device_collectives=nccl", "--parallel.strategy=fsdp"});
  CHECK(config.remarks ==
        std::vector<std::string>{
            "command line: parallel.device_collectives: has no effect on the CPU"});
}

TEST_CASE("offload is refused on the CPU, by the key that asks for it", "[config]") {
  CHECK_THAT(complaint({"--parallel.offload_params", "true", "--parallel.strategy", "fsdp"}),
             contains("command line: parallel.offload_params: is true, but ranks compute on the "
                      "CPU: device and host are one memory there") &&
                 contains("unshard-report --fake --offload"));
  CHECK_THAT(complaint({"--parallel.offload_grads", "true"}),
             contains("command line: parallel.offload_grads: is true, but "
                      "parallel.offload_params is false"));
  CHECK_THAT(complaint({"--parallel.offload_grads=true", "--parallel.offload_params=true"}),
             contains("command line: parallel.offload_params: is true"));
  CHECK_THAT(complaint({"--parallel.offload_optimizer=true", "--parallel.strategy=zero2"}),
             contains("command line: parallel.offload_optimizer: is true, but ranks compute on the "
                      "CPU"));
  CHECK(complaint({"--parallel.offload_params=false", "--parallel.offload_optimizer=false",
                   "--parallel.offload_grads=false"})
            .empty());
}

TEST_CASE("what has no effect is remarked on", "[config]") {
  const auto remarks = [](const std::vector<std::string>& overrides) {
    return config::load_config(std::nullopt, overrides).remarks;
  };
  CHECK(remarks({}).empty());
  CHECK(
      remarks({"--lr_scheduler.warmup_steps", "5", "--sample.top_k=3"}) ==
      std::vector<std::string>{
          "command line: lr_scheduler.warmup_steps: has no effect with lr_scheduler.kind constant",
          "command line: sample.top_k: has no effect while sample.max_new_tokens is 0"});
  CHECK(remarks({"--optimizer.name=sgd", "--optimizer.eps=1e-9"}).size() == 1);
  CHECK(remarks({"--parallel.prefetch_depth=2"}).size() == 1);
  CHECK(remarks({"--parallel.prefetch_depth=2", "--parallel.strategy=fsdp"}).empty());
  CHECK_THAT(
      remarks({"--lr_scheduler.kind=warmup_cosine", "--lr_scheduler.total_steps=9"}).at(0),
      contains("lr_scheduler.total_steps: after step 9 the rate stays at lr_scheduler.min_lr = 0"));
}

}  // namespace fsdp::train
