// Folders for Hugging Face's from_pretrained: 16 bits, several files, and what goes with a model.
// That transformers loads them is shown by tests/oracle.
#include "io/hf_folder_writer.h"

#include "base/check.h"
#include "device/context.h"
#include "io/file_io.h"
#include "io/half_floats.h"
#include "io/output_folder.h"
#include "support/catch.h"
#include "support/killed.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::io::writing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::run_killed;
using testing::TemporaryFolder;
using Names = std::vector<std::string>;

std::unique_ptr<nn::TransformerLM> nano(std::uint64_t seed, bool tied = false) {
  Context context({.seed = seed});
  const ContextScope scope(context);
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.tie_word_embeddings = tied;
  return std::make_unique<nn::TransformerLM>(config);
}

using Values = std::map<std::string, std::vector<float>>;

Values values_of(nn::TransformerLM& model) {
  Values values;
  for (const nn::NamedParameter& each : model.named_parameters())
    values[each.path] = each.variable.data().to_vector<float>();
  return values;
}

Values loaded(const fs::path& folder, bool tied = false) {
  const auto model = nano(99, tied);
  load_hf_folder(*model, folder);
  return values_of(*model);
}

Values rounded(Values values, DType stored) {
  for (auto& [path, numbers] : values) {
    for (float& number : numbers) {
      number = stored == DType::bfloat16 ? from_bfloat16(to_bfloat16(number))
                                         : from_float16(to_float16(number));
    }
  }
  return values;
}

// The names in a folder, but for the mark.
Names names_in(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != ".unshard") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

HfExport in(DType stored, std::uint64_t max_shard_size = 0) {
  HfExport how;
  how.dtype = stored;
  how.max_shard_size = max_shard_size;
  return how;
}

json config_in(const fs::path& folder) { return json::parse(read_text(folder / "config.json")); }

// A model's folder with a tokenizer and all that belongs to it.
void write_source(const fs::path& folder) {
  save_hf_folder(*nano(5), folder);
  json config = config_in(folder);
  config.update({{"bos_token_id", 1}, {"eos_token_id", {2, 30}}, {"torch_dtype", "float16"}});
  config.erase("pad_token_id");
  write_text_atomically(folder / "config.json", config.dump());
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer.model",
                           "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "merges.txt", "chat_template.jinja", "README.md"})
    write_text_atomically(folder / name, std::string("this is ") + name);
}

}  // namespace

TEST_CASE("a model written in 16 bits comes back as its rounded weights", "[hf][export]") {
  for (const bool tied : {false, true}) {
    const auto model = nano(1, tied);
    for (const DType stored : {DType::bfloat16, DType::float16}) {
      for (const std::uint64_t most : {0U, 3000U}) {
        const TemporaryFolder home;
        save_hf_folder(*model, home / "model", in(stored, most));
        CHECK(loaded(home / "model", tied) == rounded(values_of(*model), stored));
        CHECK(config_in(home / "model").at("torch_dtype") == std::string(name_of(stored)));
        const SafetensorsReader reader(home / "model/model.safetensors");
        for (const auto& [name, entry] : reader.entries()) CHECK(entry.stored == stored);
      }
    }
    const TemporaryFolder home;
    save_hf_folder(*model, home / "model");
    CHECK(config_in(home / "model").at("torch_dtype") == "float32");
  }
}

TEST_CASE("a file of several is full when the next tensor does not fit", "[hf][export]") {
  const auto model = nano(1);
  const auto parameters = model->named_parameters();
  std::uint64_t all = 0, largest = 0;
  for (const nn::NamedParameter& each : parameters) {
    all += each.variable.data().nbytes();
    largest = std::max<std::uint64_t>(largest, each.variable.data().nbytes());
  }
  for (const std::uint64_t most : {std::uint64_t{1}, largest, largest + 100, all - 1, all}) {
    INFO(most);
    const TemporaryFolder home;
    save_hf_folder(*model, home / "model", in(DType::float32, most));
    CHECK(loaded(home / "model") == values_of(*model));
    if (most == all) {
      CHECK(names_in(home / "model") == Names{"config.json", "model.safetensors"});
      continue;
    }
    const json index = json::parse(read_text(home / "model/model.safetensors.index.json"));
    CHECK(index.size() == 2);
    CHECK(index.at("metadata").at("total_size") == all);
    CHECK(index.at("metadata").at("total_parameters") == all / 4);
    CHECK(index.at("weight_map").size() == parameters.size());
    // In the order of the model: each file as full as it can be.
    std::vector<std::pair<std::string, std::uint64_t>> files;
    for (const nn::NamedParameter& each : parameters) {
      const std::string name = index.at("weight_map").at(each.path);
      const std::uint64_t nbytes = each.variable.data().nbytes();
      const bool is_new = files.empty() || files.back().second + nbytes > most;
      if (is_new) files.emplace_back(name, 0);
      CHECK(files.back().first == name);
      files.back().second += nbytes;
    }
    Names expected = {"config.json"};
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
      CHECK(files[i].first == name);
      CHECK(SafetensorsReader(home / "model" / name).metadata().at("format") == "pt");
      expected.push_back(name);
    }
    expected.emplace_back("model.safetensors.index.json");
    CHECK(names_in(home / "model") == expected);
    CHECK(files.size() > 1);
    if (most == 1) CHECK(files.size() == parameters.size());
  }
}

TEST_CASE("several files replace one, and one replaces several", "[hf][export]") {
  const TemporaryFolder home;
  for (const std::uint64_t most : {0U, 2000U, 0U, 4000U}) {
    const auto model = nano(most + 1);
    save_hf_folder(*model, home / "model", in(DType::float32, most));
    CHECK(loaded(home / "model") == values_of(*model));
    CHECK(fs::exists(home / "model/model.safetensors") == (most == 0));
  }
}

TEST_CASE("a weight that float16 cannot hold leaves the earlier folder as it was", "[hf][export]") {
  const TemporaryFolder home;
  const auto before = nano(1), model = nano(2);
  save_hf_folder(*before, home / "model");
  const Tensor& norm = model->named_parameters().back().variable.data();
  norm.data<float>()[norm.numel() - 1] = -65520;
  for (const std::uint64_t most : {0U, 2000U}) {
    CHECK_THAT(message_of<InputError>(
                   [&] { save_hf_folder(*model, home / "model", in(DType::float16, most)); }),
               contains("tensor \"" + model->named_parameters().back().path + "\" holds -65520") &&
                   contains("store it as float32 or bfloat16"));
    CHECK(loaded(home / "model") == values_of(*before));
    CHECK(names_in(home / "model") == Names{"config.json", "model.safetensors"});
    save_hf_folder(*before, home / "model");  // nothing is in the way
  }
  save_hf_folder(*model, home / "model", in(DType::bfloat16));
}

TEST_CASE("parameters are written in their order, and all of them", "[hf][export]") {
  const TemporaryFolder home;
  const auto model = nano(1);
  const auto parameters = model->named_parameters();
  HfFolderWriter writer(home / "model", model->config(), parameters);
  CHECK_THROWS_AS(writer.write(parameters[1].path, parameters[1].variable.data()), Error);
  for (const nn::NamedParameter& each : parameters) {
    CHECK_THROWS_AS(writer.publish(), Error);
    writer.write(each.path, each.variable.data());
  }
  CHECK_THROWS_AS(writer.write(parameters[0].path, parameters[0].variable.data()), Error);
  CHECK_FALSE(fs::exists(home / "model"));
  CHECK(writer.publish().empty());
  CHECK(loaded(home / "model") == values_of(*model));
}

TEST_CASE("what belongs to a model goes with it", "[hf][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  // As in Hugging Face's cache, where files are links.
  fs::rename(home / "source/tokenizer.json", home / "blob");
  fs::create_symlink(home / "blob", home / "source/tokenizer.json");
  HfExport how = in(DType::bfloat16, 2000);
  how.extras = find_hf_extras(home / "source");
  save_hf_folder(*nano(1), home / "model", how);
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer.model",
                           "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "merges.txt", "chat_template.jinja"}) {
    CHECK(read_text(home / "model" / name) == std::string("this is ") + name);
    CHECK_FALSE(fs::is_symlink(home / "model" / name));
  }
  CHECK_FALSE(fs::exists(home / "model/README.md"));
  const json config = config_in(home / "model");
  CHECK(config.at("bos_token_id") == 1);
  CHECK(config.at("eos_token_id") == json{2, 30});
  CHECK_FALSE(config.contains("pad_token_id"));  // as there: absent and null may differ
  CHECK(config.at("torch_dtype") == "bfloat16");
  CHECK(loaded(home / "model") == rounded(values_of(*nano(1)), DType::bfloat16));
  // All of it is ours: it can be replaced.
  save_hf_folder(*nano(1), home / "model");
  CHECK(names_in(home / "model") == Names{"config.json", "model.safetensors"});
  CHECK(config_in(home / "model").at("eos_token_id").is_null());
}

TEST_CASE("a folder can take the place of the one that it came from", "[hf][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  HfExport how;
  how.extras = find_hf_extras(home / "source");
  save_hf_folder(*nano(1), home / "model", how);
  how.extras = find_hf_extras(home / "model");
  save_hf_folder(*nano(2), home / "model", how);
  CHECK(read_text(home / "model/tokenizer.json") == "this is tokenizer.json");
  CHECK(loaded(home / "model") == values_of(*nano(2)));
}

TEST_CASE("what can no longer be read is named, and the model is written", "[hf][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  HfExport how;
  how.extras = find_hf_extras(home / "source");
  fs::remove(home / "source/merges.txt");
  fs::remove(home / "source/vocab.json");
  fs::create_directory(home / "source/vocab.json");
  const auto model = nano(1);
  HfFolderWriter writer(home / "model", model->config(), model->named_parameters(), how);
  for (const nn::NamedParameter& each : model->named_parameters())
    writer.write(each.path, each.variable.data());
  const Names missing = writer.publish();
  REQUIRE(missing.size() == 2);
  CHECK_THAT(missing[0], contains("vocab.json: is a folder") &&
                             contains((home / "model").string() + " is without it"));
  CHECK_THAT(missing[1], contains("merges.txt: cannot be read"));
  CHECK(names_in(home / "model").size() == 2 + 7);
  CHECK(loaded(home / "model") == values_of(*model));
}

TEST_CASE("whatever step a crash comes before, the folder is the old one or the new one",
          "[hf][export]") {
  const TemporaryFolder home;
  write_source(home / "source");
  const auto before = nano(1), after = nano(2);
  HfExport how = in(DType::bfloat16, 4000);
  how.extras = find_hf_extras(home / "source");
  const Values old_values = values_of(*before);
  const Values new_values = rounded(values_of(*after), DType::bfloat16);
  save_hf_folder(*after, home / "whole", how);
  const Names new_names = names_in(home / "whole");
  save_hf_folder(*before, home / "model");
  const auto save = [&] { save_hf_folder(*after, home / "model", how); };
  int seen_old = 0, seen_new = 0;
  for (int last = 0; run_killed(last, save); ++last) {
    INFO(last);
    const fs::path folder = existing_folder(home / "model");
    const bool is_new = fs::exists(folder / "tokenizer.json");
    const Values found = loaded(folder);
    CHECK(found == (is_new ? new_values : old_values));
    CHECK(names_in(folder) == (is_new ? new_names : Names{"config.json", "model.safetensors"}));
    CHECK((seen_new == 0 || is_new));
    ++(is_new ? seen_new : seen_old);
  }
  CHECK(seen_old > 20);
  CHECK(seen_new > 0);
  CHECK(loaded(home / "model") == new_values);
}

}  // namespace fsdp::io::writing
