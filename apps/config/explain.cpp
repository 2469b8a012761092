#include "config/explain.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/deepspeed/rows.h"
#include "config/foreign/report.h"
#include "config/hugging_face/rows.h"
#include "config/titan/rows.h"
#include "io/file_io.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

namespace fsdp::config {
namespace {

struct Format {
  const char* name;   // --keys
  const char* title;  // of the page
  const foreign::Rows& (*rows)();
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"torchtitan", "torchtitan", titan::rows},
      {"deepspeed", "DeepSpeed", deepspeed::rows},
      {"huggingface", "Hugging Face's config.json", hugging_face::rows}};
  return all;
}

using Row = std::array<std::string, 4>;

std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, 3> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:{}}  {:{}}  {:{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2],
                        widths[2], row[3]);
  }
  return text;
}

// Whether a key is looked at: those that scale by a factor are, if there is one.
bool counts(const std::string& key, const TrainConfig& config) {
  return config.model.rope_scaling.is_on() || key == "model.rope_factor" ||
         key == "model.rope_theta" || !key.starts_with("model.rope_");
}

// What counts of a key, as a user would write it: a value that stands for another one is that one.
std::string value_used(const std::string& key, const TrainConfig& config) {
  const std::string& value = config.settings.at(key);
  const nn::TransformerConfig& model = config.model;
  if (key == "model.num_key_value_heads") return fmt::format("{}", model.effective_kv_heads());
  if (key == "model.head_dim") return fmt::format("{}", model.head_dim());
  if (key == "training.seq_len") return fmt::format("{}", config.sequence_length());
  if (key == "training.global_batch_size") {
    return fmt::format("{}", config.training.global_batch_size);
  }
  const bool is_none = (key == "model.pad_token_id" && model.pad_token_id < 0) ||
                       (key == "model.rope_factor" && !model.rope_scaling.is_on());
  return is_none ? "none" : printable(value);
}

// What counts of the keys that an entry of a file sets.
std::string used(const foreign::Account& account, const TrainConfig& config) {
  std::vector<std::string> parts;
  for (const std::string& key : account.keys) {
    const auto origin = config.origins.find(key);  // a model's config.json has none
    if (!config.settings.contains(key) || !counts(key, config)) continue;
    const bool is_beaten =
        origin != config.origins.end() && !origin->second.starts_with(account.place);
    parts.push_back(fmt::format("{} = {}{}", key, value_used(key, config),
                                is_beaten ? " (" + origin->second + ")" : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Whether it is a config.json of Hugging Face, also of one that lacks some of these.
bool is_of_a_model(const std::filesystem::path& file) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 26;  // a model's may have many labels
  const auto no_lines = [](const std::vector<std::string>&, int) {};
  try {
    const auto object = io::parse_ordered_json(io::read_text(file, kMostBytes), no_lines);
    constexpr const char* kOfModels[] = {"architectures", "model_type", "hidden_size",
                                         "num_hidden_layers", "vocab_size"};
    return std::ranges::any_of(kOfModels, [&](const char* key) { return object.contains(key); });
  } catch (const io::JsonError&) {
    return file.filename() == "config.json";  // reading it says what is wrong
  }
}

// What a config.json that is silent stands for: the keys of a model that no entry of it sets.
std::vector<Row> silent_of_model(const foreign::Report& report, const TrainConfig& config,
                                 const std::string& file) {
  std::set<std::string> said = {"model.from", "model.preset"};
  for (const foreign::Account& each : report.accounts) {
    if (each.decision == foreign::Decision::read) said.insert(each.keys.begin(), each.keys.end());
  }
  std::vector<Row> rows;
  for (const auto& [key, value] : config.settings) {
    if (!key.starts_with("model.") || said.contains(key) || !counts(key, config)) continue;
    rows.push_back({key, value_used(key, config), "default", file + " (transformers' default)"});
  }
  return rows;
}

bool is_default_of_a_format(const std::string& origin) { return origin.ends_with("default)"); }

}  // namespace

Explanation explain(const std::filesystem::path& file, std::vector<std::string> words,
                    ConfigUse use) {
  foreign::Report report;
  use.report = &report;
  use.environment.config_file.reset();
  const bool is_json = file.extension() == ".json";
  const bool is_model = is_json && is_of_a_model(file);
  if (is_model) {
    const bool is_folder = !use.is_modeled && file.filename() == "config.json";
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    words.push_back("--model.from=" + (is_folder ? folder : file).string());
  }
  using Path = std::optional<std::filesystem::path>;
  Explanation made;
  TrainConfig config;
  try {
    config = load_config(is_json ? Path() : Path(file), words,
                         is_json && !is_model ? Path(file) : Path(), use);
  } catch (const InputError& error) {
    made.problems = error.what();
  }
  std::vector<Row> rows = {{"key", "in the file", "decision", "here"}};
  for (const foreign::Account& each : report.accounts) {
    std::string here = each.decision == foreign::Decision::read ? used(each, config) : "";
    if (here.empty()) here = each.why;
    if (each.decision == foreign::Decision::equal) here = "what is done anyway";
    rows.push_back({printable(each.path), printable(each.value, 40), name_of(each.decision), here});
  }
  if (rows.size() > 1) made.text = table(rows);
  if (!made.problems.empty()) return made;
  rows.clear();
  std::size_t others = 0;
  if (is_model) rows = silent_of_model(report, config, file.string());
  for (const auto& [key, value] : config.settings) {
    if (is_model && key.starts_with("model.")) continue;
    const auto origin = config.origins.find(key);
    const bool is_implied =
        origin != config.origins.end() && is_default_of_a_format(origin->second);
    if (origin == config.origins.end()) ++others;
    const bool is_in_file =
        origin != config.origins.end() && !is_implied && origin->second.starts_with(file.string());
    if (origin == config.origins.end() || is_in_file) continue;
    rows.push_back(
        {key, value_used(key, config), is_implied ? "default" : "given", origin->second});
  }
  if (!rows.empty()) made.text += "\nWhere the file is silent, or is beaten:\n" + table(rows);
  made.text +=
      fmt::format("\nThe other {} keys have our own defaults (--help lists them).", others);
  return made;
}

std::vector<std::string> foreign_formats() {
  std::vector<std::string> names;
  for (const Format& each : formats()) names.emplace_back(each.name);
  return names;
}

std::string describe_format(const std::string& format) {
  const Format& found =
      *std::ranges::find_if(formats(), [&](const Format& each) { return each.name == format; });
  return foreign::describe(found.title, found.rows());
}

}  // namespace fsdp::config
