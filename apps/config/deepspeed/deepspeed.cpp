#include "config/deepspeed/deepspeed.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/config.h"
#include "config/deepspeed/rows.h"
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::config {
namespace deepspeed {
namespace {

// Whether a section counts: as its own `enabled` says, or else those of the sections in it.
bool is_on(const nlohmann::ordered_json& section) {
  if (!section.is_object()) return false;
  const auto enabled = section.find("enabled");
  if (enabled != section.end()) return *enabled != false && *enabled != "auto";
  return std::ranges::any_of(section, is_on);
}

std::string text_of(const Row& row, const Entry& entry) {
  if (row.use != Row::Use::off && row.use != Row::Use::extra) return entry.text();
  if (!entry.value.is_object()) return entry.value == false ? "false" : "true";
  if (entry.value.value("enabled", nlohmann::ordered_json()) == false) return "false";
  for (const auto& [name, value] : entry.value.items()) {
    const std::string meant = foreign::meant_by({{.use = Row::Use::own, .path = "enabled"}}, name);
    if (meant.empty() || name == meant) continue;
    entry.refuse(fmt::format("has the unknown key {}; did you mean {}?", printable(name), meant));
  }
  return is_on(entry.value) ? "true" : "false";
}

// What a key that is in no row probably meant: one that is, or the name of a section.
std::string meant_by(const Entry& entry) {
  std::string meant = foreign::meant_by(rows(), entry.path);
  if (!meant.empty() || entry.path.find('.') != std::string::npos) return meant;
  foreign::Rows sections;
  for (const Row& row : rows()) {
    const std::size_t dot = row.path.find('.');
    if (dot != std::string::npos) {
      sections.push_back({.use = Row::Use::own, .path = row.path.substr(0, dot)});
    }
  }
  return foreign::meant_by(sections, lower(entry.path));
}

// DeepSpeed ignores a key that it does not look up; sections with a table of their own it checks.
foreign::Verdict judge_unknown(const Entry& entry) {
  const std::string meant = meant_by(entry);
  if (meant.empty()) {
    return {.decision = foreign::Decision::noted,
            .why = "is unknown, and ignored, as DeepSpeed does with such a key"};
  }
  return {.decision = foreign::Decision::unknown,
          .why = fmt::format("unknown key; did you mean {}? docs/deepspeed.md lists all keys that "
                             "are known here",
                             meant)};
}

// Whether our key exists, and can have this value.
bool is_ours(const Translation& t, const std::string& key, const std::string& value) {
  const auto found = std::ranges::find(t.keys(), key, &Key::name);
  if (found == t.keys().end()) return false;
  const std::vector<std::string>& words = found->allowed.words;
  return words.empty() || std::ranges::find(words, value) != words.end();
}

void set(Translation& t, const Row& row, const Entry& entry, const std::string& value) {
  if (row.values.empty() && std::ranges::find(t.keys(), row.key, &Key::name) != t.keys().end()) {
    return t.give(row.key, entry);
  }
  if (!is_ours(t, row.key, value)) {
    entry.refuse(fmt::format("is {}, which is not supported here; leave it out", entry.shown()));
  }
  t.give(row.key, value, entry);
}

// What a key that counts says by itself.
foreign::Verdict read(Translation& t, const Entry& entry) {
  const Row* row = foreign::find(rows(), entry.path);
  if (row == nullptr) {
    foreign::Verdict verdict = judge_unknown(entry);
    if (verdict.decision == foreign::Decision::noted) t.note(entry, verdict.why);
    return verdict;
  }
  const bool is_set = row->use == Row::Use::set;
  if (is_set && entry.is_auto()) {
    if (!row->changes_numbers) return {.decision = foreign::Decision::equal};
    t.is_left_to_others(entry, row->key);
    return {.decision = foreign::Decision::read};
  }
  foreign::Verdict verdict = foreign::judge(*row, text_of(*row, entry), entry.shown());
  if (verdict.decision == foreign::Decision::noted) t.note(entry, verdict.why);
  if (is_set && verdict.decision == foreign::Decision::read) set(t, *row, entry, verdict.value);
  return verdict;
}

// The sections with an `enabled` that are values key by key.
constexpr const char* kSwitched[] = {"fp16", "bf16", "bfloat16", "tensorboard"};

// Why nobody looks at a key, whatever it says; empty if it counts.
std::string why_passed_over(Translation& t, const Entry& entry) {
  if (is_comment(entry.path)) return "is a comment";
  const std::string section = entry.path.substr(0, entry.path.find('.'));
  const std::string enabled = section + ".enabled";
  const bool is_switched = std::ranges::find(kSwitched, section) != std::end(kSwitched);
  if (!is_switched || entry.path == enabled || counts(t, section)) return "";
  // Without an `enabled`, an unknown key may be a misspelled one.
  const bool is_judged = t.find(enabled) == nullptr && foreign::find(rows(), entry.path) == nullptr;
  return is_judged ? "" : section + " is not enabled";
}

// People write many comments: one line for all.
void remark_on_comments(Translation& t) {
  std::vector<std::string> paths;
  for (const Entry& entry : t.document().entries()) {
    if (is_comment(entry.path)) paths.push_back(printable(entry.path));
  }
  if (!paths.empty()) t.note(fmt::format("passed over as comments: {}", fmt::join(paths, ", ")));
}

// People confuse their files, and one without a key of DeepSpeed's would change nothing.
void check_kind(const Document& document) {
  const auto says_nothing = [](const Entry& entry) {
    return is_comment(entry.path) ||
           (foreign::find(rows(), entry.path) == nullptr && meant_by(entry).empty());
  };
  const std::vector<Entry>& entries = document.entries();
  if (entries.empty() || !std::ranges::all_of(entries, says_nothing)) return;
  const bool is_model =
      document.find("model_type") != nullptr || document.find("architectures") != nullptr;
  throw InputError(fmt::format(
      "{}: {}", document.file(),
      is_model ? "is the config.json of a model; give its folder with --model.from"
               : "has no key of DeepSpeed's, such as train_micro_batch_size_per_gpu; give another "
                 "file, or leave --deepspeed out"));
}

void add_said(const Document& document, DeepSpeedKeys& said) {
  static const std::string section = "zero_optimization.", stage3 = "stage3_";
  said.is_file = true;
  for (const Entry& entry : document.entries()) {
    if (!entry.path.starts_with(section)) continue;
    std::string key = entry.path.substr(section.size());
    if (key.starts_with(stage3)) key = key.substr(stage3.size());
    said.zero[key] = {entry.text(), entry.origin()};
  }
}

// The same, as part of a report.
void read(Translation& t, const Entry& entry, foreign::Report& report, foreign::Account& account) {
  report.collect([&] {
    const std::string why = why_passed_over(t, entry);
    const foreign::Verdict verdict =
        why.empty() ? read(t, entry)
                    : foreign::Verdict{.decision = foreign::Decision::noted, .why = why};
    if (verdict.decision == foreign::Decision::read) return;
    account.decision = verdict.decision;
    account.why = verdict.why;
    const bool is_wrong = verdict.decision == foreign::Decision::refused ||
                          verdict.decision == foreign::Decision::unknown;
    if (is_wrong) entry.refuse(verdict.why);
  });
}

}  // namespace

void read_stage(Translation& t) {
  const Entry* stage = t.find("zero_optimization.stage");
  if (stage == nullptr) return t.imply("parallel.strategy", "ddp", "zero_optimization.stage");
  if (t.is_left_to_others(*stage, "parallel.strategy")) return;
  const std::vector<std::string> strategies = {"ddp", "zero1", "zero2", "fsdp"};
  const std::string numbers[] = {"0", "1", "2", "3"};
  const auto* const number = std::ranges::find(numbers, stage->text());
  if (!stage->value.is_number() || number == std::end(numbers)) {
    stage->refuse(fmt::format("is {}, must be 0, 1, 2 or 3", stage->shown()));
  }
  const std::string& strategy = strategies[static_cast<std::size_t>(number - numbers)];
  t.give("parallel.strategy", strategy, *stage);
  if (strategy.starts_with("zero")) {
    t.imply("parallel.zero_partition", "flat", "zero_optimization.stage");
  }
}

}  // namespace deepspeed

std::vector<std::string> deepspeed_paths() {
  std::vector<std::string> paths;
  for (const deepspeed::Row& row : deepspeed::rows()) paths.push_back(row.path);
  return paths;
}

namespace {

DeepSpeedSettings settings_of_deepspeed(const std::filesystem::path& file,
                                        const std::vector<Key>& keys,
                                        const std::vector<Setting>& others, bool is_modeled,
                                        foreign::Report& report) {
  using namespace deepspeed;
  const Document document(file, deepspeed_paths());
  check_kind(document);
  Translation t(document, keys, others, is_modeled);
  const std::size_t first = report.accounts.size();
  for (const Entry& entry : document.entries()) {
    report.accounts.push_back({.path = entry.path, .place = entry.place, .value = entry.shown()});
  }
  std::size_t next = first;
  for (const Entry& entry : document.entries()) {
    read(t, entry, report, report.accounts[next++]);
  }
  remark_on_comments(t);
  if (t.find("gradient_clipping") == nullptr)
    t.imply("training.max_norm", "0", "gradient_clipping");
  for (const auto& part : {read_stage, read_offload, read_batch, read_formats, read_optimizer,
                           read_scheduler, read_output}) {
    report.collect([&] { part(t); });
  }
  DeepSpeedSettings settings = t.take();
  add_said(document, settings.said);
  for (std::size_t i = first; i < report.accounts.size(); ++i) {
    foreign::Account& each = report.accounts[i];
    const std::string place = each.place + ": " + printable(each.path);
    for (const Setting& setting : settings.implied) {
      if (setting.origin.starts_with(place + " (")) each.keys.push_back(setting.key);
    }
    for (const Setting& setting : settings.given) {
      const bool is_named_alike = setting.key == each.path && setting.origin == each.place;
      if (is_named_alike || setting.origin == place) each.keys.push_back(setting.key);
    }
    const std::string noted = t.noted(each.path);
    if (each.keys.empty() && each.decision == foreign::Decision::read && !noted.empty()) {
      each.decision = foreign::Decision::noted;
      each.why = noted;
    }
  }
  return settings;
}

}  // namespace

DeepSpeedBase::DeepSpeedBase(const std::filesystem::path& file, TrainConfig& config,
                             const std::vector<Key>& keys, const std::vector<Setting>& others,
                             foreign::Report& report)
    : keys_(keys), others_(others) {
  DeepSpeedSettings settings = settings_of_deepspeed(file, keys, others, config.is_modeled, report);
  const auto apply = [&](const Setting& each) {
    report.collect([&] { each.apply(keys); });
    config.origins[each.key] = each.origin;
  };
  for (const Setting& each : settings.implied) apply(each);
  for (const Setting& each : settings.given) {
    apply(each);
    said_[each.key] = {
        .key = each.key, .origin = each.origin, .value = key_named(keys, each.key).get()};
  }
  config.deepspeed = std::move(settings.said);
  for (std::string& each : settings.remarks) config.remarks.push_back(std::move(each));
}

void DeepSpeedBase::check_agreement(const Setting& setting) const {
  const auto said = said_.find(setting.key);
  const auto decides = [&](const Setting& each) {
    return each.key == setting.key && each.origin == kCommandLine;
  };
  if (said == said_.end() || std::ranges::any_of(others_, decides)) return;
  const std::string value = key_named(keys_, setting.key).get();
  if (value == *said->second.value) return;
  throw InputError(
      fmt::format("{}: {}: is {}, but {} makes it {}; leave one of them out, or decide with --{}",
                  setting.origin, setting.key, printable(value), said->second.origin,
                  printable(*said->second.value), setting.key));
}

}  // namespace fsdp::config
