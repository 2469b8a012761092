#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace fsdp::graded {
namespace {

/// Pieces that several ranks gave: of what is sharded, and of each rank whatever is replicated.
struct Given {
  Assembled sharded;
  std::vector<State> replicated;
  std::string wrong;  ///< a replicated slice that fits nowhere
};

Given given_by(const Json& options, const std::vector<Json>& slices_of_ranks) {
  Given given;
  for (const Json& slices : slices_of_ranks) {
    Assembled own;
    for (const Json& slice : slices) {
      const auto name = slice.at("name").get<std::string>();
      const bool is_whole = is_ignored(options, name.substr(name.find('/') + 1));
      add_slices(is_whole ? own : given.sharded, Json::array({slice}));
    }
    if (!own.wrong.empty()) given.wrong = own.wrong;
    given.replicated.push_back(std::move(own.values));
  }
  return given;
}

/// The names of what has optimizer state, and of that state.
Names with_state(const State& state) {
  Names names;
  for (const auto& [name, values] : state) {
    const std::string path = name.substr(name.find('/') + 1);
    if (state.contains("exp_avg/" + path)) names.push_back(name);
  }
  return names;
}

/// `only_rank_0`: what is said if the replicated values are right there and nowhere else.
void check_given(Check& check, const Given& given, const State& right, const Json& options,
                 const std::string& only_rank_0 = "") {
  const State sharded = part_of(right, options, false), whole = part_of(right, options, true);
  const int ranks = static_cast<int>(given.replicated.size());
  const bool is_momentum = options.value("optimizer", "adamw") == "momentum";
  const auto is_right = [&](const State& copies) { return copies == whole; };
  const bool is_only_rank_0 =
      !only_rank_0.empty() && is_right(given.replicated.front()) &&
      std::none_of(given.replicated.begin() + 1, given.replicated.end(), is_right);
  check.at_rank_of(0, ranks);
  std::vector<State> all = given.replicated;
  all.push_back(given.sharded.values);
  for (const State& each : all) {
    for (const auto& [name, values] : each) {
      check.that(right.contains(name), "there is a slice of " + name,
                 "slices of param/<path> and <state>/<path>",
                 {{true, "You gave a slice a name that no tensor of the state has"}});
      if (!check.ok()) return;
    }
  }
  check.that(given.wrong.empty(), given.wrong, "slices within their tensors",
             {{true, "You let a slice of what is ignored begin elsewhere than at 0"}});
  check.that(!given.sharded.values.empty() || sharded.empty(), "no slice is of what is sharded",
             "those of ShardedOptimizer",
             {{true, "You left out the slices of the sharded optimizer"}});
  if (check.ok()) check_frozen(check, given.sharded.values, sharded, options);
  if (!check.ok()) return;
  check_cover(check, given.sharded, names_in(sharded));
  if (check.ok()) check_state(check, given.sharded.values, sharded);
  for (std::size_t rank = 0; rank < given.replicated.size(); ++rank) {
    check.at_rank_of(static_cast<int>(rank), ranks)
        .equal("the replicated tensors", names_in(given.replicated[rank]), names_in(whole),
               {{is_momentum && names_in(given.replicated[rank]) == parameters_in(whole),
                 "You left out the optimizer state of what is ignored, whose name depends on the "
                 "optimizer: here it is momentum_buffer"},
                {!whole.empty() && names_in(given.replicated[rank]) == parameters_in(whole),
                 "You left out the optimizer state of what is ignored"},
                {names_in(given.replicated[rank]) == with_state(whole),
                 "You left out a frozen parameter; it has no optimizer state, but its values are "
                 "saved"}});
    if (check.ok()) {
      check_state(check, given.replicated[rank], whole, {{is_only_rank_0, only_rank_0}});
    }
  }
}

std::vector<Json> of_ranks(const Json& noted, const char* key) {
  std::vector<Json> all;
  for (const Json& each : noted) all.push_back(each.at(key));
  return all;
}

// Only rank 0 makes and publishes the folder: what it finds there does not depend on the others.
void check_barriers(const Observations& seen, int ranks) {
  Check barriers("7.6",
                 "three barriers mark that the folder exists, that every file is written, and "
                 "that the checkpoint can be loaded",
                 seen);
  const bool failed = !seen.text(0, "saving failed").empty();  // then some moments never came
  bool met_begun = false, met_written = false, has_written = false, has_published = false;
  for (const Json& moment : seen.at(0, "moments").at(0)) {
    has_published = moment.at("published").get<bool>();
    has_written = moment.at("written").get<bool>() || has_published;
    met_begun = met_begun || (moment.at("begun").get<bool>() && !has_written);
    met_written = met_written || (has_written && !has_published);
  }
  barriers.at_rank_of(0, ranks).that(
      met_begun || (failed && !has_written),
      "the ranks do not wait for the folder before they write into it",
      "a barrier between begin() and write_slices()");
  barriers.that(met_written || (failed && !has_published),
                "rank 0 publishes without waiting for the other ranks' files",
                "a barrier between write_slices() and publish()");
  barriers.that(has_published || failed,
                "rank 0 publishes after the last collective, so the others return before the "
                "checkpoint exists",
                "a barrier after publish()");
}

/// `before`: what had been loaded before the training that was saved; -1 if nothing.
void check_counts(const Observations& seen, const Json& noted, int rank, int ranks, int steps,
                  int before = -1) {
  Check count(
      "7.6", "the step count continues after a load, because AdamW's bias correction depends on it",
      seen);
  const auto observed = noted.at("steps").get<std::int64_t>();
  count.at_rank_of(rank, ranks)
      .equal("the step count of the optimizer of the shards, after loading,", observed, steps,
             {{observed == before,
               "You kept the count in the metadata that the caller passed in, and not the "
               "optimizer's"},
              {observed == 0, "You did not restore the count"}});
  if (noted.at("replicated steps").is_null()) return;
  count.equal("the step count of the optimizer of ignored parameters, after loading,",
              noted.at("replicated steps").get<std::int64_t>(), steps,
              {{observed == steps, "You restored the count in only one of the two optimizers"}});
}

/// What a load that reads too early says, by damage.
std::string read_too_early(const std::string& damage) {
  if (damage == "vocabulary") {
    return "You read sharded tensors before the ignored ones had been checked";
  }
  if (damage == "count") return "You read tensors before \"optimizer_steps\" had been checked";
  return "You read tensors before every rank had found the folder valid";
}

/// What was done to the checkpoint, and who wrote and loads it.
std::string damage_text(const Case& asked) {
  const int ranks = asked.options.value("ranks", 4), heirs = asked.options.value("heirs", 2);
  const std::string damage = asked.options.value("damage", "bit");
  const bool is_of_a_file =
      damage == "bit" || damage == "cut" || damage == "missing" || damage == "mixed";
  const std::string place =
      is_of_a_file ? fmt::format(" in file {}", asked.options.value("file", 2)) : "";
  return fmt::format("the damage ({}){} of a checkpoint that {} ranks wrote and {} load", damage,
                     place, ranks, heirs);
}

/// Why nobody finds a flipped bit, from the files in which the same damage is found.
std::vector<Cause> causes_of_blindness(const Observations& seen) {
  if (!seen.has(0, "files in which it is found")) return {};
  const auto found = seen.at(0, "files in which it is found").get<std::vector<int>>();
  std::vector<int> own(static_cast<std::size_t>(seen.asked().options.value("heirs", 2)));
  std::iota(own.begin(), own.end(), 0);
  return {
      {found.empty(), "You compared no file with its checksums, so the damage is found in no file"},
      {found == own, fmt::format("You verify only one file on each rank, so the same damage is "
                                 "found in the files [{}] only",
                                 fmt::join(found, ", "))},
      {true,
       fmt::format("You did not verify all files: the same damage is found in the files [{}] only",
                   fmt::join(found, ", "))}};
}

Json without_ignored(Json options) {
  options.erase("ignored");
  return options;
}

/// A slice is flat, whatever the shape of its tensor.
void check_flat(const Observations& seen, int rank) {
  Check check("7.6", "a slice is a flat view of the live state, and knows the shape of the whole",
              seen);
  check.at(rank);
  for (const Json& slice : seen.at(rank, "all")) {
    const auto shape = slice.at("given as").get<Shape>();
    check.that(shape.size() == 1,
               fmt::format("the values of the slice {} have the shape {}",
                           slice.at("name").get<std::string>(), fsdp::to_string(shape)),
               "one dimension",
               {{shape == slice.at("shape").get<Shape>(),
                 "You passed the tensor in its own shape: flatten it"}});
    if (!check.ok()) return;
  }
}

/// What is saved is float32 in these models, whatever they compute in.
void check_masters(const Observations& seen, int rank) {
  Names others;
  bool is_frozen_only = true;
  for (const Json& slice : seen.at(rank, "all")) {
    if (slice.at("dtype") == "float32") continue;
    others.push_back(slice.at("name").get<std::string>());
    is_frozen_only &=
        is_frozen(seen.asked().options, others.back().substr(others.back().find('/') + 1));
  }
  Check check("7.6", "a checkpoint holds the masters, not what the model reads", seen);
  check.at(rank).equal("the slices that are not float32", others, {},
                       {{is_frozen_only,
                         "You saved the copies of frozen ignored parameters in param_dtype, but "
                         "what is frozen has masters too"},
                        {true, "You saved the copies in param_dtype and not the masters"}});
}

}  // namespace

void judge_slices(const Setup& setup) {
  const Observations& seen = run("slices", setup);
  const Case& asked = seen.asked();
  const int steps = asked.options.value("steps", 2);
  const Single& right = single(asked.options, asked.seed,
                               asked.options.value("micro_batches", asked.world_size), steps);
  std::vector<Json> all, sharded;
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    all.push_back(seen.at(rank, "all"));
    sharded.push_back(seen.at(rank, "sharded"));
    check_masters(seen, rank);
    check_flat(seen, rank);
  }
  Check check("7.6",
              "the slices of all ranks make up the training state, and ignored parameters are "
              "included whole, with their optimizer state, if the caller requests them",
              seen);
  check_given(check, given_by(asked.options, all), right.state, asked.options);
  Check without("7.6", "ignored parameters are left out unless the caller requests them", seen);
  for (std::size_t rank = 0; rank < sharded.size(); ++rank) {
    const Given own = given_by(asked.options, {sharded[rank]});
    without.at(static_cast<int>(rank))
        .equal("the replicated tensors among the slices", names_in(own.replicated.front()), {},
               {{true, "You added what is ignored although with_replicated is false"}});
  }
}

void judge_resume(const Setup& setup) {
  const Observations& seen = run("resume", setup);
  const Case& asked = seen.asked();
  const int ranks = asked.options.value("ranks", 4), heirs = asked.options.value("heirs", 2);
  const int half = asked.options.value("half", 1), steps = asked.options.value("steps", 2);
  const int number = asked.options.value("number", half);
  const std::string name = fmt::format("step_{}", number);

  check_barriers(seen, ranks);
  const std::string failure = seen.text(0, "saving failed");
  Check saved("7.6", "every rank writes its file into the folder that rank 0 created", seen);
  saved.at_rank_of(0, ranks).that(failure.empty(), failure, "a checkpoint");
  if (!saved.ok()) return;

  Check files("7.6", "a checkpoint is one folder with one file per rank, and `latest` names it",
              seen);
  files.at_rank_of(0, ranks).equal("the content of the parent folder", seen.lines(0, "listing"),
                                   Names{"latest", name});
  files.equal("`latest`", seen.text(0, "latest"), name);
  const auto count = std::ssize(seen.at(0, "files"));
  files.equal(
      "the number of files in it", count, ranks,
      {{count == 1 && ranks > 1,
        "You wrote the file of one rank only, so the shards of the others are lost"},
       {count > ranks, "You left files of a save that crashed among them, which begin() removes"}});
  if (!files.ok()) return;  // it cannot be loaded
  for (int rank = 0; rank < ranks; ++rank) {
    Check lean("7.6", "saving writes views of existing tensors and allocates nothing", seen);
    const Json& noted = seen.at(0, "savers").at(static_cast<std::size_t>(rank));
    lean.at_rank_of(rank, ranks)
        .equal("the peak of memory while saving, above what was held before",
               noted.at("peak").get<std::int64_t>(), 0,
               {{true, "You saved copies: a slice is a view of the live tensor"}});
  }

  const std::string refusal = seen.text(0, "loading failed");
  Check open("7.6", "what was saved at one W loads at another", seen);
  const bool is_twice = refusal.find("has a slice at element 0 where") != std::string::npos;
  const bool is_unread = refusal.find("would not be read") != std::string::npos;
  const Names replicated = plan_of(asked).replicated;
  const bool is_of_ignored =
      std::any_of(replicated.begin(), replicated.end(),
                  [&](const std::string& path) { return refusal.find(path) != std::string::npos; });
  open.at_rank_of(0, heirs).that(
      refusal.empty(), refusal, "the training state",
      {{is_of_ignored && is_unread,
        "You saved the optimizer state of what is ignored, but state_slices() lists none of it "
        "before the first step, so a load cannot read it"},
       {is_of_ignored && !is_twice, "You saved what is ignored on no rank"},
       {is_twice && !asked.options.value("ignored", Names{}).empty(),
        "You saved what is ignored on more than one rank"}});
  if (!open.ok()) return;

  const Json& heirs_noted = seen.at(0, "heirs");
  for (int rank = 0; rank < heirs; ++rank) {
    const Json& metadata = heirs_noted.at(static_cast<std::size_t>(rank)).at("metadata");
    Check check("7.6", "loading returns the metadata, with the step count", seen);
    check.at_rank_of(rank, heirs)
        .equal("\"optimizer_steps\"", metadata.value("optimizer_steps", "(missing)"),
               std::to_string(half),
               {{metadata.value("optimizer_steps", "") == std::to_string(number),
                 "You saved the number of the folder, which the caller chooses freely"}});
    check.equal("the caller's own entry \"note\"", metadata.value("note", "(missing)"),
                std::string("from a test"),
                {{true, "You saved or returned your own entry of the metadata and not the rest"}});
    const Json& noted = heirs_noted.at(static_cast<std::size_t>(rank));
    check_counts(seen, noted, rank, heirs, half);
    Check padding("7.6", "after loading, padding is zero in shards and optimizer state", seen);
    const double largest = noted.at("padding").get<double>();
    padding.at_rank_of(rank, heirs)
        .that(largest == 0, fmt::format("padding holds {:.9g}", largest), "zero");
  }
  const int micro_batches = asked.options.at("micro_batches").get<int>();
  const Single& then = single(asked.options, asked.seed, micro_batches, half);
  Check loaded("7.6", "what was saved at one W loads at another", seen);
  check_given(loaded, given_by(asked.options, of_ranks(heirs_noted, "loaded")), then.state,
              asked.options,
              "You loaded the ignored parameters on rank 0 only, but every rank loads them, with "
              "their optimizer state");
  for (int rank = 0; rank < heirs; ++rank) {
    Check now("7.6", "after loading, the model computes with the loaded values", seen);
    check_evaluation(now.at_rank_of(rank, heirs),
                     heirs_noted.at(static_cast<std::size_t>(rank)).at("loss"),
                     then.evaluations.back());
  }
  if (!loaded.ok()) return;
  const Single& right = single(asked.options, asked.seed, micro_batches, steps);
  Check check("7.6", "training continues as if it had never been interrupted", seen);
  check_given(check, given_by(asked.options, of_ranks(heirs_noted, "all")), right.state,
              asked.options);
  if (!asked.options.value("again", false)) return;
  const Json& again = seen.at(0, "again");
  for (int rank = 0; rank < ranks; ++rank) {
    check_counts(seen, again.at(static_cast<std::size_t>(rank)), rank, ranks, steps, half);
  }
  Check twice("7.6", "a state that was loaded, trained and saved again loads again", seen);
  check_given(twice, given_by(asked.options, of_ranks(again, "all")), right.state, asked.options);
}

void judge_damaged(const Setup& setup) {
  const Observations& seen = run("damaged", setup);
  const Case& asked = seen.asked();
  const int heirs = asked.options.value("heirs", 2);
  const std::string damage = asked.options.value("damage", "bit");
  Check whole("7.6", "an intact checkpoint loads", seen);
  const Single& right =
      single(asked.options, asked.seed, asked.options.at("micro_batches").get<int>(), 1);
  for (int rank = 0; rank < heirs; ++rank) {
    const Json& noted = seen.at(0, "whole").at(static_cast<std::size_t>(rank));
    whole.at_rank_of(rank, heirs)
        .equal("what load_checkpoint threw",
               noted.value("what", noted.at("type").get<std::string>()), std::string("none"));
  }
  check_given(whole, given_by(asked.options, of_ranks(seen.at(0, "whole"), "after")), right.state,
              asked.options);

  Check refused("7.6", "a checkpoint that is damaged or belongs to another model is refused", seen);
  const auto types = of_ranks(seen.at(0, "broken"), "type");
  const bool anybody = std::find(types.begin(), types.end(), "InputError") != types.end();
  std::vector<Cause> causes = causes_of_blindness(seen);
  causes.push_back({damage == "deeper",
                    "You did not check what would be left unread: here, the tensors of the other "
                    "model's last block"});
  refused.at_rank_of(0, heirs).that(anybody, "no rank found " + damage_text(asked), "an InputError",
                                    causes);
  for (int rank = 0; rank < heirs; ++rank) {
    const Json& noted = seen.at(0, "broken").at(static_cast<std::size_t>(rank));
    refused.at_rank_of(rank, heirs)
        .that(noted.at("type") != "none", "the checkpoint was loaded",
              "an InputError, or Aborted along with the other ranks",
              {{anybody,
                "You did not wait for the verdict of the other ranks, one of which found the "
                "damage"}});
    Check same("7.6", "all ranks check everything before any rank changes anything", seen);
    const Json options = without_ignored(asked.options);
    Assembled before, after;
    add_slices(before, noted.at("before"));
    add_slices(after, noted.at("after"));
    check_state(same.at_rank_of(rank, heirs), after.values, before.values,
                {{true, read_too_early(damage)}});
    same.equal("the optimizer's step count", noted.at("steps").get<std::int64_t>(), 0);
    if (noted.at("replicated steps").is_null()) continue;
    same.equal("the step count of the optimizer of ignored parameters",
               noted.at("replicated steps").get<std::int64_t>(), 0);
  }
}

}  // namespace fsdp::graded
