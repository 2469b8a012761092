#include "graded/precision.h"
#include "io/hf_folder.h"
#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

/// The parameters in the order of a visit: unit by unit, then the replicated ones.
Names order_of(const Plan& plan) {
  Names paths;
  for (const WantedUnit& unit : plan.units) {
    for (const WantedFlat& flat : unit.flats) {
      paths.insert(paths.end(), flat.paths.begin(), flat.paths.end());
    }
  }
  paths.insert(paths.end(), plan.replicated.begin(), plan.replicated.end());
  return paths;
}

/// By visit: the unit that has to be unsharded, or "".
Names owners_of(const Plan& plan) {
  Names owners;
  for (const WantedUnit& unit : plan.units) {
    for (const WantedFlat& flat : unit.flats)
      owners.insert(owners.end(), flat.paths.size(), unit.name);
  }
  owners.insert(owners.end(), plan.replicated.size(), "");
  return owners;
}

/// What a load that reads too early says, by damage.
std::string too_early(const std::string& damage) {
  if (damage == "vocabulary") {
    return "You read sharded tensors before the ignored ones had been checked";
  }
  if (damage == "lacks")
    return "You noticed only when you read it that a tensor is missing from the file";
  if (damage == "shape")
    return "You compared numbers of elements: the tensor has as many, but another shape";
  return "You read tensors before every rank had found the file valid";
}

/// What is wrong with the file of a damage.
std::string misfit_text(const Case& asked, const std::string& damage) {
  const auto shapes = eager(asked.options, asked.seed).shapes;
  auto others = eager(misfit_of(asked.options, damage), asked.seed).shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    auto& [path, shape] = others[i];
    if (path != shapes[i].first) return path + " is one tensor too many";
    const bool is_norm = path == "model.norm.weight";
    if (is_norm && damage == "lacks") return path + " is missing";
    if (is_norm && damage == "shape") shape = {1, numel_of(shape)};
    if (shape == shapes[i].second) continue;
    return fmt::format("{} is {} instead of {}", path, fsdp::to_string(shape),
                       fsdp::to_string(shapes[i].second));
  }
  return "something does not fit";
}

/// [{path, bits}] as a state.
State state_of(const Json& tensors) {
  State state;
  for (const Json& each : tensors) {
    state["param/" + each.at("path").get<std::string>()] = floats_of(each.at("bits"));
  }
  return state;
}

/// Eager values; what is sharded times two, as the scenario scales the shards.
State scaled(const Case& asked) {
  State state = eager(asked.options, asked.seed).state;
  for (auto& [name, values] : state) {
    if (is_ignored(asked.options, name.substr(6))) continue;
    for (float& each : values) each *= 2;
  }
  return state;
}

/// As the model reads it under mixed precision.
State as_read(State state, const Case& asked) {
  const DType dtype = precision_of(asked.options).param_dtype_for(DType::float32);
  for (auto& [name, values] : state) {
    for (float& each : values) each = rounded(each, dtype);
  }
  return state;
}

/// What a state says that was taken from full() under mixed precision.
std::vector<Cause> causes_of_rounding(const State& observed, const Case& asked) {
  const auto is_as_read = [&](bool ignored) {
    const State right = part_of(scaled(asked), asked.options, ignored);
    const State part = part_of(observed, asked.options, ignored);
    return part != right && part == as_read(right, asked);
  };
  const State ignored = part_of(scaled(asked), asked.options, true);
  const State copies = part_of(observed, asked.options, true);
  return {{is_wrong_where_frozen(copies, ignored, asked.options) &&
               as_read(copies, asked) == as_read(ignored, asked),
           "You passed the copies of frozen ignored parameters in param_dtype, but what is frozen "
           "has masters too"},
          {is_as_read(false),
           "You passed what the model reads, rounded to param_dtype, and not the shards, which are "
           "the masters"},
          {is_as_read(true),
           "You passed the copies of ignored parameters in param_dtype, variable.data(), and not "
           "their masters"}};
}

/// Why ignored parameters lack the loaded values, from the masters and from what the model reads.
std::vector<Cause> causes_of_not_loading(const State& masters, const State& copies,
                                         const State& saved, const Case& asked) {
  const State built = part_of(eager(asked.options, asked.seed).state, asked.options, true);
  return {{is_wrong_where_frozen(masters, saved, asked.options),
           "You left the frozen ones of the ignored parameters as they were, but load_full reads "
           "every parameter"},
          {masters == built && masters != saved && copies == as_read(saved, asked),
           "You read them into the copies in param_dtype, variable.data(), which the next "
           "refresh() overwrites, and not into their masters"},
          {masters == built && copies == as_read(built, asked),
           "You read what is sharded, and left the ignored parameters as they were"}};
}

/// The paths, in alphabetical order, of what is not in the first flat parameter of a unit.
Names beyond_first_flats(const Plan& plan) {
  Names paths;
  for (const WantedUnit& unit : plan.units) {
    for (std::size_t i = 1; i < unit.flats.size(); ++i) {
      paths.insert(paths.end(), unit.flats[i].paths.begin(), unit.flats[i].paths.end());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void check_one_unit(const Observations& seen, int rank, const char* what, std::int64_t grown,
                    int ranks) {
  Check lean("7.5", "at most one unit is unsharded at a time", seen);
  const PlanBytes bytes = bytes_of(plan_of(seen.asked()), ranks);
  lean.at(rank).at_most(
      fmt::format("the peak of memory while {}, above what was held before", what), grown,
      bytes.largest_unit,
      {{grown >= bytes.shards * ranks, "You gathered the whole model"},
       {grown > bytes.largest_unit, "You hold more than one unit at a time"}});
}

void check_shapes(const Observations& seen, int rank) {
  std::map<std::string, Shape> shapes;
  for (const auto& [path, shape] : eager(seen.asked().options, seen.asked().seed).shapes) {
    shapes[path] = shape;
  }
  Check check("7.5", "the tensor that a visit gets has the parameter's shape", seen);
  check.at(rank);
  for (const Json& each : seen.at(rank, "visited")) {
    const auto path = each.at("path").get<std::string>();
    const auto shape = each.at("shape").get<Shape>();
    check.equal("the shape of what the visit of " + path + " gets", fsdp::to_string(shape),
                fsdp::to_string(shapes.at(path)),
                {{shape == Shape{numel_of(shapes.at(path))},
                  "You passed the parameter's part of the flat vector, which has one dimension"}});
    if (!check.ok()) return;
  }
}

int ranks_of(const Case& asked) { return asked.options.value("ranks", 2); }

}  // namespace

void judge_visit(const Setup& setup) {
  const Observations& seen = run("visit", setup);
  const Plan plan = plan_of(seen.asked());
  const Json& options = seen.asked().options;
  const bool is_mixed = precision_of(options).param_dtype.has_value();
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check order("7.5", "every parameter is visited once, unit by unit, on every rank", seen);
    Names paths;
    for (const Json& each : seen.at(rank, "visited")) {
      paths.push_back(each.at("path").get<std::string>());
    }
    Names turned = order_of(plan), trained, not_both = order_of(plan);
    std::erase_if(not_both, [&](const std::string& path) {
      return is_frozen(options, path) && is_ignored(options, path);
    });
    std::rotate(turned.begin(), turned.end() - std::ssize(plan.replicated), turned.end());
    for (const WantedUnit& unit : plan.units) {
      for (const WantedFlat& flat : unit.flats) {
        if (flat.trainable) trained.insert(trained.end(), flat.paths.begin(), flat.paths.end());
      }
    }
    trained.insert(trained.end(), plan.replicated.begin(), plan.replicated.end());
    order.at(rank).equal(
        "the visits", paths, order_of(plan),
        {{paths == turned, "You visited the ignored parameters before the units"},
         {paths == trained, "You left out what is frozen, which is part of the state"},
         {paths == not_both,
          "You left out the frozen ones of the ignored parameters, which are part of the state"},
         {rank > 0 && paths == plan.replicated,
          "You called visit on rank 0 only, but every rank visits every parameter"}});
    if (order.ok()) check_shapes(seen, rank);
    Check one("7.5", "only the unit whose parameters are visited is unsharded", seen);
    const Names owners = owners_of(plan);
    const Names before = seen.lines(rank, "unsharded before");
    Names units;
    for (const WantedUnit& unit : plan.units) units.push_back(unit.name);
    for (std::size_t i = 0; i < owners.size() && order.ok() && one.ok(); ++i) {
      Names unsharded = seen.at(rank, "visited").at(i).at("unsharded").get<Names>();
      // What a forward left whole before the visit may wait for its turn.
      const Names done(owners.begin(), owners.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      std::erase_if(unsharded, [&](const std::string& unit) {
        return std::find(done.begin(), done.end(), unit) == done.end() &&
               std::find(before.begin(), before.end(), unit) != before.end();
      });
      const std::string when = " while " + paths[i] + " is visited";
      if (owners[i].empty()) {
        one.at(rank).at_most("the number of unsharded units" + when, std::ssize(unsharded), 1);
      } else {
        const auto here = std::find(units.begin(), units.end(), owners[i]);
        const bool never = unsharded == Names(units.begin(), here + 1);
        // Under mixed precision the shards are gathered beside the unit.
        const bool beside = is_mixed && unsharded.empty();
        one.at(rank).equal("the unsharded units" + when, unsharded,
                           beside ? Names{} : Names{owners[i]},
                           {{never, "You gathered the unit for the visit and never resharded it"},
                            {unsharded == units, "You gathered the whole model"}});
      }
    }
    Check values("7.5", "a visit passes values assembled from the current shards of all ranks",
                 seen);
    const State visited = state_of(seen.at(rank, "visited"));
    check_state(values.at(rank), visited, scaled(seen.asked()),
                causes_of_rounding(visited, seen.asked()));
    Check left("7.5", "afterwards every unit is sharded", seen);
    const Names unsharded = seen.lines(rank, "left");
    const bool were_whole = std::all_of(unsharded.begin(), unsharded.end(), [&](const auto& unit) {
      return std::find(before.begin(), before.end(), unit) != before.end();
    });
    left.at(rank).equal("the units that are not sharded", unsharded, {},
                        {{were_whole,
                          "You resharded only the units that you had gathered: a forward without a "
                          "backward had left these unsharded before the visit"},
                         {true, "You gathered the unit for the visit and never resharded it"}});
    const Json& peak = seen.at(rank, "visiting");
    check_one_unit(seen, rank, "visiting",
                   peak.at("peak").at("total").get<std::int64_t>() -
                       peak.at("before").at("total").get<std::int64_t>(),
                   seen.world_size());
    Check heap("7.5", "the visit copies nothing", seen);
    heap.at(rank).at_most("the largest block taken from the heap",
                          peak.at("heap").get<std::int64_t>(), 4095,
                          {{true, "You made a copy outside the memory tracker"}});
  }
}

void judge_save_full(const Setup& setup) {
  const Observations& seen = run("save_full", setup);
  const Case& asked = seen.asked();
  Check files("7.5", "the folder appears complete; an incomplete one has another name", seen);
  const std::string refusal = seen.text(0, "saving again failed");
  const bool is_foreign = seen.at(0, "replacing").at("type") != "none";
  files.at_rank_of(0, ranks_of(asked))
      .that(refusal.empty(), "saving into the folder of an earlier save: " + refusal,
            "the folder is replaced",
            {{is_foreign,
              "You wrote a file into the folder after publish_folder(), which lists the complete "
              "files"}});
  if (!files.ok()) return;
  files.at(0).equal("the content of the parent folder", seen.lines(0, "listing"), Names{"model"});
  files.equal("the content of the folder", seen.lines(0, "files"),
              Names{"config.json", "model.safetensors"});
  files.equal("config.json", seen.text(0, "config"), io::to_hf_config(config_of(asked.options)));
  Check values("7.5", "the file holds the current value of every parameter under its path", seen);
  const State observed = state_of(seen.at(0, "tensors"));
  std::vector<Cause> causes = causes_of_rounding(observed, asked);
  causes.push_back({observed == eager(asked.options, asked.seed + 1).state,
                    "You did not replace the folder of the previous save"});
  check_state(values.at(0), observed, scaled(asked), causes);
  for (int rank = 0; rank < ranks_of(asked); ++rank) {
    const Json& noted = seen.at(0, "ranks").at(static_cast<std::size_t>(rank));
    const Json& there = seen.at(0, "there").at(static_cast<std::size_t>(rank));
    check_one_unit(seen, rank, "saving", noted.at("peak").get<std::int64_t>(), ranks_of(asked));
    Check left("7.5", "afterwards every unit is sharded", seen);
    left.at_rank_of(rank, ranks_of(asked))
        .equal("the units that are not sharded", noted.at("left").get<Names>(), {});
    Check together("7.5", "no rank returns from save_full before the folder exists", seen);
    together.at_rank_of(rank, ranks_of(asked))
        .that(noted.at("found").get<bool>(), "the folder did not exist", "it exists");
    if (rank > 0) continue;  // only rank 0 publishes, so only there the order is certain
    const bool published = !there.empty() && there.back().get<bool>();
    together.that(published, "rank 0 publishes after the last collective, so no rank waits for it",
                  "a barrier after the folder has been published");
    together.that(!there.empty() && !there.front().get<bool>(),
                  "the folder exists while units are still being gathered",
                  "the folder appears at the end",
                  {{true, "You wrote the folder in place, so a crash leaves half of it"}});
  }
}

void judge_load_full(const Setup& setup) {
  const Observations& seen = run("load_full", setup);
  const Case& asked = seen.asked();
  const State saved = eager(asked.options, asked.seed + 1).state;
  const State sharded = part_of(saved, asked.options, false);
  const State ignored = part_of(saved, asked.options, true);
  Assembled whole;
  for (int rank = 0; rank < ranks_of(asked); ++rank) {
    const Json& noted = seen.at(0, "ranks").at(static_cast<std::size_t>(rank));
    Assembled own;
    for (const Json& slice : noted.at("slices")) {
      const bool is_whole =
          is_ignored(asked.options, slice.at("name").get<std::string>().substr(6));
      add_slices(is_whole ? own : whole, Json::array({slice}));
    }
    Check copies("7.5", "every rank reads the ignored parameters whole", seen);
    Assembled read;
    add_slices(read, noted.at("copies"));
    check_state(copies.at_rank_of(rank, ranks_of(asked)), own.values, ignored,
                causes_of_not_loading(own.values, read.values, ignored, asked));
    Check lean("7.5", "a rank reads its own slices directly into the shard", seen);
    lean.at_rank_of(rank, ranks_of(asked))
        .equal("the peak of memory, above what was held before",
               noted.at("peak").get<std::int64_t>(), 0,
               {{true, "You read more of a tensor than this rank's slice of it"}});
  }
  Check values("7.5", "each rank reads its own slices of every parameter", seen);
  check_cover(values.at(0), whole, names_in(sharded));
  if (values.ok()) {
    check_state(values, whole.values, sharded,
                {{is_wrong_where_frozen(whole.values, sharded, asked.options),
                  "You left the frozen parameters of units as they were, but load_full reads every "
                  "parameter"},
                 {wrong_in(whole.values, sharded) == beyond_first_flats(plan_of(asked)),
                  "You read only the first flat parameter of each unit"},
                 {true, "You read other slices than those that are in this rank's shard"}});
  }
  for (int rank = 0; rank < ranks_of(asked) && values.ok(); ++rank) {
    Check now("7.5", "after load_full the model computes with the loaded values", seen);
    check_evaluation(now.at_rank_of(rank, ranks_of(asked)),
                     seen.at(0, "ranks").at(static_cast<std::size_t>(rank)).at("loss"),
                     loss_of_build(asked.options, asked.seed + 1, asked.seed));
  }

  const std::string damage = asked.options.value("damage", "other");
  const std::string misfit = misfit_text(asked, damage);
  const auto misled = asked.options.value("misled", std::vector<int>{0, 1, 2, 3});
  for (int rank = 0; rank < ranks_of(asked); ++rank) {
    const Json& noted = seen.at(0, "refusing").at(static_cast<std::size_t>(rank));
    const bool is_misled = std::find(misled.begin(), misled.end(), rank) != misled.end();
    Check refused("7.5", "a file that does not fit is refused", seen);
    refused.at_rank_of(rank, ranks_of(asked))
        .equal(
            is_misled ? "what load_full threw for a file in which " + misfit
                      : "what load_full threw for a file that fits, while another rank's does not,",
            noted.at("type").get<std::string>(), std::string(is_misled ? "InputError" : "Aborted"),
            {{!is_misled && noted.at("type") == "none",
              "You did not wait: this rank found its file valid, but another rank did not"},
             {damage == "shape" && noted.at("type") == "none", too_early(damage)},
             {damage == "deeper" && noted.at("type") == "none",
              "You checked the model's own tensors only, and passed over others in the file"},
             {damage != "lacks" && noted.at("type") == "none",
              "You compared the names and not the shapes"}});
    Check same("7.5", "nothing changes on any rank unless the whole file fits on all ranks", seen);
    Assembled before, after;
    add_slices(before, noted.at("before"));
    add_slices(after, noted.at("after"));
    check_state(same.at_rank_of(rank, ranks_of(asked)), after.values, before.values,
                {{noted.at("type") != "none", too_early(damage)}});
  }
}

}  // namespace fsdp::graded
