// A training that starts from a Hugging Face folder: the same bits for every strategy, no more
// memory than the shards, and no word of the folder passed over.
#include "base/check.h"
#include "comm/thread_world.h"
#include "io/file_io.h"
#include "io/hf_folder.h"
#include "strategies/model_files.h"
#include "strategies/trained_model.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/bound.h"
#include "train/memory_check.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;
using Words = std::vector<std::string>;

nn::TransformerConfig sizes(bool tied) {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.vocab_size = 127;
  config.num_key_value_heads = 1;
  config.explicit_head_dim = tied ? 12 : 0;
  config.rope_theta = 5e4;
  if (tied) {  // divides some frequencies, and one in part
    config.rope_scaling = {.factor = 4, .original_max_position_embeddings = 20};
  }
  config.tie_word_embeddings = tied;
  return config;
}

// A model with other weights than seed 1 gives, all of them bfloat16 numbers.
std::unique_ptr<nn::TransformerLM> make_model(bool tied) {
  Context context({.seed = 77});
  const ContextScope scope(context);
  auto model = std::make_unique<nn::TransformerLM>(sizes(tied));
  for (const nn::NamedParameter& each : model->named_parameters()) {
    const Tensor& data = each.variable.data();
    for (float& value : std::span(data.data<float>(), static_cast<std::size_t>(data.numel())))
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xFFFF0000U);
  }
  return model;
}

// The file of these parameters in bfloat16.
void write_bfloat16(const std::filesystem::path& path,
                    const std::vector<nn::NamedParameter>& parameters) {
  nlohmann::ordered_json header;
  std::string bytes;
  for (const nn::NamedParameter& each : parameters) {
    const std::size_t begin = bytes.size();
    for (const float value : each.variable.data().to_vector<float>()) {
      const auto half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
      bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
    }
    header[each.path] = {{"dtype", "BF16"},
                         {"shape", each.variable.shape()},
                         {"data_offsets", {begin, bytes.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << bytes;
}

// The model in two files of bfloat16, with an index.
void save_in_two(nn::TransformerLM& model, const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  std::vector<nn::NamedParameter> halves[2];
  nlohmann::json index;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    const std::size_t file = (halves[0].size() + halves[1].size()) % 2;
    halves[file].push_back(each);
    index["weight_map"][each.path] = file == 0 ? "first.safetensors" : "second.safetensors";
  }
  write_bfloat16(folder / "first.safetensors", halves[0]);
  write_bfloat16(folder / "second.safetensors", halves[1]);
  io::write_text_atomically(folder / "model.safetensors.index.json", index.dump());
  io::write_text_atomically(folder / "config.json", io::to_hf_config(model.config()));
}

config::TrainConfig configure(const std::filesystem::path& from, const Words& more) {
  Words words = {"--model.from=" + from.string(), "--training.local_batch_size=1",
                 "--training.global_batch_size=12", "--training.steps=2"};
  words.insert(words.end(), more.begin(), more.end());
  return config::load_config(std::nullopt, words);
}

Words strategy(const std::string& name, int ranks) {
  return {"--parallel.strategy=" + name, "--parallel.ranks=" + std::to_string(ranks)};
}

RunResult run(const std::filesystem::path& from, const Words& more = {}) {
  return run_training(configure(from, more), some_text());
}

std::string complaint(const std::filesystem::path& from, const Words& more = {}) {
  return message_of<InputError>([&] { run(from, more); });
}

}  // namespace

TEST_CASE("from a folder, every strategy computes the same first loss", "[train][from]") {
  for (const bool tied : {false, true}) {
    const TemporaryFolder home;
    const auto model = make_model(tied);
    io::save_hf_folder(*model, home / "whole");
    save_in_two(*model, home / "two");
    const RunResult single = run(home / "whole");
    CHECK(single.losses.size() == 2);
    const RunResult random = run_training(
        config::load_config(std::nullopt,
                            {"--model.preset=nano", "--model.vocab_size=127",
                             "--training.local_batch_size=1", "--training.global_batch_size=12"}),
        some_text());
    CHECK(single.losses[0] != random.losses[0]);
    for (const char* folder : {"whole", "two"}) {
      for (const char* name : {"ddp", "fsdp"}) {
        for (const int ranks : {1, 2, 3, 4}) {
          INFO(folder << " " << name << " W=" << ranks);
          const RunResult other = run(home / folder, strategy(name, ranks));
          CHECK(other.losses[0] == single.losses[0]);
          CHECK(other.peak_bytes == bound_bytes(configure(home / folder, strategy(name, ranks))));
        }
      }
    }
    // Where the order of the sum is the same, so are all later steps.
    const Words eight = {"--training.global_batch_size=8"};
    const RunResult whole = run(home / "whole", eight);
    Words shared = strategy("fsdp", 4);
    shared.push_back(eight[0]);
    CHECK(run(home / "two", shared).losses == whole.losses);
    CHECK(run(home / "two", shared).param_sha256 == whole.param_sha256);
  }
}

TEST_CASE("no rank holds more than its shards while it loads, and draws nothing", "[train][from]") {
  for (const bool tied : {false, true}) {
    const TemporaryFolder home;
    const auto model = make_model(tied);
    save_in_two(*model, home / "two");
    const std::int64_t whole = 4 * model->config().parameter_count();
    for (const int ranks : {1, 2, 3, 4}) {
      const config::TrainConfig config = configure(home / "two", strategy("fsdp", ranks));
      struct Seen {
        Breakdown peak;
        std::int64_t scratch = 0;
        std::uint64_t drawn = 0;
      };
      std::vector<Seen> seen(static_cast<std::size_t>(ranks));
      threads::run_ranks({.world_size = ranks}, [&](ProcessGroup& group) {
        Context& context = Context::current();
        context.pool();  // the rank's scratch
        const std::int64_t scratch = context.tracker().current_total();
        const auto made = strategies::make_trained_model(config, borrowed(group));
        load_full(*made, config.from);
        seen[static_cast<std::size_t>(group.rank())] = {context.tracker().peak(), scratch,
                                                        context.generator().offset()};
      });
      for (const auto& [peak, scratch, drawn] : seen) {
        const std::int64_t shards = peak[MemoryKind::sharded_param];
        // Not even one unit.
        CHECK(peak.total() == scratch + shards + peak[MemoryKind::buffer]);
        CHECK(shards >= whole / ranks);
        CHECK(shards <= whole / ranks + 4 * 16);  // each vector is padded to a multiple of W
        CHECK(drawn == 0);
      }
    }
  }
}

TEST_CASE("single and ddp draw nothing for what they read", "[train][from]") {
  const TemporaryFolder home;
  io::save_hf_folder(*make_model(false), home / "model");
  Context context({.seed = 1});
  const ContextScope scope(context);
  const auto made = strategies::make_trained_model(configure(home / "model", {}), nullptr);
  CHECK(context.generator().offset() == 0);
  load_full(*made, home / "model");
  const auto model = make_model(false);
  const auto expected = model->named_parameters();
  const auto loaded = made->model().named_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(loaded[i].variable.data().to_vector<float>() ==
          expected[i].variable.data().to_vector<float>());
  }
}

TEST_CASE("a checkpoint counts more than the folder it began with", "[train][from]") {
  const TemporaryFolder home;
  io::save_hf_folder(*make_model(false), home / "model");
  io::save_hf_folder(*make_model(false), home / "other");
  const RunResult whole = run(home / "model", {"--training.steps=3"});
  const Words there = {"--checkpoint.folder=" + (home / "steps").string()};
  run(home / "model", there);
  Words longer = there;
  longer.emplace_back("--training.steps=3");
  const RunResult rest = run(home / "model", longer);
  CHECK(rest.first_step == 2);
  CHECK(rest.losses[0] == whole.losses[2]);
  CHECK(rest.param_sha256 == whole.param_sha256);
  CHECK_THAT(complaint(home / "other", longer),
             contains("was saved with model.from = " + (home / "model").string()));
}

TEST_CASE("an exported folder is a start", "[train][from]") {
  const TemporaryFolder home;
  io::save_hf_folder(*make_model(true), home / "model");
  RunOptions options;
  options.export_folder = home / "exported";
  run_training(configure(home / "model", {"--optimizer.lr=0", "--optimizer.weight_decay=0"}),
               some_text(), options);
  CHECK(run(home / "exported").losses[0] == run(home / "model").losses[0]);
}

TEST_CASE("the folder sets all of the model", "[train][from][config]") {
  const TemporaryFolder home;
  io::save_hf_folder(*make_model(true), home / "model");
  const config::TrainConfig config = configure(home / "model", {});
  CHECK(config.model.vocab_size == 127);
  CHECK(config.model.rope_theta == 5e4);
  CHECK(config.model.tie_word_embeddings);
  CHECK(config.settings.at("model.vocab_size") == "127");
  CHECK(config.model_name() == (home / "model").string());
  const std::string why =
      ": contradicts model.from: the config.json of " + (home / "model").string();
  CHECK_THAT(complaint(home / "model", {"--model.preset=nano"}),
             contains("command line: model.preset" + why));
  CHECK_THAT(complaint(home / "model", {"--model.vocab_size=127"}),
             contains("command line: model.vocab_size" + why));
  io::write_text_atomically(home / "run.toml", "[model]\nhidden_size = 16\n");
  CHECK_THAT(message_of<InputError>([&] {
               config::load_config(home / "run.toml", {"--model.from", (home / "model").string()});
             }),
             contains("run.toml:2: model.hidden_size" + why));
  // Empty is none.
  CHECK(config::load_config(home / "run.toml", {"--model.from="}).model.hidden_size == 16);
  CHECK_THAT(complaint(home / "none"),
             contains("command line: model.from: ") && contains("none: is no folder here"));
  std::filesystem::create_directory(home / "empty");
  CHECK_THAT(complaint(home / "empty"), contains("command line: model.from: ") &&
                                            contains("config.json") && contains("cannot be read"));
}

TEST_CASE("weights that are not the configuration's are refused by every strategy",
          "[train][from]") {
  const TemporaryFolder home;
  io::save_hf_folder(*make_model(false), home / "model");
  const auto path = home / "model/config.json";
  const nlohmann::json good = nlohmann::json::parse(io::read_text(path));
  const std::vector<Words> all = {strategy("single", 1), strategy("ddp", 2), strategy("fsdp", 3)};
  const auto refused = [&](const std::string& key, const nlohmann::json& value,
                           const std::string& part) {
    nlohmann::json changed = good;
    changed[key] = value;
    io::write_text_atomically(path, changed.dump());
    for (const Words& each : all) CHECK_THAT(complaint(home / "model", each), contains(part));
  };
  refused("tie_word_embeddings", true, "\"lm_head.weight\" differs from");
  refused("num_hidden_layers", 1, "is not part of the model");
  refused("num_hidden_layers", 3, "holds no tensor \"model.layers.2.");
  refused("intermediate_size", 44, "has shape (40, 16), but the model's has (44, 16)");
  refused("hidden_act", "gelu", "command line: model.from: " + path.string() + ": \"hidden_act\"");
}

TEST_CASE("text is no data for a model with a tokenizer", "[train][from]") {
  const TemporaryFolder home;
  io::save_hf_folder(*make_model(false), home / "model");
  CHECK(complaint(home / "model").empty());
  io::write_text_atomically(home / "model/tokenizer.json", "{}");
  CHECK_THAT(complaint(home / "model"), contains("data.path") &&
                                            contains((home / "model/tokenizer.json").string()) &&
                                            contains("make a file of its tokens"));
}

TEST_CASE("a size that model.from sets is no remedy for missing memory", "[train][from]") {
  const TemporaryFolder home;
  nn::TransformerConfig wide = sizes(false);
  wide.intermediate_size = 1'000'000;
  std::filesystem::create_directory(home / "model");
  io::write_text_atomically(home / "model/config.json", io::to_hf_config(wide));
  const std::string message = message_of<InputError>([&] {
    check_memory(configure(home / "model", {}), {1000, "a test's limit"});
  });
  CHECK_THAT(message, contains("would save most") && !contains("half the model."));
  // Fewer replicas are one.
  CHECK_THAT(message_of<InputError>([&] {
               const config::TrainConfig mesh =
                   configure(home / "model", {"--parallel.strategy=fsdp", "--parallel.ranks=4",
                                              "--parallel.data_parallel_replicate_degree=4"});
               check_memory(mesh, {1000, "a test's limit"});
             }),
             contains("half the parallel.data_parallel_replicate_degree would save most"));
}

}  // namespace fsdp::train
