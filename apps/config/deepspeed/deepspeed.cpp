#include "config/deepspeed/deepspeed.h"

#include "base/check.h"
#include "config/deepspeed/rows.h"
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::config {
namespace deepspeed {
namespace {

const Row& row_of(const Entry& entry) {
  const auto row = std::ranges::find(rows(), entry.path, &Row::path);
  if (row != rows().end()) return *row;
  throw InputError(
      fmt::format("{}: unknown key; did you mean {}? docs/deepspeed.md lists all keys that are "
                  "known here",
                  entry.origin(), nearest(entry.path, deepspeed_paths())));
}

// Whether our key exists, and can have this value.
bool is_ours(const Translation& t, const std::string& key, const std::string& value) {
  const auto found = std::ranges::find(t.keys(), key, &Key::name);
  if (found == t.keys().end()) return false;
  const std::vector<std::string>& words = found->allowed.words;
  return words.empty() || std::ranges::find(words, value) != words.end();
}

void set(Translation& t, const Row& row, const Entry& entry) {
  if (entry.is_auto() && !row.changes_numbers) return;
  if (t.is_left_to_others(entry, row.key)) return;
  std::vector<std::string> names;
  std::string value = entry.text();
  for (const auto& [theirs, ours] : row.values) {
    names.push_back(theirs);
    if (theirs == entry.text()) value = ours;
  }
  if (!names.empty() && std::ranges::find(names, entry.text()) == names.end()) {
    entry.refuse(fmt::format("is {}, must be one of {}", entry.shown(), fmt::join(names, ", ")));
  }
  if (!names.empty() && value.empty()) return;  // what is done anyway
  if (names.empty() && std::ranges::find(t.keys(), row.key, &Key::name) != t.keys().end()) {
    return t.give(row.key, entry);
  }
  if (!is_ours(t, row.key, value)) {
    entry.refuse(fmt::format("is {}, which is not supported here; leave it out", entry.shown()));
  }
  t.give(row.key, value, entry);
}

void refuse_if_on(const Row& row, const Entry& entry) {
  const bool is_section = entry.value.is_object();
  if (is_section && entry.value.value("enabled", nlohmann::ordered_json(false)) == false) return;
  entry.refuse(fmt::format("is not supported: {}", row.why));
}

// What a row says by itself.
void read(Translation& t, const Row& row, const Entry& entry) {
  switch (row.use) {
    case Row::Use::set:
      return set(t, row, entry);
    case Row::Use::only:
      if (entry.text() == row.word) return;
      entry.refuse(fmt::format("is {}, must be {}: {}", entry.shown(), row.word, row.why));
    case Row::Use::idle:
      return t.remark(entry, row.why);
    case Row::Use::off:
      return refuse_if_on(row, entry);
    case Row::Use::refuse:
      entry.refuse("is not supported: " + row.why);
    case Row::Use::own:
      return;
  }
}

}  // namespace

void read_stage(Translation& t) {
  const Entry* stage = t.find("zero_optimization.stage");
  if (stage == nullptr) return t.imply("parallel.strategy", "ddp", "zero_optimization.stage");
  if (t.is_left_to_others(*stage, "parallel.strategy")) return;
  const std::vector<std::string> strategies = {"ddp", "zero1", "zero2", "fsdp"};
  const auto& value = stage->value;
  if (!value.is_number_integer() || value < 0 || value > 3) {
    stage->refuse(fmt::format("is {}, must be 0, 1, 2 or 3", stage->shown()));
  }
  const std::string& strategy = strategies[value.get<std::size_t>()];
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

DeepSpeedSettings settings_of_deepspeed(const std::filesystem::path& file,
                                        const std::vector<Key>& keys,
                                        const std::vector<Setting>& others) {
  using namespace deepspeed;
  const Document document(file, deepspeed_paths());
  for (const Entry& entry : document.entries()) row_of(entry);  // a typo may explain the rest
  Translation t(document, keys, others);
  const bool scales_loss = is_fp16(t);
  for (const Entry& entry : document.entries()) {
    const Row& row = row_of(entry);
    const bool is_switched_off = row.use == Row::Use::set && entry.path.starts_with("fp16.");
    if (!is_switched_off || scales_loss) read(t, row, entry);
  }
  if (t.find("gradient_clipping") == nullptr)
    t.imply("training.max_norm", "0", "gradient_clipping");
  read_stage(t);
  read_batch(t);
  read_formats(t);
  read_optimizer(t);
  read_scheduler(t);
  return t.take();
}

}  // namespace fsdp::config
