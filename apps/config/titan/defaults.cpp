// The models of torchtitan, and what it does where its file is silent.
#include "base/check.h"
#include "base/printable.h"
#include "config/titan/given.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::config::titan {
namespace {

constexpr const char* kDebug = "debugmodel";

const std::map<std::string, std::map<std::string, std::string>>& families() {
  static const std::map<std::string, std::map<std::string, std::string>> presets = {
      {"llama3",
       {{kDebug, "llama3_debug"},
        {"8B", "llama3_8b"},
        {"70B", "llama3_70b"},
        {"405B", "llama3_405b"}}},
      {"llama2",
       {{kDebug, "llama2_debug"},
        {"7B", "llama2_7b"},
        {"13B", "llama2_13b"},
        {"70B", "llama2_70b"}}},
      // The name of both, before each had its own.
      {"llama",
       {{kDebug, "llama2_debug"},
        {"7B", "llama2_7b"},
        {"13B", "llama2_13b"},
        {"70B", "llama2_70b"},
        {"8B", "llama3_8b"},
        {"405B", "llama3_405b"}}},
  };
  return presets;
}

std::string name_in(const Own& own, const char* key, const char* fallback) {
  const auto found = own.find(key);
  return found == own.end() ? fallback : found->second.value.value_or("");
}

}  // namespace

std::optional<std::string> preset_of(const Own& own, foreign::Report& report) {
  const std::string name = name_in(own, "model.name", "llama3");
  const std::string flavor = name_in(own, "model.flavor", kDebug);
  const auto refuse = [&](const char* key, const std::string& why) {
    const Setting& setting = own.at(key);
    report.add_problem(fmt::format("{}: {}: is {}, {}", setting.origin, key,
                                   printable(setting.value.value_or("missing")), why));
    return std::nullopt;
  };
  const auto family = families().find(name);
  if (family == families().end()) {
    return refuse("model.name",
                  "an architecture that is not here: models are Llamas; use llama3 or llama2, or "
                  "set model.from to a Hugging Face folder of a Llama");
  }
  const auto preset = family->second.find(flavor);
  if (preset != family->second.end()) return preset->second;
  std::vector<std::string> names;
  for (const auto& [each, ours] : family->second) names.push_back(each);
  return refuse("model.flavor",
                fmt::format("must be one of {} for {}; other sizes are set by model.hidden_size "
                            "and its like",
                            fmt::join(names, ", "), name));
}

void settle_selective(AllGiven& all, const Own& own, foreign::Report& report) {
  const auto option = own.find("activation_checkpoint.selective_ac_option");
  const std::string text = option == own.end() ? "2" : option->second.value.value_or("");
  const bool is_by_operation = text == "op";
  const auto is_mode = [](const Given& each) { return each.setting.key == kCheckpoint; };
  const auto last = std::ranges::find_if(all.rbegin(), all.rend(), is_mode);
  if (last == all.rend()) return;
  const bool is_last = last->is_translated() && last->setting.value == "selective";
  for (Given& each : all) {
    if (!is_mode(each) || !each.is_translated() || each.setting.value != "selective") continue;
    each.setting.value = is_by_operation ? "operations" : "block";
  }
  const Setting every{"training.checkpoint_every", last->setting.origin, text};
  const bool is_given = std::ranges::any_of(all, [&](const Given& each) {
    return each.setting.key == every.key && each.setting.origin == every.origin;
  });
  if (!is_last || is_by_operation || is_given) return;
  const bool is_number = !text.empty() && text.size() < 7 && text != "0" &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    report.add_problem(fmt::format("{}: {}: is {}, must be op, or n for every n-th block",
                                   option->second.origin, option->first, printable(text)));
    return;
  }
  all.insert(last.base(), {every, every.key});
}

void imply_defaults(AllGiven& all, const Own& own, const TitanSurroundings& around) {
  std::vector<std::pair<std::string, std::string>> defaults = {
      {"training.mixed_precision_param", "bfloat16"},
      {"training.mixed_precision_reduce", "float32"},
      {"training.seq_len", "2048"},
      {"training.local_batch_size", "8"},
      {"training.global_batch_size", "0"},
      {"training.steps", "10000"},
      {"training.max_norm", "1"},
      {"optimizer.name", "adamw"},
      {"optimizer.lr", "0.0008"},
      {"optimizer.beta1", "0.9"},
      {"optimizer.beta2", "0.95"},
      {"optimizer.eps", "1e-08"},
      {"optimizer.weight_decay", "0.1"},
      {"parallel.reshard_after_forward", "true"},
      {"metrics.log_freq", "10"},
  };
  if (last_of(all, "model.from") == nullptr && last_of(all, "model.preset") == nullptr) {
    if (const auto preset = preset_of(own, around.report)) {
      defaults.insert(defaults.begin(), {"model.preset", *preset});
    }
  }
  std::vector<std::string> said;
  for (const Given& each : all) {
    if (each.setting.origin != around.file + kByDefault) continue;
    said.push_back(each.setting.key + " " + *each.setting.value);
  }
  std::ptrdiff_t first = 0;
  for (const auto& [key, value] : defaults) {
    if (last_of(all, key) != nullptr) continue;
    said.push_back(key + " " + (value == "0" ? "-1" : value));
    if (key_named(around.keys, key).get() == value) continue;
    const Setting setting{key, around.file + kByDefault, value};
    all.insert(all.begin() + first++, {setting, key});
  }
  if (said.empty()) return;
  around.warnings.push_back(
      fmt::format("{}: is torchtitan's, whose defaults count where it is silent: {}", around.file,
                  fmt::join(said, ", ")));
}

}  // namespace fsdp::config::titan
