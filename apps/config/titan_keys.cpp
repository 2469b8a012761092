#include "config/titan_keys.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/titan/given.h"
#include "config/titan/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>
#include <variant>

namespace fsdp::config {
namespace titan {
namespace {

using foreign::Decision;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

const Row* row_of(const std::string& key) { return foreign::find(rows(), key); }

// What torchtitan's files lack for a training here, and may be given in them.
constexpr const char* kReshard = "parallel.reshard_after_forward";
constexpr const char* kBeside[] = {"data.",    "sample.",         "export.",
                                   "metrics.", "checkpoint.from", "memory_estimation.framework"};

// Degrees moved to a section of their own early in 2025. (training.compile stayed until summer.)
bool is_of_2024(const std::string& key) {
  static constexpr const char* kDropped[] = {
      "training.data_parallel",        "training.tensor_parallel",
      "training.pipeline_parallel",    "training.enable_selective_ac",
      "experimental.data_parallel",    "experimental.pipeline_parallel",
      "experimental.context_parallel", "experimental.enable_async_tensor_parallel"};
  return std::ranges::any_of(kDropped, [&](const char* each) { return key.starts_with(each); });
}

// Whether torchtitan's command line may have the key without a value.
bool is_bare(const std::string& key) {
  const Row* row = row_of(key);
  if (key == "training.compile" || key == "training.fp8_linear") return true;  // of 2024
  const bool is_switch = key.find(".enable") != std::string::npos;
  const bool may_be =
      row != nullptr && (row->use == Row::Use::idle || (row->use == Row::Use::own && is_switch) ||
                         (row->use == Row::Use::only && row->word == "false"));
  return may_be || is_flag("--" + key);
}

// The key that an older spelling stands for; itself if it is not one.
std::string newest(const std::string& key) {
  static const std::map<std::string, std::string> older = {
      {"training.data_parallel_shard_degree", kShard},
      {"training.data_parallel_degree", kShard},
      {"training.data_parallel_replicate_degree", kReplicate},
      {"training.enable_selective_ac", kMode},
      {"training.compile", "compile.enable"},
      {"checkpoint.enable_checkpoint", "checkpoint.enable"},
      {"training.checkpoint_folder", "checkpoint.folder"},
      {"training.checkpoint_interval", "checkpoint.interval"},
      {"training.checkpoint_interval_type", "checkpoint.interval_type"},
      {"training.warmup_steps", "lr_scheduler.warmup_steps"},
      {"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"},
  };
  const auto found = older.find(key);
  return found == older.end() ? key : found->second;
}

std::string shown(const Setting& setting) {
  const std::string text = printable(setting.value.value_or("missing"));
  return setting.is_quoted.value_or(false) || text.empty() ? '"' + text + '"' : text;
}

/// One translation, setting by setting.
class Translator {
 public:
  Translator(TitanKeys& titan, const std::vector<Setting>& settings,
             const TitanSurroundings& around)
      : titan_(titan), around_(around), keys_(titan.keys()) {
    const auto is_in_file = [](const Setting& each) { return each.origin != kCommandLine; };
    const auto is_theirs = [&](const Setting& each) { return is_theirs_alone(each.key); };
    const auto is_ours = [&](const Setting& each) {
      const auto begins = [&](const char* section) { return each.key.starts_with(section); };
      const bool is_beside = std::ranges::any_of(kBeside, begins);
      return has_ours(each.key) && row_of(each.key) == nullptr && !is_beside;
    };
    std::vector<Setting> file;
    std::ranges::copy_if(settings, std::back_inserter(file), is_in_file);
    titan_.is_file = std::ranges::any_of(file, is_theirs) && std::ranges::none_of(file, is_ours);
    if (std::ranges::any_of(file, is_theirs) && !titan_.is_file) {
      mixes_ = std::ranges::find_if(file, is_ours)->key;
    }
    has_titan_ = std::ranges::any_of(settings, is_theirs);
    for (const Setting& each : settings) {
      if (each.key == "model.name") own_[each.key] = each;  // wherever it stands
    }
  }

  void take(Setting setting) {
    if (setting.key == "training.enable_selective_ac") {  // before there was a mode
      const bool is_on = setting.value == "true";
      if (is_on || setting.value == "false") setting.value = is_on ? "selective" : "none";
      setting.is_quoted.reset();
    }
    const Row* row = row_of(setting.key);
    const bool is_in_file = setting.origin != kCommandLine;
    if (is_in_file && is_of_2024(setting.key)) titan_.is_of_2024 = true;
    const bool is_shared = has_ours(setting.key);
    const bool counts_there = !is_shared || (titan_.is_file && is_in_file);
    if (is_in_file) {
      around_.report.accounts.push_back(
          {.path = setting.key, .place = setting.origin, .value = shown(setting)});
    }
    // Without torchtitan's keys beside it, the command line is ours.
    const bool is_own = row != nullptr && row->use == Row::Use::own;
    if (is_own && is_shared && !is_in_file && !has_titan_) return give(setting, setting.key);
    if (row != nullptr && !setting.value && (is_own || !is_shared)) {
      return around_.report.add_problem(fmt::format(
          "{}: {}: is missing; a setting is --training.steps 100", setting.origin, setting.key));
    }
    if (is_own) {
      account(Decision::read, row->why, setting);
      return take_own(setting, counts_there);
    }
    if (row == nullptr && !is_shared && knows_unknown(setting)) return;
    if (row == nullptr || !counts_there) return give(setting, setting.key);
    judge(setting, *row);
  }

  const Own& own() const { return own_; }
  bool has_titan() const { return has_titan_; }
  AllGiven& all() { return all_; }

  // A key more or less decides it, so it is said.
  void say_whose_defaults() const {
    if (titan_.is_file && around_.environment.is_deepspeed) {
      around_.warnings.push_back(around_.file +
                                 ": is torchtitan's, but beside a DeepSpeed configuration "
                                 "torchtitan's defaults do not count");
    } else if (!titan_.is_file && !mixes_.empty()) {
      around_.warnings.push_back(
          fmt::format("{}: has keys of torchtitan and our {}, so our defaults count where it is "
                      "silent, not torchtitan's",
                      around_.file, mixes_));
    }
  }

  void note() {
    for (const auto& [place, why] : order_) {
      const std::vector<std::string>& names = noted_.at({place, why});
      std::string line = fmt::format("{}: {}: {}", place, fmt::join(names, ", "), why);
      const std::string one = ": has no effect";
      if (names.size() > 1) line.replace(line.find(one), one.size(), ": have no effect");
      around_.warnings.push_back(line);
    }
  }

 private:
  bool has_ours(const std::string& key) const {
    return std::ranges::find(around_.keys, key, &Key::name) != around_.keys.end();
  }
  bool is_theirs_alone(const std::string& key) const {
    return row_of(key) != nullptr && !has_ours(key);
  }

  void account(Decision decision, const std::string& why, const Setting& setting) {
    if (setting.origin == kCommandLine) return;
    around_.report.accounts.back().decision = decision;
    around_.report.accounts.back().why = why;
  }

  void give(Setting setting, const std::string& key) {
    if (setting.origin != kCommandLine) around_.report.accounts.back().keys.push_back(setting.key);
    all_.push_back({std::move(setting), key});
  }

  // Whether an unknown key has been reported; of another file or the command line, our keys are
  // what is meant.
  bool knows_unknown(const Setting& setting) {
    if (!titan_.is_file || setting.origin == kCommandLine) return false;
    const std::string meant = foreign::meant_by(rows(), setting.key);
    const std::string why = fmt::format(
        "unknown key {}; {}unshard-estimate --keys torchtitan lists all", printable(setting.key),
        meant.empty() ? "" : fmt::format("did you mean {}? ", meant));
    account(Decision::unknown, why, setting);
    around_.report.add_problem(setting.origin + ": " + why);
    return true;
  }

  void judge(const Setting& setting, const Row& row) {
    const foreign::Verdict verdict =
        foreign::judge(row, setting.value.value_or(""), shown(setting));
    account(verdict.decision, verdict.why, setting);
    if (verdict.decision == Decision::refused) {
      around_.report.add_problem(fmt::format("{}: {}: {}", setting.origin, row.path, verdict.why));
    } else if (verdict.decision == Decision::noted) {
      const bool is_in_file = setting.origin != kCommandLine;
      const std::pair<std::string, std::string> group = {is_in_file ? around_.file : setting.origin,
                                                         verdict.why};
      if (!noted_.contains(group)) order_.push_back(group);
      noted_[group].push_back(printable(setting.key));
    } else if (verdict.decision == Decision::read) {
      if (row.key == kReshard) titan_.reshards_always = setting.value == "always";
      Setting ours = setting;
      ours.key = row.key;
      if (!row.values.empty()) {
        ours.value = verdict.value;
        ours.is_quoted.reset();
      }
      give(std::move(ours), row.path);
    }
  }

  // What is read together with others, or sets one key in other words.
  void take_own(const Setting& setting, bool counts_there) {
    Setting known = setting;
    known.key = newest(setting.key);
    const auto member = std::ranges::find(keys_, known.key, &Key::name);
    if (member != keys_.end()) {
      Key as_written = *member;
      as_written.name = setting.key;
      const std::string before = member->get();
      if (!around_.report.collect([&] { setting.apply({as_written}); })) {
        member->set(before);  // a part of a wrong number may have been read
        return;
      }
      titan_.origins[known.key] = setting.origin;
      titan_.written[known.key] = setting.key;
    }
    if (auto ours = in_our_words(known)) return give(std::move(*ours), setting.key);
    if (!counts_there) return give(setting, setting.key);
    if (setting.key != "model.name") own_[setting.key] = setting;
  }

  /// What a setting of torchtitan sets here, if it is one key. It counts where it stands.
  std::optional<Setting> in_our_words(const Setting& theirs) {
    const std::string value = theirs.value.value_or("");
    if (theirs.key == "model.flavor") {
      own_[theirs.key] = theirs;
      const std::optional<std::string> preset = preset_of(own_, around_.report);
      // The sizes of a wrong one do not matter: it is refused.
      return Setting{"model.preset", theirs.origin, preset.value_or("tiny")};
    }
    if (theirs.key == kMode) {
      return Setting{kCheckpoint, theirs.origin, value == "full" ? "block" : value};
    }
    if (theirs.key == kReplicate) return Setting{kReplicas, theirs.origin, value};
    if (theirs.key == "optimizer.name") {
      Setting ours = theirs;
      std::ranges::transform(*ours.value, ours.value->begin(),
                             [](unsigned char c) { return std::tolower(c); });
      const std::vector<std::string> names = ops::optimizer_names();
      if (std::ranges::find(names, *ours.value) == names.end()) ours.value = value;
      return ours;
    }
    if (theirs.key == "training.global_batch_size" && value == "-1") {
      return Setting{theirs.key, theirs.origin, "0"};
    }
    if (theirs.key == "training.global_batch_size") return theirs;
    return std::nullopt;
  }

  TitanKeys& titan_;
  const TitanSurroundings& around_;
  std::vector<Key> keys_;
  AllGiven all_;
  Own own_;
  bool has_titan_ = false;
  std::string mixes_;  // a key of ours in a file that has torchtitan's too
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> noted_;
  std::vector<std::pair<std::string, std::string>> order_;
};

void warn(const TitanKeys& titan, const TitanSurroundings& around) {
  if (titan.compiles && !around.is_modeled) {
    around.warnings.push_back(titan.origin("compile.enable") +
                              ": compile mode is switched off: the training is not compiled");
  }
  if (!titan.is_enabled && around.is_modeled) {
    around.warnings.push_back(titan.origin("memory_estimation.enabled") +
                              ": is false, but this program does nothing else than estimate");
  }
  if (around.is_modeled) return;
  for (const char* key : {"memory_estimation.enabled", "memory_estimation.disable_fake_mode"}) {
    if (!titan.is_given(key)) continue;
    around.warnings.push_back(titan.origin(key) +
                              ": has no effect here: unshard-estimate estimates memory");
  }
}

}  // namespace
}  // namespace titan

Environment Environment::of_process() {
  return {.ngpu = titan::variable("NGPU"),
          .nnodes = titan::variable("NNODES"),
          .config_file = titan::variable("CONFIG_FILE")};
}

std::string TitanKeys::origin(const std::string& key) const {
  const auto found = written.find(key);
  return origins.at(key) + ": " + (found == written.end() ? key : found->second);
}

std::vector<Key> TitanKeys::keys() {
  return {
      {titan::kShard, &shard_degree, "shards of a replica; -1 = all ranks", range(-1, 1e6)},
      {titan::kReplicate, &replicate_degree, "replicas of the shards", range(1, 1e6)},
      {"memory_estimation.enabled", &is_enabled, "changes nothing here"},
      {"memory_estimation.disable_fake_mode", &disable_fake_mode,
       "real ranks on this machine, with bytes"},
      {"compile.enable", &compiles, "counts for PyTorch's frameworks; here nothing is compiled"},
      {titan::kMode, &checkpoint_mode, "full: training.activation_checkpoint block",
       one_of({"none", "full", "selective"})},
      {"model.name", &name, "the family of model.flavor: llama3, llama2, llama"},
      {"model.flavor", &flavor, "model.preset: debugmodel, 7B, 13B, 70B, 8B, 405B"},
  };
}

TitanKeys translate(std::vector<Setting>& settings, const TitanSurroundings& around) {
  TitanKeys titan;
  titan::Translator translator(titan, settings, around);
  for (Setting& each : settings) translator.take(std::move(each));
  translator.note();
  titan::AllGiven& all = translator.all();
  if (titan.shard_degree == 0) {
    around.report.add_problem(titan.origin(titan::kShard) +
                              ": is 0, must be -1 (all ranks) or a positive number");
    titan.shard_degree = -1;
  }
  const bool has_defaults = titan.is_file && !around.environment.is_deepspeed;
  if (has_defaults && titan::last_of(all, titan::kCheckpoint) == nullptr) {
    all.insert(
        all.begin(),
        {Setting{titan::kCheckpoint, around.file + titan::kByDefault, "selective"}, titan::kMode});
  }
  titan::settle_selective(all, translator.own(), around.report);
  const auto compiled = translator.own().find("compile.components");
  if (compiled != translator.own().end()) titan.compiled = compiled->second.value.value_or("");
  around.report.collect([&] { titan::refuse_contradictions(all); });
  titan.spellings[titan::kCheckpoint] = titan::spellings_of(all, titan::kCheckpoint);
  titan::translate_parts(has_defaults, all, translator.own(), around, titan);
  if (has_defaults) titan::imply_defaults(all, translator.own(), around);
  translator.say_whose_defaults();
  if (around.is_modeled || translator.has_titan()) {
    around.report.collect([&] {
      titan::translate_world(titan, all, around.environment, translator.has_titan(),
                             around.warnings);
    });
  }
  titan::warn(titan, around);
  settings.clear();
  for (titan::Given& each : all) settings.push_back(std::move(each.setting));
  return titan;
}

bool is_flag(const std::string& word) {
  TitanKeys titan;
  return std::ranges::any_of(titan.keys(), [&](const Key& key) {
    return std::holds_alternative<bool*>(key.member) && word == "--" + key.name;
  });
}

bool is_value_of(const std::string& option, const std::string& word) {
  if (option.find('=') != std::string::npos || word.starts_with("--")) return false;
  // What may be a flag is one in front of a file, which is the configuration.
  const bool is_noted = option.starts_with("--") && titan::is_bare(option.substr(2));
  if (is_noted && word.ends_with(".toml")) return false;
  return !is_flag(option) || word == "true" || word == "false";
}

std::vector<std::string> with_values(const std::vector<std::string>& words) {
  std::vector<std::string> complete;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size() && is_value_of(words[i], words[i + 1]);
    const bool is_option = words[i].starts_with("--") && words[i].find('=') == std::string::npos;
    const bool is_theirs = is_option && titan::is_bare(words[i].substr(2));
    complete.push_back(is_theirs && !has_value ? words[i] + "=true" : words[i]);
    // Whatever the word behind one of ours looks like, it is the value.
    if (is_option && !is_theirs && i + 1 < words.size()) complete.push_back(words[++i]);
  }
  return complete;
}

std::string describe_titan_keys() {
  TitanKeys titan;
  std::string all;
  for (const Key& key : titan.keys()) {
    all += fmt::format("  --{:46} {:5} {} ({})\n", key.name, key.get(), key.meaning, key.values());
  }
  return all;
}

}  // namespace fsdp::config
