// What a training exports: the same for every strategy, in any dtype, and in no more memory.
#include "base/check.h"
#include "comm/thread_world.h"
#include "device/context.h"
#include "io/file_io.h"
#include "io/half_floats.h"
#include "io/hf_folder.h"
#include "io/sharded_checkpoint.h"
#include "strategies/model_files.h"
#include "strategies/trained_model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/command_line.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::train::exporting {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

config::TrainConfig configure(const Words& more) {
  Words words = {"--training.local_batch_size=1", "--training.global_batch_size=12",
                 "--training.steps=2", "--optimizer.lr=1e-2"};
  words.insert(words.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, words);
}

Words nano(const Words& more) {
  Words words = {"--model.preset=nano", "--model.vocab_size=127"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// @return the notes
Words run(const fs::path& folder, const Words& words) {
  Words notes;
  RunOptions options;
  options.export_folder = folder;
  options.on_note = [&](const std::string& note) { notes.push_back(note); };
  run_training(configure(words), some_text(), options);
  return notes;
}

using Values = std::map<std::string, std::vector<float>>;

Values values_in(const fs::path& folder) {
  const io::SafetensorsReader reader(folder / "model.safetensors");
  Values values;
  for (const auto& [name, entry] : reader.entries()) {
    const Tensor whole = Tensor::empty(entry.shape);
    reader.read(name, whole);
    values[name] = whole.to_vector<float>();
  }
  return values;
}

Values rounded(Values values) {
  for (auto& [name, numbers] : values) {
    for (float& number : numbers) number = io::from_bfloat16(io::to_bfloat16(number));
  }
  return values;
}

json config_in(const fs::path& folder) {
  return json::parse(io::read_text(folder / "config.json"));
}

// A folder to start from, whose model ends with tokens of its own.
void write_source(const fs::path& folder) {
  Context context({.seed = 77});
  const ContextScope scope(context);
  nn::TransformerConfig sizes = nn::TransformerConfig::nano();
  sizes.vocab_size = 127;
  nn::TransformerLM model(sizes);
  io::save_hf_folder(model, folder);
  json config = config_in(folder);
  config.update({{"bos_token_id", 1}, {"eos_token_id", {2, 3}}, {"pad_token_id", -1}});
  io::write_text_atomically(folder / "config.json", config.dump());
  io::write_text_atomically(folder / "generation_config.json", R"({"eos_token_id": [2, 3]})");
  io::write_text_atomically(folder / "special_tokens_map.json", R"({"eos_token": "</s>"})");
}

}  // namespace

TEST_CASE("every strategy exports the same weights, rounded, in several files", "[train][export]") {
  for (const bool tied : {false, true}) {
    const TemporaryFolder home;
    const Words model = nano({tied ? "--model.tie_word_embeddings=true" : "--training.seed=2",
                              "--optimizer.decay_norms=false", "--training.global_batch_size=8"});
    run(home / "wide", model);
    const Values expected = rounded(values_in(home / "wide"));
    CHECK(expected != values_in(home / "wide"));
    for (const auto& [name, ranks] :
         {std::pair("single", 1), {"ddp", 2}, {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 4}}) {
      INFO(name << " W=" << ranks);
      Words words = model;
      words.insert(words.end(), {std::string("--parallel.strategy=") + name,
                                 "--parallel.ranks=" + std::to_string(ranks),
                                 "--export.dtype=bfloat16", "--export.max_shard_size=4000"});
      const fs::path folder = home / (name + std::to_string(ranks));
      run(folder, words);
      CHECK(values_in(folder) == expected);
      CHECK(fs::exists(folder / "model.safetensors.index.json"));
      CHECK_FALSE(fs::exists(folder / "model.safetensors"));
      CHECK(config_in(folder).at("torch_dtype") == "bfloat16");
      CHECK(io::read_hf_config(folder / "config.json").tie_word_embeddings == tied);
    }
  }
}

TEST_CASE("an export needs no more memory than gathering one unit", "[train][export]") {
  for (const int ranks : {1, 2, 3}) {
    const config::TrainConfig config =
        configure(nano({"--parallel.strategy=fsdp", "--parallel.ranks=" + std::to_string(ranks)}));
    const TemporaryFolder home;
    std::vector<std::int64_t> gathering(static_cast<std::size_t>(ranks)), exporting = gathering;
    threads::run_ranks({.world_size = ranks}, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const auto made = strategies::make_trained_model(config, borrowed(group));
      MemoryTracker& tracker = Context::current().tracker();
      tracker.reset_peak();
      made->for_each_full_parameter([](const std::string&, const Tensor&) {});
      gathering[rank] = tracker.peak().total();
      tracker.reset_peak();
      io::HfExport how;
      how.dtype = DType::bfloat16;
      how.max_shard_size = 4000;
      save_full(*made, home / "model", how);
      exporting[rank] = tracker.peak().total();
    });
    CHECK(exporting == gathering);
  }
}

TEST_CASE("every strategy exports its state in one file, and any goes on from it",
          "[train][export]") {
  for (const char* format : {"float32", "bfloat16", "float16"}) {
    const TemporaryFolder home;
    const Words model = nano({std::string("--training.mixed_precision_param=") + format,
                              "--optimizer.decay_norms=false", "--optimizer.name=adam"});
    const auto trained = [&](const std::string& name, const char* strategy, int ranks, int steps,
                             Words words) {
      words.insert(words.end(), model.begin(), model.end());
      words.insert(words.end(), {std::string("--parallel.strategy=") + strategy,
                                 "--parallel.ranks=" + std::to_string(ranks),
                                 "--training.steps=" + std::to_string(steps)});
      RunOptions options;
      if (steps == 2) options.export_folder = home / name;
      return run_training(configure(words), some_text(), options).param_sha256;
    };
    const std::string expected = trained("", "single", 1, 4, {});
    for (const auto& [strategy, ranks] : {std::pair("single", 1),
                                          {"ddp", 2},
                                          {"zero1", 3},
                                          {"zero2", 4},
                                          {"fsdp", 2},
                                          {"fsdp", 3}}) {
      const std::string name = strategy + std::to_string(ranks);
      INFO(format << " " << name);
      const fs::path steps = home / (name + "_steps"), saved = steps / "step_2";
      const std::string into = "--checkpoint.folder=" + steps.string();
      trained(name, strategy, ranks, 2, {"--export.optimizer=true", into});
      // The parts are gone, and the one file has what they had.
      CHECK_FALSE(fs::exists(home / name / "parts"));
      const io::SliceReader parts(saved), joined(home / name);
      CHECK(joined.names() == parts.names());
      CHECK(joined.metadata().at("optimizer_steps") == "2");
      joined.verify(0, 1);
      const fs::path file = home / name / io::kJoinedFile;
      CHECK(io::SafetensorsReader(file).entries().at("exp_avg/model.norm.weight").shape ==
            Shape{16});
      // It takes the place of the parts, for another strategy.
      fs::remove_all(saved);
      fs::create_directory(saved);
      fs::copy(file, saved / io::kJoinedFile);
      const bool is_fsdp = name.starts_with("fsdp");
      const std::string end = trained("", is_fsdp ? "single" : "fsdp", is_fsdp ? 1 : 2, 4, {into});
      if (ranks != 3) CHECK(end == expected);  // 3 ranks add up in another order
    }
  }
}

TEST_CASE("what belongs to the model is exported with it, after a resume too", "[train][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  const Words from = {"--model.from=" + (home / "source").string(),
                      "--checkpoint.folder=" + (home / "steps").string()};
  const auto check = [&](const fs::path& folder) {
    const json config = config_in(folder);
    CHECK(config.at("bos_token_id") == 1);
    CHECK(config.at("eos_token_id") == json{2, 3});
    CHECK(config.at("pad_token_id") == -1);
    for (const char* name : {"generation_config.json", "special_tokens_map.json"})
      CHECK(io::read_text(folder / name) == io::read_text(home / "source" / name));
  };
  run(home / "first", from);
  check(home / "first");
  for (const char* strategy : {"single", "fsdp"}) {
    Words longer = from;
    longer.insert(longer.end(),
                  {"--training.steps=3", std::string("--parallel.strategy=") + strategy});
    run(home / strategy, longer);
    check(home / strategy);
  }
  // The padding is the folder's to say.
  const std::string before = io::read_text(home / "source/config.json");
  json padded = json::parse(before);
  padded["pad_token_id"] = 5;
  io::write_text_atomically(home / "source/config.json", padded.dump());
  CHECK_THAT(
      message_of<InputError>([&] { run(home / "other", from); }),
      contains("was saved with model.pad_token_id = 126, now it is 5; set pad_token_id to 126 "
               "in its config.json"));
  io::write_text_atomically(home / "source/config.json", before);
  // Without model.from it is another training, and without its folder none.
  CHECK_THAT(message_of<InputError>([&] {
               run(home / "other", nano({from[1], "--training.steps=3"}));
             }),
             contains("was saved with model.from = " + (home / "source").string()));
  fs::rename(home / "source", home / "elsewhere");
  CHECK_THAT(message_of<InputError>([&] { run(home / "other", from); }),
             contains("command line: model.from: ") && contains("source: is no folder here"));
  CHECK_FALSE(fs::exists(home / "other"));
}

TEST_CASE("a file that is gone by the end of a training is named, and the rest is exported",
          "[train][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  Words notes;
  RunOptions options;
  options.export_folder = home / "model";
  options.on_note = [&](const std::string& note) { notes.push_back(note); };
  options.on_trained = [&] { fs::remove(home / "source/generation_config.json"); };
  run_training(configure({"--model.from=" + (home / "source").string()}), some_text(), options);
  REQUIRE(notes.size() == 3);
  CHECK_THAT(notes[1], contains("note: " + (home / "source/generation_config.json").string() +
                                ": cannot be read") &&
                           contains((home / "model").string() + " is without it"));
  CHECK_THAT(notes[2], contains("exported"));
  CHECK(fs::exists(home / "model/special_tokens_map.json"));
  CHECK(config_in(home / "model").at("bos_token_id") == 1);
}

TEST_CASE("weights that float16 cannot hold end a training without an export", "[train][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  io::SafetensorsReader reader(home / "source/model.safetensors");
  // One weight is made large where it lies in the file.
  const io::SafetensorsEntry entry = reader.entries().at("model.norm.weight");
  std::string bytes = io::read_text(home / "source/model.safetensors");
  const float large = 7e4F;
  bytes.replace(entry.begin, sizeof large, reinterpret_cast<const char*>(&large), sizeof large);
  io::write_text_atomically(home / "source/model.safetensors", bytes);
  for (const char* strategy : {"single", "fsdp"}) {
    Words words = {"--model.from=" + (home / "source").string(), "--optimizer.lr=0",
                   std::string("--parallel.strategy=") + strategy};
    Words narrow = words;
    narrow.emplace_back("--export.dtype=float16");
    CHECK_THAT(message_of<Error>([&] { run(home / "model", narrow); }),
               contains("tensor \"model.norm.weight\" holds 70000, but the largest float16 is "
                        "65504; store it as float32 or bfloat16; the trained model is lost, "
                        "because there is no checkpoint.folder"));
    CHECK_FALSE(fs::exists(home / "model"));
    CHECK_FALSE(fs::exists(home / "model.tmp"));
    // What was trained is not lost.
    const fs::path steps = home / strategy;
    for (Words* each : {&words, &narrow}) each->push_back("--checkpoint.folder=" + steps.string());
    CHECK_THAT(message_of<InputError>([&] { run(home / "model", narrow); }),
               contains("--export: " + (home / "model").string()) &&
                   contains("the trained model is in the checkpoint.folder " + steps.string() +
                            ": the same command with another --export.dtype exports it"));
    const fs::path exported = home / (std::string(strategy) + "_model");
    CHECK_THAT(run(exported, words).at(0), contains("all steps are done"));
    CHECK(values_in(exported).at("model.norm.weight")[0] == 7e4F);
  }
}

TEST_CASE("keys of an export that is not asked for have no effect, and the user learns it",
          "[train][export]") {
  CommandLine line;
  line.overrides = {"--export.dtype=float16"};
  const Words expected = {"command line: export.dtype: has no effect without --export"};
  CHECK(train::configure(line).remarks == expected);
  line.export_folder = "model";
  CHECK(train::configure(line).remarks.empty());
}

}  // namespace fsdp::train::exporting
