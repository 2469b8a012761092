// Task 7: what is made once, what ends with the model, and what passes from some ranks to others.
#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

namespace fsdp::graded {

bool judge_splits(const Setup& setup) {
  bool right = true;
  const Observations& seen = run("splits", setup);
  const auto units = std::ssize(plan_of(seen.asked()).units);
  const auto counts = seen.at(0, "splits").get<std::vector<std::int64_t>>();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    Check check("7.1", "all units share one subgroup: the group is split once, or not at all",
                seen);
    check.at_rank_of(static_cast<int>(rank), static_cast<int>(counts.size()))
        .equal("the number of splits", counts[rank],
               seen.asked().options.value("group", 0) > 1 ? 1 : 0,
               {{counts[rank] == units, "You made a subgroup of its own for each unit"},
                {counts[rank] == 0,
                 "You made no subgroup, but under within(s) the units gather again in one"}});
    right = right && check.ok();
  }
  return right;
}

void judge_gone(const Setup& setup) {
  const Observations& seen = run("gone", setup);
  Names units;
  for (const WantedUnit& unit : plan_of(seen.asked()).units) units.push_back(unit.name);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("7.2",
                "after the sharded model is destroyed, none of its hooks is left on the module",
                seen);
    const Names before = seen.lines(rank, "record");
    const Names after = seen.lines(rank, "record afterwards");
    check.at(rank).equal("the order that another model's prefetcher has recorded", after, before,
                         {{after != before, "You left hooks on the root, which are still called"}});
    check.equal("the collectives of a forward of the plain module",
                std::ssize(seen.at(rank, "call")), 0);
    if (!check.ok()) continue;
    // The plain module was called when the other model had reached layers.1.
    const Names middle = seen.lines(rank, "record in the middle");
    const Names ended = {units[0], units[1]}, begun(units.begin() + 2, units.end());
    check.equal(
        "what another model's prefetcher has recorded when the plain module was called in the "
        "middle of that model's forward",
        middle, before,
        {{middle == ended,
          "You left one hook on the root: it still notifies the prefetcher of the end of a "
          "forward"}});
    const Names whole = seen.lines(rank, "record of the forward");
    check.equal("the order recorded after that forward has ended", whole, before,
                {{whole == begun,
                  "You left one hook on the root: it still notifies the prefetcher of the "
                  "beginning of a forward"}});
  }
}

void judge_gone_replicated(const Setup& setup) {
  const Observations& seen = run("gone_replicated", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("7.3",
                "after the sharded model is destroyed, the hook that casts its masters is gone too",
                seen);
    check.at(rank).that(!seen.at(rank, "cast again").get<bool>(),
                        "a forward of the plain module cast the masters of another model in the "
                        "place of the destroyed one",
                        "nothing is cast",
                        {{true, "You left the hook that casts the masters on the root"}});
  }
}

void judge_handover(const Setup& setup) {
  const Observations& seen = run("handover", setup);
  const Case& asked = seen.asked();
  const int ranks = asked.options.value("ranks", 3), heirs = asked.options.value("heirs", 2);
  Check files("7.5",
              "the folder appears complete, its parents are created, and nothing else is left",
              seen);
  files.at_rank_of(0, ranks);
  if (asked.options.value("crash", false)) {
    files.that(!seen.at(0, "there after the crash").get<bool>(),
               "a save that failed halfway left the final folder behind", "no such folder");
  }
  files.equal("the content of the parent folder", seen.lines(0, "beside"), Names{"whole"});
  files.equal("the content of the folder", seen.lines(0, "files"),
              Names{"config.json", "model.safetensors"});
  const State saved = eager(asked.options, asked.seed + 1).state;
  Assembled sharded;
  for (int rank = 0; rank < heirs; ++rank) {
    Assembled own;
    for (const Json& slice : seen.at(0, "heirs").at(static_cast<std::size_t>(rank)).at("slices")) {
      const auto path = slice.at("name").get<std::string>().substr(6);
      add_slices(is_ignored(asked.options, path) ? own : sharded, Json::array({slice}));
    }
    Check copies("7.5", "every rank reads the ignored parameters whole", seen);
    check_state(copies.at_rank_of(rank, heirs), own.values, part_of(saved, asked.options, true));
  }
  Check values("7.5", "what one number of ranks saved, any other number can load", seen);
  const State expected = part_of(saved, asked.options, false);
  check_cover(values.at_rank_of(0, heirs), sharded, names_in(expected));
  if (values.ok()) check_state(values, sharded.values, expected);
}

}  // namespace fsdp::graded
