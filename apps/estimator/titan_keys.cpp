#include "estimator/titan_keys.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace fsdp::estimator {
namespace {

using train::one_of;
using train::range;
using train::Setting;

constexpr std::int64_t kDefaultGpus = 8;  // of torchtitan's runner
constexpr const char* kShard = "parallelism.data_parallel_shard_degree";
constexpr const char* kReplicate = "parallelism.data_parallel_replicate_degree";

// What no memory depends on.
bool is_passed_over(const std::string& key) {
  const std::vector<std::string> sections = {"job.",          "profiling.",  "comm.",
                                             "experimental.", "validation.", "fault_tolerance."};
  const auto leads = [&](const std::string& section) { return key.starts_with(section); };
  return std::ranges::any_of(sections, leads) || key == "training.dataset" ||
         (key.starts_with("metrics.") && key != "metrics.log_freq");
}

const Setting* last_of(const std::vector<Setting>& settings, const std::string& key) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const Setting& each) { return each.key == key; });
  return found == settings.rend() ? nullptr : &*found;
}

std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stop != text.data() + text.size() || error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> number_of(const Setting* setting) {
  return setting == nullptr || !setting->value ? std::nullopt : number_of(*setting->value);
}

std::int64_t number_in(const char* variable, const std::optional<std::string>& text,
                       std::int64_t fallback) {
  if (!text || text->empty()) return fallback;
  const auto value = number_of(*text);
  if (!value || *value < 1 || *value > 1'000'000) {
    throw InputError(
        fmt::format("environment: {}: is {}, must be a whole number between 1 and "
                    "1000000; unset it, or set it to the number of {}",
                    variable, train::plain(*text),
                    variable == std::string("NGPU") ? "GPUs of a node" : "nodes"));
  }
  return *value;
}

void refuse_other_dimensions(const TitanKeys& titan) {
  const auto refuse = [&](const char* what, std::int64_t degree, const char* instead) {
    const std::string key = fmt::format("parallelism.{}_parallel_degree", what);
    if (degree == 1) return;
    throw InputError(fmt::format(
        "{}: is {}, but {} parallelism is not estimated: models are divided by data parallelism "
        "alone here; set it to 1{}",
        titan.origin(key), degree, what, instead));
  };
  refuse("tensor", titan.tensor, ", and raise parallelism.data_parallel_shard_degree instead");
  refuse("pipeline", titan.pipeline, ", and raise parallelism.data_parallel_shard_degree instead");
  refuse("context", titan.context, ", or shorten training.seq_len");
  refuse("expert", titan.expert, "; the models here have no experts");
}

void translate_model(const TitanKeys& titan, std::vector<Setting>& settings) {
  if (titan.flavor.empty()) return;
  settings.push_back({"model.preset", titan.origins.at("model.flavor"),
                      titan.flavor == "8B"    ? "llama3_8b"
                      : titan.flavor == "70B" ? "llama3_70b"
                                              : "llama3_405b"});
}

void translate_checkpoint(const TitanKeys& titan, std::vector<Setting>& settings) {
  const char* key = "activation_checkpoint.mode";
  if (!titan.is_given(key)) return;
  if (titan.checkpoint_mode == "selective") {
    throw InputError(
        fmt::format("{}: is selective, but only whole blocks are computed again here; "
                    "use none or full, which bound it from above and below",
                    titan.origin(key)));
  }
  settings.push_back({"training.activation_checkpoint", titan.origins.at(key),
                      titan.checkpoint_mode == "full" ? "block" : "none"});
}

struct World {
  std::int64_t ranks;
  std::string origin;
};

// Who says how many ranks there are.
std::optional<World> world_of(const TitanKeys& titan, const std::vector<Setting>& settings,
                              std::int64_t replicas, const Environment& environment) {
  const Setting* ranks = last_of(settings, "parallel.ranks");
  if (ranks != nullptr && ranks->origin == "command line") return std::nullopt;
  if (environment.ngpu || environment.nnodes) {
    return World{number_in("NGPU", environment.ngpu, kDefaultGpus) *
                     number_in("NNODES", environment.nnodes, 1),
                 "NGPU x NNODES of the environment"};
  }
  const bool is_titan = titan.is_given(kShard) || titan.is_given(kReplicate);
  if (ranks != nullptr || !is_titan) return std::nullopt;
  if (titan.shard_degree > 0) return World{titan.shard_degree * replicas, titan.origin(kShard)};
  return World{kDefaultGpus, "NGPU, which is 8 unless set"};
}

void translate_world(const TitanKeys& titan, std::vector<Setting>& settings,
                     const Environment& environment) {
  const char* replicate_key = "parallel.data_parallel_replicate_degree";
  if (titan.is_given(kReplicate)) {
    settings.push_back(
        {replicate_key, titan.origins.at(kReplicate), std::to_string(titan.replicate_degree)});
  }
  const std::int64_t replicas = number_of(last_of(settings, replicate_key)).value_or(1);
  if (const auto world = world_of(titan, settings, replicas, environment)) {
    settings.push_back({"parallel.ranks", world->origin, std::to_string(world->ranks)});
  }
  const std::int64_t ranks = number_of(last_of(settings, "parallel.ranks")).value_or(1);
  if (titan.shard_degree > 0 && titan.shard_degree * replicas != ranks) {
    throw InputError(fmt::format(
        "{}: is {}, but {} ranks in {} replica{} leave {:.4g} shards each; use -1 for all, or set "
        "NGPU x NNODES to {}",
        titan.origin(kShard), titan.shard_degree, ranks, replicas, replicas == 1 ? "" : "s",
        static_cast<double>(ranks) / static_cast<double>(replicas), titan.shard_degree * replicas));
  }
  if (last_of(settings, "parallel.strategy") != nullptr) return;
  const bool is_titan = titan.is_given(kShard) || titan.is_given(kReplicate);
  if (ranks == 1 && !is_titan) return;
  const bool is_replicated = titan.shard_degree == 1 && replicas > 1;
  settings.push_back({"parallel.strategy", "more than one rank and no parallel.strategy",
                      is_replicated ? "ddp" : "fsdp"});
  if (is_replicated) {
    std::erase_if(settings, [&](const Setting& each) { return each.key == replicate_key; });
  }
}

void warn(const TitanKeys& titan, std::vector<std::string>& warnings) {
  if (titan.compiles) {
    warnings.push_back(titan.origin("compile.enable") +
                       ": compile mode is switched off: the estimate is that of the uncompiled "
                       "training");
  }
  if (!titan.is_enabled) {
    warnings.push_back(titan.origin("memory_estimation.enabled") +
                       ": is false, but this program does nothing else than estimate");
  }
}

}  // namespace

std::vector<train::Key> TitanKeys::keys() {
  const auto degree = range(1, 1e6);
  return {
      {kShard, &shard_degree, "shards of a replica; -1 = all ranks", range(-1, 1e6)},
      {kReplicate, &replicate_degree, "replicas of the shards", degree},
      {"parallelism.tensor_parallel_degree", &tensor, "refused unless 1", degree},
      {"parallelism.pipeline_parallel_degree", &pipeline, "refused unless 1", degree},
      {"parallelism.context_parallel_degree", &context, "refused unless 1", degree},
      {"parallelism.expert_parallel_degree", &expert, "refused unless 1", degree},
      {"memory_estimation.enabled", &is_enabled, "changes nothing here"},
      {"memory_estimation.disable_fake_mode", &disable_fake_mode,
       "real ranks on this machine, with bytes"},
      {"compile.enable", &compiles, "switched off, with a warning"},
      {"activation_checkpoint.mode", &checkpoint_mode, "full: training.activation_checkpoint block",
       one_of({"none", "full", "selective"})},
      {"model.name", &name, "the family of model.flavor", one_of({"llama3"})},
      {"model.flavor", &flavor, "model.preset llama3_8b, llama3_70b, llama3_405b",
       one_of({"8B", "70B", "405B"})},
  };
}

TitanKeys translate(std::vector<Setting>& settings, const Environment& environment,
                    std::vector<std::string>& warnings) {
  TitanKeys titan;
  const std::vector<train::Key> keys = titan.keys();
  std::vector<Setting> ours;
  for (Setting& each : settings) {
    if (std::ranges::find(keys, each.key, &train::Key::name) != keys.end()) {
      each.apply(keys);
      titan.origins[each.key] = each.origin;
    } else if (is_passed_over(each.key)) {
      warnings.push_back(fmt::format("{}: {}: is passed over: no memory depends on it", each.origin,
                                     train::plain(each.key)));
    } else {
      ours.push_back(std::move(each));
    }
  }
  settings = std::move(ours);
  if (titan.shard_degree == 0) {
    throw InputError(titan.origin(kShard) + ": is 0, must be -1 (all ranks) or a positive number");
  }
  refuse_other_dimensions(titan);
  translate_model(titan, settings);
  translate_checkpoint(titan, settings);
  translate_world(titan, settings, environment);
  warn(titan, warnings);
  return titan;
}

}  // namespace fsdp::estimator
