#include "graded/precision.h"
#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace fsdp::graded {
namespace {

/// "layers.0 kept: [layers.0.weight layers.0.bias | frozen float64 …]"
std::string text_of(const Json& unit) {
  std::vector<std::string> flats;
  for (const Json& flat : unit.at("flats")) {
    std::string text = fmt::format("{}", fmt::join(flat.at("paths").get<Names>(), " "));
    if (!flat.at("trainable").get<bool>()) text = "frozen " + text;
    if (!flat.at("decays").get<bool>()) text = "no decay " + text;
    if (flat.at("dtype") != "float32") text = flat.at("dtype").get<std::string>() + " " + text;
    flats.push_back(text);
  }
  return fmt::format("{}{}: [{}]", unit.at("name").get<std::string>(),
                     unit.at("kept").get<bool>() ? " kept" : "", fmt::join(flats, " | "));
}

Json to_json(const WantedUnit& unit) {
  Json flats = Json::array();
  for (const WantedFlat& flat : unit.flats) {
    flats.push_back({{"paths", flat.paths},
                     {"trainable", flat.trainable},
                     {"decays", flat.decays},
                     {"dtype", name_of(flat.dtype)}});
  }
  return {{"name", unit.name}, {"kept", unit.kept}, {"flats", flats}};
}

std::vector<std::string> texts_of(const std::vector<Json>& units) {
  std::vector<std::string> texts;
  for (const Json& unit : units) texts.push_back(text_of(unit));
  return texts;
}

Names names_of_units(const std::vector<Json>& units) {
  Names names;
  for (const Json& unit : units) names.push_back(unit.at("name").get<std::string>());
  return names;
}

std::vector<Json> with_kept(std::vector<Json> units, const std::string& kept) {
  for (Json& unit : units) unit["kept"] = unit.at("name") == kept;
  return units;
}

std::vector<Json> all_decaying(std::vector<Json> units) {
  for (Json& unit : units) {
    for (Json& flat : unit["flats"]) flat["decays"] = true;
  }
  return units;
}

/// The units with their flat parameters in the order of `others`, if these are the same.
std::vector<Json> with_other_order(std::vector<Json> units, const std::vector<Json>& others) {
  for (std::size_t i = 0; i < units.size() && i < others.size(); ++i) {
    const Json& flats = others[i].at("flats");
    if (std::is_permutation(flats.begin(), flats.end(), units[i].at("flats").begin(),
                            units[i].at("flats").end())) {
      units[i]["flats"] = flats;
    }
  }
  return units;
}

std::vector<std::string> sorted_paths(const std::vector<Json>& units) {
  std::vector<std::string> paths;
  for (const Json& unit : units) {
    for (const Json& flat : unit.at("flats")) {
      for (const Json& path : flat.at("paths")) paths.push_back(path.get<std::string>());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The dtypes of flat parameters, by unit.
void check_formats(const Observations& seen, int rank, const std::vector<Json>& units,
                   const Plan& plan) {
  const optim::MixedPrecision precision = precision_of(seen.asked().options);
  Names observed, expected, plain;
  for (const Json& unit : units) {
    for (const auto& format : unit.at("formats").get<Names>()) {
      observed.push_back(unit.at("name").get<std::string>() + ": " + format);
    }
  }
  const auto format = [](const WantedUnit& unit, const WantedFlat& flat,
                         const optim::MixedPrecision& with) {
    return fmt::format("{}: {}, read as {}, gradients summed in {}", unit.name, name_of(flat.dtype),
                       name_of(with.param_dtype_for(flat.dtype)),
                       name_of(with.reduce_dtype_for(flat.dtype)));
  };
  for (const WantedUnit& unit : plan.units) {
    for (const WantedFlat& flat : unit.flats) {
      expected.push_back(format(unit, flat, precision));
      plain.push_back(format(unit, flat, {}));
    }
  }
  Check check("7.1", "every flat parameter follows the options' mixed_precision", seen);
  check.at(rank).equal("the dtypes of the flat parameters", observed, expected,
                       {{observed == plain && expected != plain,
                         "options_.mixed_precision was not passed on to FlatParameter"}});
}

}  // namespace

void judge_units(const Setup& setup) {
  const Observations& seen = run("units", setup);
  const Case& asked = seen.asked();
  const Plan plan = plan_of(asked);
  std::vector<Json> expected, undivided;
  for (const WantedUnit& unit : plan.units) expected.push_back(to_json(unit));
  Case decaying = asked;
  decaying.options.erase("no_decay");
  for (const WantedUnit& unit : plan_of(decaying).units) undivided.push_back(to_json(unit));
  Assembled whole;
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const auto units = seen.at(rank, "units").get<std::vector<Json>>();
    const auto paths = sorted_paths(units);
    const bool twice = std::adjacent_find(paths.begin(), paths.end()) != paths.end();
    bool nobody = !units.empty(), empty = false;
    for (const Json& unit : units) {
      nobody = nobody && !unit.at("kept").get<bool>();
      empty = empty || unit.at("flats").empty();
    }
    const std::string last = expected.empty() ? "" : expected.back().at("name").get<std::string>();
    const Names names = names_of_units(units), wanted = names_of_units(expected);
    Names by_name = wanted;
    std::sort(by_name.begin(), by_name.end());
    std::vector<Json> every_kept = expected;
    for (Json& unit : every_kept) {
      unit["kept"] = unit.at("kept").get<bool>() || &unit == &every_kept.back();
    }
    Check check(
        "7.1",
        "every parameter that is not ignored is in one unit, with one flat parameter per kind; the "
        "root's unit comes first and is kept, and without one the last unit is kept",
        seen);
    check.at(rank).equal(
        "the list of units", texts_of(units), texts_of(expected),
        {{twice, "a parameter is in two units"},
         {std::count(names.begin(), names.end(), "root") > 1,
          "the policy returned the root, but the root is added once more"},
         {wanted != by_name && names == by_name && !asked.options.contains("wrap"),
          "the units are sorted by name, which is not the order of the forward"},
         {names != wanted &&
              std::is_permutation(names.begin(), names.end(), wanted.begin(), wanted.end()) &&
              asked.options.contains("wrap"),
          fmt::format("the units are [{}], but the policy returned [{}]: keep the policy's order",
                      fmt::join(names, ", "),
                      fmt::join(asked.options.value("wrap", Names{}), ", "))},
         {texts_of(units) == texts_of(every_kept),
          "both the root's unit and the last one are kept, but the last is kept only if the root "
          "is not a unit"},
         {empty, "a module that is left without parameters became a unit"},
         {nobody && texts_of(with_kept(expected, "")) == texts_of(units),
          "no unit is kept until backward"},
         {texts_of(with_kept(expected, last)) == texts_of(units),
          "the last unit is kept although the root is a unit"},
         {texts_of(units) == texts_of(all_decaying(expected)),
          "parameters without weight decay have a flat parameter of their own, but its "
          "FlatParameter::decay is still true"},
         {names == wanted && texts_of(units) == texts_of(with_other_order(expected, units)),
          "the flat parameters are right but in another order: sort them by the first parameter of "
          "each kind"},
         {texts_of(units) == texts_of(undivided),
          "one flat parameter mixes parameters with and without weight decay"}});
    const Names replicated = seen.lines(rank, "replicated");
    check.equal("the parameters left to be replicated", replicated, plan.replicated,
                {{replicated.size() > plan.replicated.size(),
                  "a tied parameter is ignored once for each of its paths"}});
    check_formats(seen, rank, units, plan);
    for (const Json& unit : units) {
      check.equal("reshard_after_forward of " + unit.at("name").get<std::string>(),
                  unit.at("group").get<int>(), asked.options.value("group", 0));
    }
    add_slices(whole, seen.at(rank, "slices"));

    Check lean("7.1", "making the units needs memory for the shards and at most one whole unit",
               seen);
    const PlanBytes bytes = bytes_of(plan, seen.world_size());
    const Json& making = seen.at(rank, "making");
    const std::int64_t grown = making.at("peak").at("total").get<std::int64_t>() -
                               making.at("before").at("total").get<std::int64_t>();
    lean.at(rank).at_most("the peak of memory, above what was held before", grown,
                          bytes.shards + bytes.largest_unit);
    lean.equal("the number of SHARDED_PARAM bytes", seen.bytes(rank, "made", "SHARDED_PARAM"),
               bytes.shards);
    lean.at_most("the largest block taken from the heap", making.at("heap").get<std::int64_t>(),
                 4095, {{true, "a copy outside the memory tracker"}});
  }
  const State all = part_of(eager(asked.options, asked.seed).state, asked.options, false);
  Check values("7.1", "the shards of all ranks make up the parameters of an eager build", seen);
  values.at(0);
  check_cover(values, whole, names_in(all));
  if (values.ok()) check_state(values, whole.values, all);
  if (asked.options.value("group", 0) < 2) return;
  Check parts("7.1", "under within(s) the units gather again among s consecutive ranks", seen);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    std::size_t at = 0;
    for (const WantedUnit& unit : plan.units) {
      for (const WantedFlat& flat : unit.flats) {
        std::vector<float> full;
        for (const std::string& path : flat.paths) {
          const auto& each = all.at("param/" + path);
          full.insert(full.end(), each.begin(), each.end());
        }
        full.resize(static_cast<std::size_t>(padded(flat.numel, seen.world_size())), 0.0F);
        parts.at(rank, unit.name)
            .bits("the flat vector", floats_of(seen.at(rank, "gathered").at(at++).at("bits")), full,
                  flat.numel);
      }
    }
  }
}

namespace {

/// What is replicated and not trained.
Names frozen_of(const Plan& plan, const Json& options) {
  const Names keys = piece_keys(plan, options);
  Names frozen = plan.replicated;
  std::erase_if(frozen, [&](const std::string& path) {
    return std::find(keys.begin(), keys.end(), path) != keys.end();
  });
  return frozen;
}

/// Whether each piece decays as the ignored parameter at its own position among all of them should.
bool is_of_another(const Json& observed, const Plan& plan, const Json& options) {
  Names trainable;
  for (const std::string& key : piece_keys(plan, options)) {
    if (key.find('#') == std::string::npos) trainable.push_back(key);
  }
  for (std::size_t i = 0; i < trainable.size(); ++i) {
    if (!observed.contains(trainable[i])) return false;
    if (observed.at(trainable[i]).get<bool>() != decays(options, plan.replicated[i])) return false;
  }
  return true;
}

/// In which dtypes the model reads what is ignored. Returns the bytes of its copies there.
std::int64_t check_copies(const Observations& seen, int rank, const Eager& build) {
  const Json& options = seen.asked().options;
  const std::optional<DType> dtype = precision_of(options).param_dtype;
  Names expected, masters;
  std::int64_t nbytes = 0;
  for (const auto& [path, shape] : build.shapes) {
    if (!is_ignored(options, path)) continue;
    masters.push_back(path + " " + build.dtypes.at(path));
    expected.push_back(dtype ? fmt::format("{} {}", path, name_of(*dtype)) : masters.back());
    if (expected.back() == masters.back()) continue;
    nbytes += numel_of(shape) * static_cast<std::int64_t>(size_of(*dtype));
  }
  Check check("7.3", "under mixed precision the model reads copies of ignored parameters, too",
              seen);
  const Names observed = seen.lines(rank, "read as");
  check.at(rank).equal("the dtypes in which the model reads ignored parameters", observed, expected,
                       {{observed == masters && observed != expected,
                         "set replicated_masters_ to the MasterWeights of the ignored parameters: "
                         "it makes the copies"}});
  return nbytes;
}

}  // namespace

void judge_replicated(const Setup& setup) {
  const Observations& seen = run("replicated", setup);
  const Case& asked = seen.asked();
  const Eager build = eager(asked.options, asked.seed);
  const State ignored = part_of(build.state, asked.options, true);
  const Plan plan = plan_of(asked);
  const bool meta = asked.options.value("meta", false);
  const PlanBytes bytes = bytes_of(plan, seen.world_size());
  std::int64_t buffer_bytes = 0;
  for (const auto& [name, values] : build.buffers) buffer_bytes += 4 * std::ssize(values);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check there("7.3", "after a meta start every ignored parameter is allocated", seen);
    const Names on_meta = seen.lines(rank, "on meta");
    there.at(rank).equal("the ignored parameters that are still on meta", on_meta, {},
                         {{on_meta == frozen_of(plan, asked.options),
                           "an ignored parameter needs memory whether it is frozen or not"}});
    if (!there.ok()) return;
    Assembled whole;
    const Json& noted_parameters = seen.at(rank, "replicated");
    add_slices(whole, noted_parameters);
    Check values("7.3",
                 "every rank holds the ignored parameters whole, with the bits of an eager build",
                 seen);
    check_state(values.at(rank), whole.values, ignored);

    Check buffers("7.3", "buffers are not loaded from a file, so they must be computed", seen);
    const Json& noted = seen.at(rank, "buffers");
    buffers.at(rank).equal("the number of buffers", std::ssize(noted), std::ssize(build.buffers));
    for (std::size_t i = 0; i < build.buffers.size() && buffers.ok(); ++i) {
      const auto& [name, expected] = build.buffers[i];
      const bool initialized = noted.at(i).at("initialized").get<bool>();
      const auto module = noted.at(i).at("module").get<std::string>();
      const bool is_bare = noted.at(i).at("bare").get<bool>();
      buffers.that(initialized,
                   fmt::format("buffer '{}' of module '{}' has not been initialized", name, module),
                   "an initialized buffer",
                   {{meta, fmt::format("initialize_buffers() was not called on '{}'{}: after a "
                                       "meta start call it on every module of the tree",
                                       module, is_bare ? ", which has no parameter" : "")}});
      if (initialized) buffers.bits("buffer " + name, floats_of(noted.at(i).at("bits")), expected);
    }
    Check generator("7.3", "the generator ends at the offset where an eager build leaves it", seen);
    const auto offset = seen.number(rank, "generator");
    generator.at(rank).equal(
        "the generator's offset", offset, static_cast<std::int64_t>(build.generator),
        {{offset == 0,
          "the generator was not advanced, so the next draw repeats the initial weights"},
         {offset == 2 * static_cast<std::int64_t>(build.generator),
          "the generator was advanced twice"}});
    Check engine("7.3", "only ignored, trainable parameters need an all-reduce", seen);
    const Names keys = piece_keys(plan, asked.options);
    const bool trainable = std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
      return key.find('#') == std::string::npos;
    });
    engine.at(rank).that(seen.at(rank, "engine").get<bool>() == trainable,
                         trainable ? "there is no DdpGradients" : "there is a DdpGradients",
                         trainable ? "one" : "none, because no parameter is ignored and trainable");
    Check types("7.3", "an ignored parameter keeps its dtype", seen);
    for (const Json& each : noted_parameters) {
      const std::string path = each.at("name").get<std::string>().substr(6);
      types.at(rank).equal("the dtype of " + path, each.at("dtype").get<std::string>(),
                           build.dtypes.at(path));
    }
    Check decay("7.3", "weight decay applies to ignored parameters as it does to the others", seen);
    decay.at(rank);
    for (const auto& [path, observed] : seen.at(rank, "decays").items()) {
      const bool expected = decays(asked.options, path);
      decay.that(observed.get<bool>() == expected,
                 fmt::format("the piece of {} {}", path, expected ? "does not decay" : "decays"),
                 expected ? "it decays" : "it does not decay, as options_.decays returns false",
                 {{is_of_another(seen.at(rank, "decays"), plan, asked.options),
                   "the pieces are those of the trainable parameters only: the i-th piece is not "
                   "the i-th ignored parameter"},
                  {!expected, "options_.decays was not called"}});
    }
    const std::int64_t copies = check_copies(seen, rank, build);
    Check memory("7.3", "parameters that stay whole are counted as UNSHARDED_PARAM", seen);
    memory.at(rank).equal("the number of UNSHARDED_PARAM bytes",
                          seen.bytes(rank, "started", "UNSHARDED_PARAM") -
                              seen.bytes(rank, "before", "UNSHARDED_PARAM"),
                          bytes.replicated + copies);
    if (!meta) continue;
    Check lean("7.3", "a meta start never holds more than its shards and one unit", seen);
    const Json& start = seen.at(rank, "start");
    lean.at(rank).at_most(
        "the peak of memory, above what was held before",
        start.at("peak").at("total").get<std::int64_t>() -
            start.at("before").at("total").get<std::int64_t>(),
        bytes.shards + bytes.largest_unit + bytes.replicated + copies + buffer_bytes);
    lean.at_most("the largest block taken from the heap", start.at("heap").get<std::int64_t>(),
                 16384, {{true, "a copy outside the memory tracker"}});
  }
}

}  // namespace fsdp::graded
