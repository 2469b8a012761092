// model.from: the folders of Hugging Face that people have, and what is said of them.
#include "base/check.h"
#include "config/config.h"
#include "config/explain.h"
#include "config/hugging_face/folder.h"
#include "io/hf_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace fsdp::train::from_people_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::TemporaryFolder;

void write_config(const fs::path& folder, const json& changes) {
  json config = json::parse(io::to_hf_config(nn::TransformerConfig::nano()));
  config.update(changes);
  std::ofstream(folder / "config.json") << config.dump();
}

std::string complaint(const fs::path& from) {
  return message_of<InputError>(
      [&] { config::load_config(std::nullopt, {"--model.from=" + from.string()}); });
}

}  // namespace

TEST_CASE("what is given in place of a model's folder is named", "[train][hf]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "adapter_config.json") << "{}";
  CHECK_THAT(complaint(folder.path()),
             contains("model.from: ") && contains("is an adapter of PEFT without its model; "
                                                  "merge them first"));
  CHECK_THAT(complaint("meta-llama/Llama-3.1-8B"),
             contains("meta-llama/Llama-3.1-8B: is no folder here; if it is the name of a model on "
                      "the Hub, download it first"));
  write_config(folder.path(), json::object());
  CHECK_THAT(complaint(folder / "config.json"),
             contains("config.json: is a file; give the folder that it is in"));
  config::ConfigUse modeled;
  modeled.is_modeled = true;
  const config::TrainConfig config = config::load_config(
      std::nullopt, {"--model.from=" + (folder / "config.json").string()}, {}, modeled);
  CHECK(config.model.hidden_size == nn::TransformerConfig::nano().hidden_size);
}

TEST_CASE("a key that transformers does not know is passed over with a remark", "[train][hf]") {
  const TemporaryFolder folder;
  write_config(folder.path(), {{"internal_version", "7b-alpha"}, {"max_sequence_length", 8}});
  const config::TrainConfig config =
      config::load_config(std::nullopt, {"--model.from=" + folder.path().string()});
  for (const char* key : {"internal_version", "max_sequence_length"}) {
    const auto begin = (folder / "config.json").string() + ": " + key + ": is passed over";
    CHECK(std::ranges::any_of(
        config.remarks, [&](const std::string& remark) { return remark.starts_with(begin); }));
  }
  // A window is a Mistral's: transformers' Llama does not look at it.
  write_config(folder.path(), {{"sliding_window", 4}});
  const config::TrainConfig llama =
      config::load_config(std::nullopt, {"--model.from=" + folder.path().string()});
  CHECK(llama.model.max_position_embeddings ==
        nn::TransformerConfig::nano().max_position_embeddings);
  CHECK(std::ranges::any_of(llama.remarks, [](const std::string& remark) {
    return remark.find("sliding_window: is passed over") != std::string::npos;
  }));
  const config::Explanation made =
      config::explain(folder / "config.json", {}, {.is_modeled = true});
  CHECK_THAT(made.text, contains("noted     is passed over, as by transformers"));
  write_config(folder.path(), {{"rms_norm_epss", 1e-5}});
  CHECK_THAT(complaint(folder.path()),
             contains("unknown key \"rms_norm_epss\"; did you mean rms_norm_eps?"));
}

TEST_CASE("one note lists the keys of a config.json without effect", "[train][hf]") {
  const TemporaryFolder folder;
  write_config(folder.path(),
               {{"bos_token_id", 1}, {"transformers_version", "4.28.1"}, {"_name_or_path", "a/b"}});
  const config::TrainConfig config =
      config::load_config(std::nullopt, {"--model.from=" + folder.path().string()});
  REQUIRE(config.remarks.size() == 1);
  CHECK(config.remarks[0] == (folder / "config.json").string() +
                                 ": without effect on what the model computes: bos_token_id, "
                                 "use_cache, torch_dtype, transformers_version, _name_or_path");
}

TEST_CASE("all problems of a config.json are told at once", "[train][hf]") {
  const TemporaryFolder folder;
  write_config(folder.path(), {{"rms_norm_epss", 1e-5},
                               {"quantization_config", {{"bits", 4}}},
                               {"hidden_act", "gelu"},
                               {"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                               {"vocab_size", nullptr}});
  const std::string message = complaint(folder.path());
  const std::string begin = (folder / "config.json").string() + ": ";
  CHECK_THAT(message, contains("model.from: " + begin + "\"hidden_act\" is \"gelu\", but only"));
  for (const char* problem :
       {"\"quantization_config\" is not supported: the weights are quantized",
        "lacks \"vocab_size\"", "\"rope_scaling.type\" is \"linear\", but only",
        "unknown key \"rms_norm_epss\"; did you mean rms_norm_eps?"}) {
    CHECK_THAT(message, contains("\n" + begin + problem));
  }
}

TEST_CASE("an explanation says what becomes of each key of a config.json", "[train][hf]") {
  const TemporaryFolder folder;
  write_config(folder.path(), {{"pad_token_id", -1}, {"internal_version", "7b"}});
  const auto row = [](const config::Explanation& made, const std::string& key) {
    const std::size_t begin = made.text.find("\n" + key + " ") + 1;
    return made.text.substr(begin, made.text.find('\n', begin) - begin);
  };
  for (const bool is_modeled : {false, true}) {
    const config::Explanation made =
        config::explain(folder / "config.json", {}, {.is_modeled = is_modeled});
    CHECK(made.problems.empty());
    CHECK_THAT(row(made, "hidden_size"),
               contains("16") && contains("read") && contains("model.hidden_size = 16"));
    CHECK_THAT(row(made, "architectures"), contains("read") && contains("what the model is"));
    CHECK_THAT(row(made, "pad_token_id"), contains("-1") && contains("model.pad_token_id = 30"));
    CHECK_THAT(row(made, "hidden_act"), contains("equal") && contains("what is done anyway"));
    CHECK_THAT(row(made, "bos_token_id"), contains("null") && contains("equal"));
    CHECK_THAT(row(made, "use_cache"), contains("noted") && contains("changes nothing"));
    CHECK_THAT(row(made, "internal_version"), contains("noted") && contains("passed over"));
  }
  write_config(folder.path(),
               {{"rope_scaling", {{"type", "linear"}}}, {"mlp_bias", true}, {"rms_norm_epss", 1}});
  const config::Explanation wrong =
      config::explain(folder / "config.json", {}, {.is_modeled = true});
  CHECK_THAT(wrong.problems, contains("\"mlp_bias\" is true"));
  CHECK_THAT(row(wrong, "mlp_bias"), contains("refused") && contains("\"mlp_bias\" is true"));
  CHECK_THAT(row(wrong, "rope_scaling"), contains("refused") && contains("only \"default\""));
  CHECK_THAT(row(wrong, "rms_norm_epss"), contains("unknown") && contains("did you mean"));
}

TEST_CASE("an explanation has the values that a silent config.json stands for", "[train][hf]") {
  const TemporaryFolder folder;
  write_config(folder.path(), {{"num_key_value_heads", nullptr},
                               {"head_dim", nullptr},
                               {"rope_theta", nullptr},
                               {"max_position_embeddings", nullptr},
                               {"rms_norm_eps", nullptr},
                               {"pad_token_id", nullptr}});
  const auto values = [&](const std::string& key) {
    const config::Explanation made =
        config::explain(folder / "config.json", {}, {.is_modeled = true});
    REQUIRE(made.problems.empty());
    CHECK_THAT(made.text, !contains("model.from"));
    std::istringstream lines(made.text);
    std::vector<std::string> words;
    for (std::string line, word; std::getline(lines, line);) {
      std::istringstream row(line);
      if (!(row >> word) || word != key) continue;
      while (row >> word) words.push_back(word);
    }
    return words;
  };
  const std::string file = (folder / "config.json").string();
  const auto by_default = [&](const char* value) {
    return std::vector<std::string>{value, "default", file, "(transformers'", "default)"};
  };
  CHECK(values("model.num_key_value_heads") == by_default("2"));  // as many as there are heads
  CHECK(values("model.head_dim") == by_default("8"));             // hidden_size / heads
  CHECK(values("model.max_position_embeddings") == by_default("2048"));
  CHECK(values("model.rms_norm_eps") == by_default("1e-06"));
  CHECK(values("model.rope_theta") == by_default("10000"));
  CHECK(values("model.rope_factor") == by_default("none"));
  CHECK(values("model.pad_token_id") == by_default("none"));
  CHECK(values("model.rope_low_freq_factor").empty());
  CHECK(values("model.hidden_size").empty());  // the file has it

  // What follows from other sizes is shown as it is written, not as it is kept.
  write_config(folder.path(), {{"num_key_value_heads", 2},
                               {"head_dim", 8},
                               {"rope_parameters",
                                {{"rope_type", "llama3"},
                                 {"rope_theta", 5e5},
                                 {"factor", 8},
                                 {"low_freq_factor", 1},
                                 {"high_freq_factor", 4},
                                 {"original_max_position_embeddings", 8192}}},
                               {"rope_theta", nullptr}});
  using Words = std::vector<std::string>;
  const auto read = [](const char* written, const char* key, const char* value) {
    return Words{written, "read", key, "=", value};
  };
  CHECK(values("num_key_value_heads") == read("2", "model.num_key_value_heads", "2"));
  CHECK(values("head_dim") == read("8", "model.head_dim", "8"));
  const Words rope = values("rope_parameters");
  const auto has = [&](const char* key, const char* value) {
    const auto found = std::ranges::find(rope, key);
    return rope.end() - found > 2 && (found[2] == value || found[2] == std::string(value) + ",");
  };
  CHECK(has("model.rope_theta", "500000"));
  CHECK(has("model.rope_factor", "8"));
  CHECK(has("model.rope_original_context", "8192"));
  CHECK(values("model.rope_factor").empty());
}

TEST_CASE("a file of another kind is named with the option that it belongs to", "[train][hf]") {
  const TemporaryFolder folder;
  write_config(folder.path(), json::object());
  const fs::path model = folder / "config.json", other = folder / "other.json";
  const auto refused = [](const std::optional<fs::path>& config,
                          const std::optional<fs::path>& deepspeed,
                          const std::vector<std::string>& words = {}) {
    return message_of<InputError>([&] { config::load_config(config, words, deepspeed); });
  };
  CHECK_THAT(refused({}, model), contains("config.json: is the config.json of a model; give its "
                                          "folder with --model.from"));
  std::ofstream(other) << R"({"name": "a", "scripts": {"test": "b"}, "_comment": 1})";
  CHECK_THAT(refused({}, other), contains("other.json: has no key of DeepSpeed's"));
  std::ofstream(other) << "\n  {\"zero_optimization\": {}}";
  CHECK_THAT(refused(other, {}), contains("other.json: is JSON, not TOML; give a DeepSpeed "
                                          "configuration with --deepspeed"));
  std::ofstream(other) << "# made by accelerate\ncompute_environment: LOCAL_MACHINE\nfsdp_config:\n"
                          "  fsdp_version: 2\nnum_processes: 8\n";
  for (const std::string& message : {refused(other, {}), refused({}, other)}) {
    CHECK_THAT(message,
               contains("other.json: is YAML, such as accelerate writes, and none is read; "
                        "give the JSON that it names as deepspeed_config_file"));
  }
  std::ofstream(other) << "steps: 10\n[training]\nseq_len = 5\n";
  CHECK_THAT(refused(other, {}), contains("other.json:1: not TOML, at \"steps: 10\""));
  CHECK_THAT(
      refused({}, {}, {"llama.toml"}),
      contains("command line: llama.toml: is no option; give a file of ours or of torchtitan "
               "with --config"));
}

TEST_CASE("a config.json is told from a DeepSpeed file by the keys at its top", "[train][hf]") {
  const TemporaryFolder folder;
  // Without a word about its architecture it is a model's all the same.
  write_config(folder.path(), {{"model_type", nullptr}, {"architectures", nullptr}});
  CHECK_THAT(config::explain(folder / "config.json", {}, {.is_modeled = true}).problems,
             contains("has neither \"model_type\" nor \"architectures\""));
  // A long one too, which no DeepSpeed file is.
  write_config(folder.path(), {{"id2label", {{"0", std::string(100'000, 'a')}}}});
  const config::Explanation longer =
      config::explain(folder / "config.json", {}, {.is_modeled = true});
  CHECK(longer.problems.empty());
  CHECK_THAT(longer.text, contains("model.hidden_size = 16"));
  std::ofstream(folder / "ds.json") << R"({"zero_optimization": {"stage": 3}, "data_efficiency":
    {"enabled": false, "data_routing": {"random_ltd": {"model_type": "decoder"}}}})";
  const config::Explanation made = config::explain(folder / "ds.json", {}, {.is_modeled = true});
  CHECK(made.problems.empty());
  CHECK_THAT(made.text, contains("parallel.strategy = fsdp"));
}

}  // namespace fsdp::train::from_people_test
