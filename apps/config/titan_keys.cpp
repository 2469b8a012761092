#include "config/titan_keys.h"

#include "base/check.h"
#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace fsdp::config {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

constexpr std::int64_t kDefaultGpus = 8;  // of torchtitan's runner
constexpr const char* kShard = "parallelism.data_parallel_shard_degree";
constexpr const char* kReplicate = "parallelism.data_parallel_replicate_degree";
constexpr const char* kMode = "activation_checkpoint.mode";
constexpr const char* kRanks = "parallel.ranks";
constexpr const char* kReplicas = "parallel.data_parallel_replicate_degree";
constexpr const char* kCheckpoint = "training.activation_checkpoint";

// What no memory depends on.
bool is_passed_over(const std::string& key) {
  const std::vector<std::string> sections = {"job.",          "profiling.",  "comm.",
                                             "experimental.", "validation.", "fault_tolerance."};
  const auto leads = [&](const std::string& section) { return key.starts_with(section); };
  return std::ranges::any_of(sections, leads) || key == "training.dataset" ||
         (key.starts_with("metrics.") && key != "metrics.log_freq");
}

std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stop != text.data() + text.size() || error != std::errc()) return std::nullopt;
  return value;
}

std::int64_t number_in(const char* variable, const std::optional<std::string>& text,
                       std::int64_t fallback) {
  if (!text || text->empty()) return fallback;
  const auto value = number_of(*text);
  if (!value || *value < 1 || *value > 1'000'000) {
    throw InputError(fmt::format(
        "environment: {}: is {}, must be a whole number between 1 and "
        "1000000; unset it, or set it to the number of {}",
        variable, printable(*text), variable == std::string("NGPU") ? "GPUs of a node" : "nodes"));
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

/// A setting in our words, and the key it was written with.
struct Given {
  Setting setting;
  std::string key;

  bool is_translated() const { return key != setting.key; }
  bool is_on_command_line() const { return setting.origin == kCommandLine; }
};
using AllGiven = std::vector<Given>;

const Given* last_of(const AllGiven& all, const std::string& key) {
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Given& each) { return each.setting.key == key; });
  return found == all.rend() ? nullptr : &*found;
}

std::optional<std::int64_t> number_of(const Given* given) {
  if (given == nullptr || !given->setting.value) return std::nullopt;
  return number_of(*given->setting.value);
}

/// What a setting of torchtitan sets here, if it is one key. It counts where it stands.
std::optional<Setting> in_our_words(const Setting& titan) {
  const std::string value = titan.value.value_or("");
  if (titan.key == "model.flavor") {
    const std::string size = value == "8B" ? "8b" : value == "70B" ? "70b" : "405b";
    return Setting{"model.preset", titan.origin, "llama3_" + size};
  }
  if (titan.key == kMode)
    return Setting{kCheckpoint, titan.origin, value == "full" ? "block" : value};
  if (titan.key == kReplicate) return Setting{kReplicas, titan.origin, value};
  return std::nullopt;
}

/// The last setting of a key in each of its spellings, in the file or on the command line.
std::map<std::string, const Given*> last_by_spelling(const AllGiven& all, const std::string& key,
                                                     bool on_command_line) {
  std::map<std::string, const Given*> last;
  for (const Given& each : all) {
    if (each.setting.key == key && each.is_on_command_line() == on_command_line) {
      last[each.key] = &each;
    }
  }
  return last;
}

/// The command line beats the file, but in one place neither spelling beats the other.
void refuse_contradictions(const AllGiven& all) {
  for (const Given& each : all) {
    if (!each.is_translated()) continue;
    for (const auto& [spelling, other] :
         last_by_spelling(all, each.setting.key, each.is_on_command_line())) {
      const Given& last =
          *last_by_spelling(all, each.setting.key, each.is_on_command_line()).at(each.key);
      if (other->setting.value == last.setting.value) continue;
      throw InputError(fmt::format("{}: {}: means {} {}, but {} ({}) is {}; give one of them",
                                   last.setting.origin, last.key, last.setting.key,
                                   last.setting.value.value_or(""), spelling, other->setting.origin,
                                   printable(other->setting.value.value_or("missing"))));
    }
  }
}

/// With which options a later change of a key counts.
std::vector<std::string> spellings_of(const AllGiven& all, const std::string& key) {
  std::vector<std::string> names;
  for (const auto& [spelling, given] : last_by_spelling(all, key, true)) names.push_back(spelling);
  const Given* last = last_of(all, key);
  if (names.empty() && last != nullptr) names.push_back(last->key);
  return names;
}

// What the command line beats need not be possible.
void refuse_selective(AllGiven& all) {
  const Given* last = last_of(all, kCheckpoint);
  if (last != nullptr && last->is_translated() && last->setting.value == "selective") {
    throw InputError(
        fmt::format("{}: {}: is selective, but only whole blocks are computed again here; use none "
                    "or full, which bound it from above and below",
                    last->setting.origin, last->key));
  }
  std::erase_if(all, [](const Given& each) {
    return each.is_translated() && each.setting.value == "selective";
  });
}

struct World {
  std::int64_t ranks;
  std::string origin;
};

// Who says how many ranks there are, if it is not parallel.ranks.
std::optional<World> world_of(const TitanKeys& titan, const Given* ranks, std::int64_t replicas,
                              const Environment& environment) {
  if (ranks != nullptr && ranks->is_on_command_line()) return std::nullopt;
  if (environment.ngpu || environment.nnodes) {
    return World{number_in("NGPU", environment.ngpu, kDefaultGpus) *
                     number_in("NNODES", environment.nnodes, 1),
                 "NGPU x NNODES of the environment"};
  }
  const bool has_shards = titan.shard_degree > 0;
  const bool is_override = has_shards && titan.origins.at(kShard) == kCommandLine;
  if (ranks != nullptr && !is_override) return std::nullopt;
  if (has_shards) return World{titan.shard_degree * replicas, titan.origin(kShard)};
  if (!titan.is_given(kShard) && !titan.is_given(kReplicate)) return std::nullopt;
  return World{kDefaultGpus, "NGPU, which is 8 unless set"};
}

// The command line beats a degree of the file; other contradictions are refused.
void check_shards(TitanKeys& titan, const AllGiven& all, std::int64_t replicas,
                  const Environment& environment, std::vector<std::string>& warnings) {
  const Given* given = last_of(all, kRanks);
  const std::int64_t ranks = number_of(given).value_or(1);
  if (titan.shard_degree <= 0 || titan.shard_degree * replicas == ranks) return;
  const bool is_override = given->is_on_command_line();
  if (is_override && titan.origins.at(kShard) != kCommandLine) {
    warnings.push_back(fmt::format("{}: is {}, but parallel.ranks {} of the command line beats it",
                                   titan.origin(kShard), titan.shard_degree, ranks));
    titan.shard_degree = -1;
    titan.origins.erase(kShard);
    return;
  }
  const bool is_environment = !is_override && (environment.ngpu || environment.nnodes);
  throw InputError(fmt::format(
      "{}: is {}, but {} ranks in {} replica{} leave {:.4g} shards each; use -1 for all, or set "
      "{} to {}",
      titan.origin(kShard), titan.shard_degree, ranks, replicas, replicas == 1 ? "" : "s",
      static_cast<double>(ranks) / static_cast<double>(replicas),
      is_environment ? "NGPU x NNODES" : fmt::format("{} ({})", kRanks, given->setting.origin),
      titan.shard_degree * replicas));
}

void translate_world(TitanKeys& titan, AllGiven& all, const Environment& environment,
                     std::vector<std::string>& warnings) {
  const std::int64_t replicas = number_of(last_of(all, kReplicas)).value_or(1);
  const auto add = [&](const char* key, std::string origin, std::string value) {
    all.push_back({{key, std::move(origin), std::move(value)}, key});
  };
  std::vector<std::string>& names = titan.spellings[kRanks];
  const Given* written = last_of(all, kRanks);
  const auto world = world_of(titan, written, replicas, environment);
  if (world) add(kRanks, world->origin, std::to_string(world->ranks));
  check_shards(titan, all, replicas, environment, warnings);
  const bool is_by_shards =
      world && titan.shard_degree > 0 && world->origin == titan.origin(kShard);
  if (!is_by_shards) names.emplace_back(kRanks);
  if (titan.shard_degree > 0) names.emplace_back(kShard);
  if (titan.is_given(kReplicate) || last_of(all, kReplicas) != nullptr) {
    titan.spellings[kReplicas] = spellings_of(all, kReplicas);
  }
  if (environment.is_deepspeed || last_of(all, "parallel.strategy") != nullptr) return;
  const std::int64_t ranks = number_of(last_of(all, kRanks)).value_or(1);
  const bool is_titan = titan.is_given(kShard) || titan.is_given(kReplicate);
  if (ranks == 1 && !is_titan) return;
  const bool is_replicated = titan.shard_degree == 1 && replicas > 1;
  add("parallel.strategy", "more than one rank and no parallel.strategy",
      is_replicated ? "ddp" : "fsdp");
  if (is_replicated) {
    std::erase_if(all, [](const Given& each) { return each.setting.key == kReplicas; });
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

Environment Environment::of_process() {
  return {.ngpu = variable("NGPU"),
          .nnodes = variable("NNODES"),
          .config_file = variable("CONFIG_FILE")};
}

std::vector<Key> TitanKeys::keys() {
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
      {kMode, &checkpoint_mode, "full: training.activation_checkpoint block",
       one_of({"none", "full", "selective"})},
      {"model.name", &name, "the family of model.flavor", one_of({"llama3"})},
      {"model.flavor", &flavor, "model.preset llama3_8b, llama3_70b, llama3_405b",
       one_of({"8B", "70B", "405B"})},
  };
}

TitanKeys translate(std::vector<Setting>& settings, const Environment& environment,
                    std::vector<std::string>& warnings) {
  TitanKeys titan;
  const std::vector<Key> keys = titan.keys();
  AllGiven all;
  for (Setting& each : settings) {
    const std::string key = each.key;
    if (std::ranges::find(keys, key, &Key::name) != keys.end()) {
      each.apply(keys);
      titan.origins[key] = each.origin;
      if (auto ours = in_our_words(each)) all.push_back({std::move(*ours), key});
    } else if (is_passed_over(key)) {
      warnings.push_back(fmt::format("{}: {}: is passed over: no memory depends on it", each.origin,
                                     printable(key)));
    } else {
      all.push_back({std::move(each), key});
    }
  }
  if (titan.shard_degree == 0) {
    throw InputError(titan.origin(kShard) + ": is 0, must be -1 (all ranks) or a positive number");
  }
  refuse_other_dimensions(titan);
  refuse_contradictions(all);
  refuse_selective(all);
  titan.spellings[kCheckpoint] = spellings_of(all, kCheckpoint);
  translate_world(titan, all, environment, warnings);
  warn(titan, warnings);
  settings.clear();
  for (Given& each : all) settings.push_back(std::move(each.setting));
  return titan;
}

}  // namespace fsdp::config
