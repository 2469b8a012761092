// What several keys say together: the schedule, checkpoints, metrics, offload and float8.
#include "base/check.h"
#include "base/printable.h"
#include "config/titan/given.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace fsdp::config::titan {
namespace {

constexpr std::int64_t kWarmup = 200;  // torchtitan's default
constexpr const char* kNoFloat8 =
    "nothing is computed in float8; leave it out, and set training.mixed_precision_param";

std::optional<double> real_of(const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stop != text.data() + text.size() || error != std::errc()) return std::nullopt;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// Reads parts: a setting that is missing is null, and a wrong value is a problem.
class Parts {
 public:
  Parts(AllGiven& all, const Own& own, const TitanSurroundings& around)
      : all_(all), own_(own), around_(around) {}

  // The newest of some spellings that is there; the command line beats the file in any of them.
  const Setting* find(std::initializer_list<const char*> names) const {
    const Setting* newest = nullptr;
    for (const char* name : names) {
      const auto found = own_.find(name);
      if (found == own_.end()) continue;
      if (found->second.origin == kCommandLine) return &found->second;
      if (newest == nullptr) newest = &found->second;
    }
    return newest;
  }
  // On the command line, a key that is torchtitan's and ours is ours.
  std::optional<Setting> on_command_line(const std::string& key) const {
    const Given* given = last_of(all_, key);
    const bool is_there = given != nullptr && given->is_on_command_line();
    return is_there ? std::optional(given->setting) : std::nullopt;
  }

  static std::string refusal(const Setting& setting, const std::string& must) {
    return fmt::format("{}: {}: is {}, must be {}", setting.origin, setting.key,
                       printable(setting.value.value_or("missing")), must);
  }

  [[noreturn]] static void refuse(const Setting& setting, const std::string& must) {
    throw InputError(refusal(setting, must));
  }

  static bool flag(const Setting* setting) {
    if (setting == nullptr || setting->value == "false") return false;
    if (setting->value != "true") refuse(*setting, "true or false");
    return true;
  }

  static double part(const Setting* setting, double fallback) {
    if (setting == nullptr) return fallback;
    const std::optional<double> value = real_of(setting->value.value_or(""));
    if (!value || *value < 0 || *value > 1) refuse(*setting, "a number between 0 and 1");
    return *value;
  }

  // Ours, of a file or the command line, or the default that counts where nothing is said.
  std::string ours(const std::string& key, const std::string& fallback) const {
    const Given* given = last_of(all_, key);
    return given == nullptr ? fallback : given->setting.value.value_or("");
  }

  // Before everything else, so that whatever sets the same key beats it.
  void give(const std::string& key, const std::string& value, const Setting& source) {
    all_.insert(all_.begin() + first_++, Given{{key, source.origin, value}, source.key});
    for (foreign::Account& each : around_.report.accounts) {
      if (each.path == source.key && each.place == source.origin) each.keys.push_back(key);
    }
  }

  // Of a key that the command line gives as ours, a value that torchtitan makes of it.
  void correct(const std::string& key, const std::string& value) {
    for (Given& each : all_) {
      if (each.setting.key == key && each.is_on_command_line()) each.setting.value = value;
    }
  }

  // Of a setting that another one switches off.
  void idle(const Setting* setting, const std::string& why) {
    for (foreign::Account& each : around_.report.accounts) {
      if (setting == nullptr || each.path != setting->key || each.place != setting->origin)
        continue;
      each.decision = foreign::Decision::noted;
      each.why = why;
    }
  }

  void say(const Setting& source, const std::string& what) {
    around_.warnings.push_back(fmt::format("{}: {}: {}", source.origin, source.key, what));
  }

  const TitanSurroundings& around() const { return around_; }

 private:
  AllGiven& all_;
  const Own& own_;
  const TitanSurroundings& around_;
  std::ptrdiff_t first_ = 0;
};

std::int64_t warmup_of(const Parts& parts, const Setting* warmup, std::int64_t steps) {
  if (warmup != nullptr && warmup->key == "training.warmup_pct") {
    return std::llround(Parts::part(warmup, 0) * static_cast<double>(steps));
  }
  if (warmup == nullptr) {
    const std::string text = parts.ours("lr_scheduler.warmup_steps", std::to_string(kWarmup));
    return number_of(text).value_or(kWarmup);
  }
  const std::optional<std::int64_t> count = number_of(warmup->value.value_or(""));
  if (!count || *count < 0 || *count > 1'000'000'000) {
    Parts::refuse(*warmup, "a whole number between 0 and 1000000000");
  }
  return *count;
}

// torchtitan's schedule: a warm-up, a stable phase, and a decay over the last part of the steps.
void read_schedule(Parts& parts, bool has_defaults) {
  const Setting* decay = parts.find({"lr_scheduler.decay_ratio"});
  const Setting* type = parts.find({"lr_scheduler.decay_type"});
  const Setting* factor = parts.find({"lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"});
  const Setting* warmup =
      parts.find({"lr_scheduler.warmup_steps", "training.warmup_steps", "training.warmup_pct"});
  const Setting silent{.key = "lr_scheduler", .origin = parts.around().file + kByDefault};
  const auto first_of = [&](std::initializer_list<const Setting*> settings) -> const Setting& {
    for (const Setting* each : settings) {
      if (each != nullptr) return *each;
    }
    return silent;
  };
  if (!has_defaults && decay == nullptr && type == nullptr && factor == nullptr &&
      warmup == nullptr) {
    return;
  }
  const std::optional<Setting> over = parts.on_command_line("lr_scheduler.warmup_steps");
  const Setting* in_file = warmup;
  if (over) warmup = &*over;
  const std::vector<Key>& keys = parts.around().keys;
  const std::string default_steps =
      has_defaults ? "10000" : key_named(keys, "training.steps").get();
  const std::string default_lr = has_defaults ? "0.0008" : key_named(keys, "optimizer.lr").get();
  const std::string last = parts.ours("lr_scheduler.total_steps", "0");
  const std::string text = last == "0" ? parts.ours("training.steps", default_steps) : last;
  const std::int64_t steps =
      std::clamp<std::int64_t>(number_of(text).value_or(1), 1, 1'000'000'000);
  const double lr = real_of(parts.ours("optimizer.lr", default_lr)).value_or(0);
  const std::string kind = type == nullptr ? "linear" : type->value.value_or("");
  if (kind != "linear" && kind != "sqrt" && kind != "cosine") {
    Parts::refuse(*type, "linear, sqrt or cosine");
  }
  const double ratio = Parts::part(decay, 1);
  const double least = Parts::part(factor, 0);
  const std::int64_t wanted = warmup_of(parts, warmup, steps);
  const std::int64_t ramp = std::min(wanted, steps);
  const Setting& by_warmup = first_of({warmup});
  if (ramp < wanted) {
    parts.say(by_warmup, fmt::format("is {}, more than training.steps: the warm-up takes all {}",
                                     wanted, steps));
  }
  parts.give("lr_scheduler.warmup_steps", std::to_string(ramp), first_of({in_file}));
  parts.correct("lr_scheduler.warmup_steps", std::to_string(ramp));
  // To the nearest, and of two the even, as Python rounds.
  const auto asked = static_cast<std::int64_t>(std::nearbyint(ratio * static_cast<double>(steps)));
  const std::int64_t fall = decay == nullptr ? steps - ramp : std::min(asked, steps - ramp);
  if (decay != nullptr && fall < asked) {
    parts.say(*decay, fmt::format("{} steps of decay do not fit behind a warm-up of {}: the decay "
                                  "takes {}",
                                  asked, ramp, fall));
  }
  if (fall == 0) {
    return parts.give("lr_scheduler.kind", "warmup_linear", first_of({decay, type, warmup}));
  }
  parts.give("lr_scheduler.kind", "warmup_stable_" + kind, first_of({type, decay, warmup}));
  parts.give("lr_scheduler.decay_steps", std::to_string(fall), first_of({decay, type, warmup}));
  if (least > 0) parts.give("lr_scheduler.min_lr", fmt::format("{}", lr * least), *factor);
}

// Where torchtitan puts what a training writes.
std::string in_dump_folder(const Parts& parts, const Setting* folder, const char* fallback) {
  const Setting* dump = parts.find({"job.dump_folder"});
  const std::string within = dump == nullptr ? "./outputs" : dump->value.value_or("");
  return within + "/" + (folder == nullptr ? fallback : folder->value.value_or(""));
}

void read_metrics(Parts& parts) {
  const Setting* enable = parts.find({"metrics.enable_tensorboard"});
  const Setting* folder = parts.find({"metrics.save_tb_folder"});
  if (!Parts::flag(enable)) return parts.idle(folder, "TensorBoard is not enabled");
  parts.give("metrics.tensorboard", in_dump_folder(parts, folder, "tb"), *enable);
}

void read_checkpoint(Parts& parts) {
  const Setting* enable = parts.find({"checkpoint.enable", "checkpoint.enable_checkpoint"});
  const Setting* folder = parts.find({"checkpoint.folder", "training.checkpoint_folder"});
  const Setting* interval = parts.find({"checkpoint.interval", "training.checkpoint_interval"});
  const Setting* type =
      parts.find({"checkpoint.interval_type", "training.checkpoint_interval_type"});
  const bool is_oldest = folder != nullptr && folder->key == "training.checkpoint_folder";
  const bool is_on = is_oldest ? !folder->value.value_or("").empty() : Parts::flag(enable);
  if (!is_on) {
    for (const Setting* each : {folder, interval, type}) {
      parts.idle(each, "checkpoints are not enabled");
    }
    return;
  }
  const Setting& source = is_oldest ? *folder : *enable;
  if (type != nullptr && type->value != "steps") {
    Parts::refuse(*type, "steps: checkpoints are written every so many steps");
  }
  parts.give("checkpoint.folder", in_dump_folder(parts, folder, "checkpoint"), source);
  parts.give("checkpoint.interval", interval == nullptr ? "500" : interval->value.value_or(""),
             interval == nullptr ? source : *interval);
}

// A CPU has one memory: offload would copy, and save nothing.
void read_offload(Parts& parts) {
  const Setting* offload = parts.find({"training.enable_cpu_offload"});
  if (!Parts::flag(offload)) return;
  const bool is_on_card = parts.ours("training.device", "cpu") == "cuda";
  if (!is_on_card && !parts.around().is_modeled) {
    return parts.say(*offload, "has no effect on a CPU: device and host are one memory there");
  }
  parts.give("parallel.offload_params", "true", *offload);
  parts.give("parallel.offload_grads", "true", *offload);
}

// Of a list, or of a text with commas: ["output", "router.gate"], "output,router.gate".
std::vector<std::string> words_of(const Setting* setting) {
  std::vector<std::string> words;
  if (setting == nullptr) return words;
  std::string word;
  for (const char c : setting->value.value_or("") + ",") {
    if (std::string_view("[]'\", \t\n").find(c) == std::string_view::npos) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

// What switches float8 on, and the section of its options; null: nothing does. What is asked for
// beyond the known is noted in `unknown`.
std::pair<const Setting*, std::string> float8_of(const Parts& parts, std::string& unknown) {
  const std::string section = "float8.";
  for (const char* name : {"float8.enable_float8_linear", "training.enable_float8_linear",
                           "training.enable_fp8_linear"}) {
    const Setting* enable = parts.find({name});
    if (Parts::flag(enable)) return {enable, section};
  }
  if (const Setting* first = parts.find({"training.fp8_linear"})) {
    if (first->value != "false" && first->value != "") {
      if (first->value != "true" && first->value != "dynamic") {
        unknown = Parts::refusal(*first, "dynamic, or empty: scales by history are not known");
      }
      return {first, section};
    }
  }
  const Setting* converters = parts.find({"model.converters"});
  const std::vector<std::string> words = words_of(converters);
  if (words.empty()) return {nullptr, section};
  const std::string& word = words.front();
  const bool is_of_layers = word == "quantize.linear.float8" || word == "quantize.dense.float8";
  if (words.size() > 1 || (word != "float8" && !is_of_layers)) {
    unknown = Parts::refusal(*converters,
                             "empty, or float8 alone in an estimate for PyTorch: of other "
                             "converters it is not known what they hold");
  }
  return {converters, word + "."};
}

// A linear layer keeps its format if one of the words is a part of its name.
bool keeps_a_part(const std::string& word) {
  static constexpr const char* kNames[] = {
      "attention.wq",    "attention.wk",    "attention.wv",    "attention.wo",
      "feed_forward.w1", "feed_forward.w2", "feed_forward.w3", "auto_filter_small_kn"};
  return word.starts_with("layers.") || std::ranges::any_of(kNames, [&](const char* name) {
           return ("layers.0." + std::string(name)).find(word) != std::string::npos;
         });
}

void read_float8(const Parts& parts, TitanKeys& titan) {
  std::string unknown;
  const auto [enable, section] = float8_of(parts, unknown);
  if (enable == nullptr) return;
  if (!parts.around().is_modeled) {
    Parts::refuse(*enable, enable->value == "true" ? std::string("false: ") + kNoFloat8
                                                   : std::string("empty: ") + kNoFloat8);
  }
  const std::string prefix = section;  // clang 14 captures no structured binding
  const auto option = [&](const char* name) { return parts.find({(prefix + name).c_str()}); };
  const Setting* recipe = option("recipe_name");
  if (unknown.empty() && recipe != nullptr && recipe->value != "" &&
      recipe->value != "tensorwise") {
    unknown = Parts::refusal(*recipe, "tensorwise: of float8's recipes, its bytes alone are known");
  }
  const Setting* emulate = option("emulate");
  if (unknown.empty() && Parts::flag(emulate)) {
    unknown = Parts::refusal(*emulate, "false: what an emulation holds is not known");
  }
  const Setting* filter = option("filter_fqns");
  const std::vector<std::string> kept = words_of(filter);
  if (unknown.empty() && std::ranges::any_of(kept, keeps_a_part)) {
    unknown = Parts::refusal(*filter,
                             "output, or empty: the bytes are known of blocks whose products are "
                             "all in float8");
  }
  // Until there were converters, the output was always left out.
  const bool has_converters = enable->key == "model.converters";
  const bool keeps_head = std::ranges::any_of(
      kept, [](const std::string& word) { return std::string("output").find(word) == 0; });
  titan.float8 = {.is_used = true,
                  .has_head = has_converters && !keeps_head,
                  .is_gathered = Parts::flag(option("enable_fsdp_float8_all_gather")),
                  .unknown = unknown};
  titan.origins["float8"] = enable->origin;
  titan.written["float8"] = enable->key;
}

}  // namespace

void translate_parts(bool has_defaults, AllGiven& all, const Own& own,
                     const TitanSurroundings& around, TitanKeys& titan) {
  Parts parts(all, own, around);
  around.report.collect([&] { read_schedule(parts, has_defaults); });
  around.report.collect([&] { read_checkpoint(parts); });
  around.report.collect([&] { read_metrics(parts); });
  around.report.collect([&] { read_offload(parts); });
  around.report.collect([&] { read_float8(parts, titan); });
}

}  // namespace fsdp::config::titan
