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

/// The same, with a number where there are more than three paths.
std::vector<std::string> short_texts_of(std::vector<Json> units) {
  for (Json& unit : units) {
    for (Json& flat : unit["flats"]) {
      auto paths = flat.at("paths").get<Names>();
      if (paths.size() > 3) {
        flat["paths"] = {paths.front(), fmt::format("and {} more", paths.size() - 1)};
      }
    }
  }
  return texts_of(units);
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

std::vector<Json> none_decaying(std::vector<Json> units) {
  for (Json& unit : units) {
    for (Json& flat : unit["flats"]) flat["decays"] = false;
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

/// What of each flat parameter is in host memory, by unit.
void check_offload(const Observations& seen, int rank, const std::vector<Json>& units) {
  const std::string wanted = seen.asked().options.value("offload", std::string());
  Check check("7.1", "every flat parameter follows the options' offload", seen);
  check.at(rank);
  for (const Json& unit : units) {
    for (const auto& observed : unit.at("offloads").get<Names>()) {
      check.equal("what a flat parameter of " + unit.at("name").get<std::string>() +
                      " keeps in host memory",
                  observed.empty() ? "nothing" : observed, wanted.empty() ? "nothing" : wanted,
                  {{observed.empty(), "You did not pass options_.offload on to FlatParameter"}});
      if (!check.ok()) return;
    }
  }
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
                         "You did not pass options_.mixed_precision on to FlatParameter"}});
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
    const auto moved = std::mismatch(names.begin(), names.end(), wanted.begin(), wanted.end());
    std::vector<Json> every_kept = expected;
    for (Json& unit : every_kept) {
      unit["kept"] = unit.at("kept").get<bool>() || &unit == &every_kept.back();
    }
    Check check(
        "7.1",
        "every parameter that is not ignored is in one unit, with one flat parameter per kind; the "
        "root's unit comes first and is kept, and without one the last unit is kept",
        seen);
    std::vector<Json> root_last = expected;
    if (!root_last.empty()) std::rotate(root_last.begin(), root_last.begin() + 1, root_last.end());
    const bool is_renamed = names.size() == wanted.size() && moved.first != names.end() &&
                            std::count(wanted.begin(), wanted.end(), *moved.first) == 0;
    // A difference that the short texts do not show is shown in full.
    const bool is_short =
        texts_of(units) == texts_of(expected) || short_texts_of(units) != short_texts_of(expected);
    check.at(rank).equal(
        "the list of units", is_short ? short_texts_of(units) : texts_of(units),
        is_short ? short_texts_of(expected) : texts_of(expected),
        {{names != wanted && texts_of(units) == texts_of(root_last),
          "You put the root's unit last, and it is needed first"},
         {texts_of(units) == texts_of(none_decaying(expected)),
          "You let no parameter decay: without options_.decays every one does"},
         {is_renamed && !twice, fmt::format("You gave the unit {} another name: \"{}\"",
                                            moved.second == wanted.end() ? "" : *moved.second,
                                            moved.first == names.end() ? "" : *moved.first)},
         {twice, "You put a parameter into two units"},
         {std::count(names.begin(), names.end(), "root") > 1,
          "You added the root once more, although the policy returned it"},
         {wanted != by_name && names == by_name && !asked.options.contains("wrap"),
          "You sorted the units by name, which is not the order of the forward"},
         {names != wanted &&
              std::is_permutation(names.begin(), names.end(), wanted.begin(), wanted.end()) &&
              asked.options.contains("wrap"),
          fmt::format("You put {} where the policy has {}: the order is the policy's",
                      moved.first == names.end() ? "nothing" : *moved.first,
                      moved.second == wanted.end() ? "nothing" : *moved.second)},
         {texts_of(units) == texts_of(every_kept),
          "You kept both the root's unit and the last one; the last is kept only if the root is no "
          "unit"},
         {empty, "You made a unit of a module that is left without parameters"},
         {nobody && texts_of(with_kept(expected, "")) == texts_of(units),
          "You kept no unit until backward"},
         {texts_of(with_kept(expected, last)) == texts_of(units),
          "You kept the last unit, although the root is a unit"},
         {texts_of(units) == texts_of(all_decaying(expected)),
          "You gave parameters without weight decay a flat parameter of their own, but its "
          "FlatParameter::decay is still true"},
         {names == wanted && texts_of(units) == texts_of(with_other_order(expected, units)),
          "You made the right flat parameters, but not in the order in which their kinds first "
          "appear"},
         {texts_of(units) == texts_of(undivided),
          "You put parameters with and without weight decay into one flat parameter"}});
    const Names replicated = seen.lines(rank, "replicated");
    check.equal("the parameters left to be replicated", replicated, plan.replicated,
                {{replicated.size() < plan.replicated.size(),
                  "You left out parameters that are ignored and frozen"},
                 {replicated.size() > plan.replicated.size(),
                  "You listed a tied, ignored parameter once for each of its paths"}});
    check_formats(seen, rank, units, plan);
    check_offload(seen, rank, units);
    const auto policy = [](int group) {
      return group == 0   ? std::string("always")
             : group == 1 ? std::string("never")
                          : fmt::format("within({})", group);
    };
    for (const Json& unit : units) {
      check.equal("reshard_after_forward of " + unit.at("name").get<std::string>(),
                  policy(unit.at("group").get<int>()), policy(asked.options.value("group", 0)),
                  {{true, "You did not pass options_.reshard_after_forward on to the unit"}});
    }
    if (!check.ok()) return;
    add_slices(whole, seen.at(rank, "slices"));

    Check lean("7.1", "making the units needs memory for the shards, and for nothing besides",
               seen);
    const PlanBytes bytes = bytes_of(plan, seen.world_size());
    const Json& making = seen.at(rank, "making");
    const std::int64_t grown = making.at("peak").at("total").get<std::int64_t>() -
                               making.at("before").at("total").get<std::int64_t>();
    lean.at(rank).at_most("the peak of memory, above what was held before", grown, bytes.shards,
                          {{true,
                            "You built or copied more of a parameter than this rank's slice of "
                            "it"}});
    // What is offloaded from a device lies in host memory.
    const bool leaves = seen.asked().device != kCpu && asked.options.contains("offload");
    lean.equal("the number of SHARDED_PARAM bytes", seen.bytes(rank, "made", "SHARDED_PARAM"),
               leaves ? 0 : bytes.shards);
    lean.at_most("the largest block taken from the heap", making.at("heap").get<std::int64_t>(),
                 4095, {{true, "You made a copy outside the memory tracker"}});
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
        const DType read_as = precision_of(asked.options).param_dtype_for(flat.dtype);
        for (float& each : full) each = rounded(each, read_as);
        full.resize(static_cast<std::size_t>(padded(flat.numel, seen.world_size())), 0.0F);
        parts.at(rank, unit.name)
            .bits("the flat vector", floats_of(seen.at(rank, "gathered").at(at++).at("bits")), full,
                  flat.numel);
      }
    }
  }
}

}  // namespace fsdp::graded
