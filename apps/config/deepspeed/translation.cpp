#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace fsdp::config::deepspeed {
namespace {

// Of Hugging Face's TrainingArguments, for the keys that its Trainer fills in.
struct TrainerDefault {
  const char* path;
  const char* key;
  const char* value;
  const char* said;  // the Trainer's own
};
constexpr TrainerDefault kTrainerDefaults[] = {
    {"train_batch_size", "training.local_batch_size", "8", "8"},
    {"train_micro_batch_size_per_gpu", "training.local_batch_size", "8", "8"},
    {"gradient_clipping", "training.max_norm", "1", "1.0"},
    {"optimizer.params.lr", "optimizer.lr", "5e-05", "5e-05"},
    {"optimizer.params.betas", "optimizer.beta1", "0.9", "0.9"},
    {"optimizer.params.betas", "optimizer.beta2", "0.999", "0.999"},
    {"optimizer.params.eps", "optimizer.eps", "1e-08", "1e-08"},
    {"optimizer.params.weight_decay", "optimizer.weight_decay", "0", "0"},
    {"scheduler.params.warmup_min_lr", "lr_scheduler.min_lr", "0", "0"},
    {"scheduler.params.warmup_max_lr", "optimizer.lr", "5e-05", "5e-05"},
    {"scheduler.params.warmup_num_steps", "lr_scheduler.warmup_steps", "2",
     "0 (DeepSpeed makes it 2)"},
    {"fp16.enabled", "training.mixed_precision_param", "float32", "false"},
    {"bf16.enabled", "training.mixed_precision_param", "float32", "false"},
    {"bfloat16.enabled", "training.mixed_precision_param", "float32", "false"},
};

}  // namespace

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

const Setting* Translation::other(const std::string& key) const {
  const auto found = std::find_if(others_.rbegin(), others_.rend(),
                                  [&](const Setting& each) { return each.key == key; });
  return found == others_.rend() ? nullptr : &*found;
}

bool Translation::has_host() const {
  const Setting* device = other("training.device");
  return is_modeled_ || (device != nullptr && device->value == "cuda");
}

void Translation::give(const std::string& key, const std::string& value, const Entry& entry) {
  // Where DeepSpeed's name is ours, a message has it once.
  const std::string origin = entry.path == key ? entry.place : entry.origin();
  result_.given.push_back({.key = key, .origin = origin, .value = value});
}

void Translation::give(const std::string& key, const Entry& entry) {
  give(key, entry.text(), entry);
  result_.given.back().is_quoted = entry.value.is_string();
}

void Translation::imply(const std::string& key, const std::string& value, const std::string& path) {
  const std::string origin = fmt::format("{}: {} (DeepSpeed's default)", document_.file(), path);
  result_.implied.push_back({.key = key, .origin = origin, .value = value});
}

void Translation::remark(const Entry& entry, const std::string& why) {
  note(entry, "has no effect here: " + why);
}

void Translation::note(const Entry& entry, const std::string& what) {
  noted_[entry.path] = what;
  result_.remarks.push_back(fmt::format("{}: {}", entry.origin(), what));
}

void Translation::note(const std::string& what) {
  result_.remarks.push_back(fmt::format("{}: {}", document_.file(), what));
}

std::string Translation::noted(const std::string& path) const {
  const auto found = noted_.find(path);
  return found == noted_.end() ? "" : found->second;
}

bool Translation::is_left_to_others(const Entry& entry, const std::string& key) {
  if (!entry.is_auto()) return false;
  if (other(key) != nullptr) return true;
  const auto found = std::ranges::find_if(kTrainerDefaults, [&](const TrainerDefault& each) {
    return each.path == entry.path && each.key == key;
  });
  if (found == std::end(kTrainerDefaults)) {
    entry.refuse(
        fmt::format("is \"auto\", which Hugging Face's Trainer replaces with its own arguments; "
                    "write a value, or give --{} or the same key in the TOML file",
                    key));
  }
  const std::string origin = fmt::format("{} (the Trainer's default)", entry.origin());
  const auto is_taken = [&](const Setting& each) {
    return each.key == key && each.origin == origin;
  };
  if (std::ranges::any_of(result_.implied, is_taken)) return true;
  result_.implied.push_back({.key = key, .origin = origin, .value = found->value});
  note(entry, fmt::format("is \"auto\": the default of Hugging Face's Trainer, {}, is used; --{} "
                          "sets another",
                          found->said, key));
  return true;
}

bool Translation::flag(const std::string& path, bool fallback) const {
  const Entry* entry = find(path);
  if (entry == nullptr) return fallback;
  if (!entry->value.is_boolean()) {
    entry->refuse(fmt::format("is {}, must be true or false", entry->shown()));
  }
  return entry->value.get<bool>();
}

std::string Translation::word(const Entry& entry, const std::vector<std::string>& words,
                              const std::string& remedy) const {
  const auto found = std::ranges::find_if(words, [&](const std::string& each) {
    return entry.value.is_string() && lower(each) == lower(entry.text());
  });
  if (found == words.end()) {
    entry.refuse(
        fmt::format("is {}, must be one of {}{}", entry.shown(), fmt::join(words, ", "), remedy));
  }
  return *found;
}

}  // namespace fsdp::config::deepspeed
