// How many ranks there are, and what they divide.
#include "base/check.h"
#include "base/printable.h"
#include "config/titan/given.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::config::titan {
namespace {

constexpr std::int64_t kDefaultGpus = 8;  // of torchtitan's runner

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

struct World {
  std::int64_t ranks;
  std::string origin;
};

// Who says how many ranks there are, if it is not parallel.ranks.
std::optional<World> world_of(const TitanKeys& titan, const Given* ranks, std::int64_t replicas,
                              const Environment& environment, bool has_titan) {
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
  if (!has_titan) return std::nullopt;
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

}  // namespace

void translate_world(TitanKeys& titan, AllGiven& all, const Environment& environment,
                     bool has_titan, std::vector<std::string>& warnings) {
  const std::int64_t replicas = number_of(last_of(all, kReplicas)).value_or(1);
  const auto add = [&](const char* key, std::string origin, std::string value) {
    all.push_back({{key, std::move(origin), std::move(value)}, key});
  };
  std::vector<std::string>& names = titan.spellings[kRanks];
  const Given* written = last_of(all, kRanks);
  const auto world = world_of(titan, written, replicas, environment, has_titan);
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

}  // namespace fsdp::config::titan
