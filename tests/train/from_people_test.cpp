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
  write_config(folder.path(), {{"rms_norm_epss", 1e-5}});
  CHECK_THAT(complaint(folder.path()),
             contains("unknown key \"rms_norm_epss\"; did you mean rms_norm_eps?"));
}

}  // namespace fsdp::train::from_people_test
