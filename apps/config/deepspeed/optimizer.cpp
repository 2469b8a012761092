// The sections `optimizer` and `scheduler`.
#include "base/check.h"
#include "config/deepspeed/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace fsdp::config::deepspeed {
namespace {

using Words = std::vector<std::string>;
using Defaults = std::vector<std::pair<std::string, std::string>>;

/// One that DeepSpeed makes by its name, with the params that it has.
struct Kind {
  std::string type;
  std::string name;  ///< optimizer.name
  Words params;      ///< beside those that every optimizer has
  Defaults defaults;
};

const Words kOfAll = {"lr",       "eps",        "weight_decay", "foreach",
                      "maximize", "capturable", "fused",        "differentiable"};
const Words kOfAdam = {"betas",   "adam_w_mode",   "torch_adam",           "bias_correction",
                       "amsgrad", "set_grad_none", "fp32_optimizer_states"};
constexpr const char* kCompressed = "sends momentum in one bit, which changes numbers";
constexpr const char* kTrust = "scales the step of each parameter by a norm";
const Words kSchedules = {"WarmupLR", "WarmupDecayLR"};
constexpr const char* kOtherSchedules =
    "; leave the section out for others, which lr_scheduler.kind names";
const Defaults kAdamDefaults = {
    {"lr", "0.001"}, {"beta1", "0.9"}, {"beta2", "0.999"}, {"eps", "1e-08"}, {"weight_decay", "0"}};

// DeepSpeed's others, and what each does.
const std::pair<const char*, const char*> kOtherOptimizers[] = {
    {"OneBitAdam", kCompressed},
    {"OneBitLamb", kCompressed},
    {"ZeroOneAdam", kCompressed},
    {"Lamb", kTrust},
    {"FusedLamb", kTrust},
    {"Lion", "steps by signs alone"},
    {"Muon", "orthogonalizes the steps of matrices"}};

// DeepSpeed's other schedules, and the nearest way to each.
const std::pair<const char*, const char*> kUnlikeSchedules[] = {
    {"WarmupCosineLR",
     "leave the section out for the nearest: lr_scheduler.kind warmup_cosine, with a linear "
     "warm-up "
     "and a decay that begins one step later, and lr_scheduler.min_lr cos_min_ratio (0.0001 if it "
     "is left out) times the optimizer's lr"},
    {"OneCycle", "leave the section out for the nearest: lr_scheduler.kind warmup_stable_linear"},
    {"LRRangeTest",
     "leave the section out, and try rates one by one with lr_scheduler.kind constant"}};

// DeepSpeed has Adam and AdamW of its own, and takes the others from PyTorch.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"Adam", "adam", kOfAdam, kAdamDefaults},
      {"AdamW", "adamw", kOfAdam, kAdamDefaults},
      {"Adamax",
       "adamax",
       {"betas"},
       {{"lr", "0.002"},
        {"beta1", "0.9"},
        {"beta2", "0.999"},
        {"eps", "1e-08"},
        {"weight_decay", "0"}}},
      {"Adagrad",
       "adagrad",
       {"lr_decay", "initial_accumulator_value"},
       {{"lr", "0.01"}, {"eps", "1e-10"}, {"weight_decay", "0"}}},
      {"Adadelta", "adadelta", {"rho"}, {{"lr", "1"}, {"eps", "1e-06"}, {"weight_decay", "0"}}},
      {"SGD",
       "sgd",
       {"momentum", "dampening", "nesterov"},
       {{"lr", "0.001"}, {"weight_decay", "0"}}}};
  return all;
}

void check_params(const Translation& t, const std::string& section, const std::string& type,
                  const Words& params) {
  const std::string prefix = section + ".params.";
  for (const Entry& entry : t.document().entries()) {
    if (!entry.path.starts_with(prefix) || is_comment(entry.path)) continue;
    if (std::ranges::find(params, entry.path.substr(prefix.size())) != params.end()) continue;
    entry.refuse(fmt::format("{} has no such parameter; leave it out", type));
  }
}

const Entry& type_in(const Translation& t, const std::string& section, const Words& types) {
  const Entry* type = t.find(section + ".type");
  if (type != nullptr) return *type;
  throw InputError(fmt::format("{}: {}.type: is missing; write one of {}", t.document().file(),
                               section, fmt::join(types, ", ")));
}

// "Adam" is AdamW in DeepSpeed, unless adam_w_mode is false.
std::string adam_of(const Translation& t, const Kind& kind) {
  const bool decoupled = t.flag("optimizer.params.adam_w_mode", true);
  if (kind.type == "AdamW" && !decoupled) {
    t.find("optimizer.params.adam_w_mode")
        ->refuse(
            "is false, which DeepSpeed ignores for AdamW; leave it out, or use Adam for a decay "
            "that is added to the gradient");
  }
  return decoupled ? "adamw" : "adam";
}

// In the file's optimizer.params.betas.
void read_betas(Translation& t) {
  const Entry* entry = t.find("optimizer.params.betas");
  if (entry == nullptr) return;
  if (entry->is_auto()) {
    t.is_left_to_others(*entry, "optimizer.beta1");
    t.is_left_to_others(*entry, "optimizer.beta2");
    return;
  }
  const auto& value = entry->value;
  if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number()) {
    entry->refuse(fmt::format("is {}, must be two numbers such as [0.9, 0.999]", entry->shown()));
  }
  t.give("optimizer.beta1", value[0].dump(), *entry);
  t.give("optimizer.beta2", value[1].dump(), *entry);
}

std::string schedule_of(const Translation& t, const Entry& type) {
  const auto unlike = std::ranges::find_if(
      kUnlikeSchedules, [&](const auto& each) { return lower(each.first) == lower(type.text()); });
  if (unlike != std::end(kUnlikeSchedules)) {
    type.refuse(
        fmt::format("is {}, which no schedule here equals; {}", type.shown(), unlike->second));
  }
  return t.word(type, kSchedules, kOtherSchedules);
}

// WarmupLR without a highest rate, which has had none of its own since DeepSpeed 0.17.5.
bool follows_optimizer(const Translation& t) {
  const Entry* type = t.find("scheduler.type");
  return type != nullptr && t.find("scheduler.params.warmup_max_lr") == nullptr &&
         schedule_of(t, *type) == "WarmupLR";
}

// A schedule sets the rate of every step, but the optimizer's rate may be its highest.
void read_rate(Translation& t) {
  const Entry* lr = t.find("optimizer.params.lr");
  if (lr == nullptr) return;
  if (!t.document().has_section("scheduler") || follows_optimizer(t)) {
    if (!t.is_left_to_others(*lr, "optimizer.lr")) t.give("optimizer.lr", *lr);
    return;
  }
  const Entry* highest = t.find("scheduler.params.warmup_max_lr");
  if (lr->is_auto() || (highest != nullptr && highest->value == lr->value)) return;
  t.remark(*lr, fmt::format("{} is the highest rate", highest != nullptr
                                                          ? "scheduler.params.warmup_max_lr"
                                                          : "0.001, the default of "
                                                            "scheduler.params.warmup_max_lr,"));
}

bool is_whole_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// How long the warm-up and the whole schedule are.
void read_lengths(Translation& t, const Entry& type, bool decays) {
  std::string warmup = "1000";
  if (const Entry* steps = t.find("scheduler.params.warmup_num_steps")) {
    if (!t.is_left_to_others(*steps, "lr_scheduler.warmup_steps")) {
      warmup = steps->text();
      if (warmup == "0" || warmup == "1") warmup = "2";  // as DeepSpeed does, to divide by ln 2
      t.give("lr_scheduler.warmup_steps", warmup, *steps);
    } else {
      warmup = "2";  // the Trainer's 0, if nobody else says more
    }
  }
  const Entry* total = t.find("scheduler.params.total_num_steps");
  if (total != nullptr && !total->is_auto()) return t.give("lr_scheduler.total_steps", *total);
  if (!decays) {
    // WarmupLR has no end, and a training may stop within the warm-up.
    const Setting* other = t.other("lr_scheduler.warmup_steps");
    if (other != nullptr) warmup = other->value.value_or("");
    if (!is_whole_number(warmup)) return;  // which is refused where it stands
    return t.imply("lr_scheduler.total_steps", warmup, "scheduler.params.warmup_num_steps");
  }
  if (total == nullptr && t.other("lr_scheduler.total_steps") == nullptr) {
    type.refuse(
        "WarmupDecayLR needs scheduler.params.total_num_steps; write a number, or \"auto\" "
        "for training.steps");
  }
}

void imply_all(Translation& t, const Defaults& defaults) {
  for (const auto& [name, value] : defaults) {
    const std::string param = name.starts_with("beta") ? "betas" : name;
    if (t.find("optimizer.params." + param) == nullptr) {
      t.imply("optimizer." + name, value, "optimizer.params." + param);
    }
  }
}

}  // namespace

void read_optimizer(Translation& t) {
  if (!t.document().has_section("optimizer")) return;
  Words types;
  for (const Kind& kind : kinds()) types.push_back(kind.type);
  const Entry& type = type_in(t, "optimizer", types);
  const auto unlike = std::ranges::find_if(
      kOtherOptimizers, [&](const auto& each) { return lower(each.first) == lower(type.text()); });
  if (unlike != std::end(kOtherOptimizers)) {
    type.refuse(fmt::format("is {}, which is not supported: it {}; use AdamW, or one of {}",
                            type.shown(), unlike->second, fmt::join(types, ", ")));
  }
  const std::string name = t.word(type, types);
  const Kind& kind = *std::ranges::find(kinds(), name, &Kind::type);
  Words params = kOfAll;
  params.insert(params.end(), kind.params.begin(), kind.params.end());
  check_params(t, "optimizer", kind.type, params);
  const bool is_adam = kind.params == kOfAdam;
  t.give("optimizer.name", is_adam ? adam_of(t, kind) : kind.name, type);
  imply_all(t, kind.defaults);
  // PyTorch's own AdamW has another default than DeepSpeed's.
  if (is_adam && t.flag("optimizer.params.torch_adam", false) && adam_of(t, kind) == "adamw" &&
      t.find("optimizer.params.weight_decay") == nullptr) {
    t.imply("optimizer.weight_decay", "0.01", "optimizer.params.weight_decay");
  }
  read_rate(t);
  read_betas(t);
}

void read_scheduler(Translation& t) {
  if (!t.document().has_section("scheduler")) return;
  const Entry& type = type_in(t, "scheduler", kSchedules);
  const bool decays = schedule_of(t, type) == "WarmupDecayLR";
  Words params = {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type",
                  "last_batch_iteration"};
  if (decays) params.emplace_back("total_num_steps");
  check_params(t, "scheduler", decays ? "WarmupDecayLR" : "WarmupLR", params);
  const Entry* shape = t.find("scheduler.params.warmup_type");
  const bool is_log = shape == nullptr || t.word(*shape, {"log", "linear"}) == "log";
  t.give("lr_scheduler.kind",
         std::string(is_log ? "warmup_log" : "warmup_from_min") + (decays ? "_decay" : ""), type);
  for (const auto& [param, key, value] :
       {std::tuple("warmup_min_lr", "lr_scheduler.min_lr", "0"),
        {"warmup_max_lr", "optimizer.lr", "0.001"},
        {"warmup_num_steps", "lr_scheduler.warmup_steps", "1000"}}) {
    const std::string path = std::string("scheduler.params.") + param;
    const bool is_highest = std::string(key) == "optimizer.lr";
    if (is_highest && follows_optimizer(t)) {
      t.note(type,
             "without scheduler.params.warmup_max_lr the highest rate is the optimizer's, as in "
             "DeepSpeed since 0.17.5; earlier versions warm up to 0.001");
    } else if (t.find(path) == nullptr) {
      t.imply(key, value, path);
    }
  }
  read_lengths(t, type, decays);
}

}  // namespace fsdp::config::deepspeed
