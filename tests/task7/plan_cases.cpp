#include "task7/plan.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// Units that are not the root's, by the name they must have: the prefixes of what they hold.
struct Wanted {
  std::vector<std::pair<std::string, Names>> prefixes;
};

Wanted wanted_of(const Json& options) {
  Wanted wanted;
  if (options.contains("wrap")) {
    for (const std::string& path : options.at("wrap").get<Names>()) {
      if (!path.empty()) wanted.prefixes.push_back({path, {path}});
    }
    return wanted;
  }
  const std::string kind = options.value("model", "transformer");
  if (kind == "toy") {
    for (std::int64_t i = 0; i < options.value("layers", 3); ++i) {
      const std::string path = "layers." + std::to_string(i);
      wanted.prefixes.push_back({path, {path}});
    }
    return wanted;
  }
  if (kind == "mixed") return {.prefixes = {{"mixed", {"mixed"}}}};
  const nn::TransformerConfig config = config_of(options);
  if (!config.tie_word_embeddings) {
    wanted.prefixes.push_back({"model.embed_tokens", {"model.embed_tokens"}});
  }
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string path = "model.layers." + std::to_string(i);
    wanted.prefixes.push_back({path, {path}});
  }
  if (!config.tie_word_embeddings) {
    wanted.prefixes.push_back({"model.norm+lm_head", {"model.norm", "lm_head"}});
  }
  return wanted;
}

bool is_within(const std::string& path, const std::string& prefix) {
  return path == prefix || path.starts_with(prefix + ".");
}

/// The innermost unit around all of `paths`; "root" if there is none.
std::string owner_of(const Names& paths, const Wanted& wanted) {
  std::string owner = "root";
  std::size_t longest = 0;
  for (const auto& [name, prefixes] : wanted.prefixes) {
    for (const std::string& prefix : prefixes) {
      const bool holds_all = std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
        return is_within(path, prefix);
      });
      if (!holds_all || prefix.size() < longest) continue;
      owner = name;
      longest = prefix.size();
    }
  }
  return owner;
}

void add(WantedUnit& unit, const nn::NamedParameter& each, bool decays) {
  const DType dtype = each.variable.data().dtype();
  const bool trainable = each.variable.requires_grad();
  auto flat = std::find_if(unit.flats.begin(), unit.flats.end(), [&](const WantedFlat& known) {
    return known.dtype == dtype && known.trainable == trainable && known.decays == decays;
  });
  if (flat == unit.flats.end()) {
    flat = unit.flats.insert(flat, WantedFlat{{}, trainable, decays, dtype, 0});
  }
  flat->paths.push_back(each.path);
  flat->numel += each.variable.data().numel();
}

}  // namespace

Plan plan_of(const Case& asked) {
  const Json& options = asked.options;
  const Wanted wanted = wanted_of(options);
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  const auto model = make_model(options);
  freeze(*model, options);
  std::map<const void*, Names> paths;
  for (const nn::NamedParameter& each : model->named_parameters_with_ties()) {
    paths[each.variable.id()].push_back(each.path);
  }

  Plan plan;
  plan.units.push_back({"root", false, {}});
  for (const auto& [name, prefixes] : wanted.prefixes) plan.units.push_back({name, false, {}});
  for (const nn::NamedParameter& each : model->named_parameters()) {
    if (is_ignored(options, each.path)) {
      plan.replicated.push_back(each.path);
      const Tensor& data = each.variable.data();
      plan.replicated_bytes += data.numel() * static_cast<std::int64_t>(size_of(data.dtype()));
      continue;
    }
    const std::string owner = owner_of(paths.at(each.variable.id()), wanted);
    const auto unit = std::find_if(plan.units.begin(), plan.units.end(),
                                   [&](const WantedUnit& known) { return known.name == owner; });
    add(*unit, each, decays(options, each.path));
  }
  std::erase_if(plan.units, [](const WantedUnit& unit) { return unit.flats.empty(); });
  if (!plan.units.empty()) {
    const bool has_root = plan.units.front().name == "root";
    (has_root ? plan.units.front() : plan.units.back()).kept = true;
  }
  return plan;
}

std::int64_t padded(std::int64_t numel, int parts) { return (numel + parts - 1) / parts * parts; }

PlanBytes bytes_of(const Plan& plan, int world_size) {
  PlanBytes bytes;
  for (const WantedUnit& unit : plan.units) {
    std::int64_t whole = 0;
    for (const WantedFlat& flat : unit.flats) {
      const auto size = static_cast<std::int64_t>(size_of(flat.dtype));
      whole += padded(flat.numel, world_size) * size;
    }
    bytes.shards += whole / world_size;
    bytes.largest_unit = std::max(bytes.largest_unit, whole);
  }
  bytes.replicated = plan.replicated_bytes;
  return bytes;
}

Names piece_keys(const Plan& plan, const Json& options) {
  Names keys;
  for (const WantedUnit& unit : plan.units) {
    for (std::size_t i = 0; i < unit.flats.size(); ++i) {
      if (unit.flats[i].trainable) keys.push_back(unit.name + "#" + std::to_string(i));
    }
  }
  const auto frozen = options.value("frozen", Names{});
  for (const std::string& path : plan.replicated) {
    const bool trainable = std::none_of(
        frozen.begin(), frozen.end(), [&](const auto& prefix) { return path.starts_with(prefix); });
    if (trainable) keys.push_back(path);
  }
  return keys;
}

}  // namespace fsdp::graded
