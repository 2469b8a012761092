#include "graded/precision.h"
#include "task4/cases.h"
#include "task4/notes.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

/// ((a + b) + c) + d: not the canonical order, which from the fourth leaf on is another one.
Floats one_after_the_other(const std::vector<Floats>& leaves) {
  Floats sum = leaves.front();
  for (std::size_t i = 1; i < leaves.size(); ++i) {
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += leaves[i][e];
  }
  return sum;
}

/// In which dtypes a case has its gradients and their sums.
struct Sums {
  explicit Sums(const Case& asked)
      : dtype(reduce_dtype_of(asked)),
        gradient(precision_of(asked.options).param_dtype_for(DType::float32)),
        is_cast(dtype != gradient) {}
  /// Of as many elements as `of_float32` bytes of float32 have.
  std::int64_t bytes(std::int64_t of_float32) const {
    return of_float32 / 4 * static_cast<std::int64_t>(size_of(dtype));
  }
  /// What a unit's full gradients take before they are cast.
  std::int64_t bytes_before_cast(const UnitLayout& unit, int world_size) const {
    return full_grad_bytes(unit, world_size) / 4 * static_cast<std::int64_t>(size_of(gradient));
  }

  DType dtype, gradient;
  bool is_cast;
};

}  // namespace

bool check_started(const Observations& seen, int steps) {
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check(step_of("4.3", seen.asked()),
                "every micro-step adds its gradient to a sum or reduces it", seen);
    for (int m = 0; m < steps && check.ok(); ++m) {
      check.at(rank).accepted(fmt::format("start_reduce in micro-step {} of {}", m + 1, steps),
                              seen.at(rank, fmt::format("reduction {}", m)));
    }
    if (!check.ok()) return false;
  }
  return true;
}

void judge_start_reduce(const Setup& setup) {
  const Observations& seen = run("start_reduce", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  const int world = seen.world_size();
  const int steps = seen.asked().options.value("micro_steps", 1);
  const int group = seen.asked().options.value("per_reduction", 1);
  const Sums sums(seen.asked());
  const std::string step = step_of("4.3", seen.asked());
  if (!check_started(seen, steps)) return;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<std::int64_t> sends;  // collectives of each micro-step
    for (int m = 0; m < steps; ++m) {
      sends.push_back(std::ssize(seen.at(rank, fmt::format("collectives {}", m))));
    }
    const auto once = std::count(sends.begin(), sends.end(), 0) + 1 == steps && sends.back() > 0;
    bool all_hold = true;
    for (int m = 0; m < steps; ++m) {
      const bool reduces = (m + 1) % group == 0;
      const std::string at = std::to_string(m);
      Check one(step,
                reduces
                    ? "a gradient is reduced with one reduce-scatter per trainable flat parameter"
                    : "under no_sync only the last micro-step of a group reduces",
                seen);
      const auto started = reductions_in(seen.at(rank, "collectives " + at));
      std::vector<std::string> expected, events;
      if (reduces) expected = reductions_of(unit, world, sums.dtype);
      if (reduces) events = for_each_flat(unit, "issue reduce_scatter " + unit.name + "/gradient");
      one.at(rank, unit.name)
          .equal(fmt::format("what micro-step {} of {} started", m + 1, steps), started, expected,
                 {{started.size() > expected.size() && !reduces,
                   "You reduced in a micro-step that is not the last of its group: under no_sync "
                   "it only adds"},
                  {reduces && once && m + 1 < steps,
                   fmt::format("You reduced only in the last micro-step of the step: a group has L "
                               "= {} micro-steps, and the step has M = {}",
                               group, steps)},
                  {sums.is_cast && reduces && started == reductions_of(unit, world, sums.gradient),
                   fmt::format("You reduced the gradient as it is, in {}. Cast full_grad() to "
                               "reduce_dtype() first, and sum and send what to_reduce_dtype() "
                               "returns: from there on everything is {}",
                               name_of(sums.gradient), name_of(sums.dtype))},
                  {!started.empty() && started.front().starts_with("all_reduce"),
                   "You used an all-reduce: it moves twice the bytes, and every rank holds the "
                   "whole sum"}});
      one.equal("what was gathered meanwhile", gathers_in(seen.at(rank, "collectives " + at)), {},
                {{true, "You gathered parameters: a reduction needs only the gradient"}});
      all_hold = all_hold && one.ok();
      Check flight(step,
                   "start_reduce starts the reduction and does not wait, so that the next unit "
                   "computes meanwhile",
                   seen);
      std::vector<std::string> transfers, leaves_of;
      for (const std::string& line : seen.lines(rank, "events " + at)) {
        if (!line.starts_with("alloc ")) {
          transfers.push_back(line);
        } else if (line.starts_with("alloc reduce_scatter ")) {
          leaves_of.push_back(line);
        }
      }
      flight.at(rank, unit.name).equal("the trace", transfers, events);
      Check noted(step, "reducing_ points to the unit whose reduction is in flight, if any", seen);
      const std::string in_flight = reduces && !unit.trainable().empty() ? unit.name : "";
      const std::string reducing = seen.text(rank, "reducing " + at);
      noted.at(rank, unit.name)
          .equal("the unit that reducing_ points to", reducing, in_flight,
                 {{in_flight.empty() && !reducing.empty(),
                   unit.trainable().empty()
                       ? "You set reducing_ for a frozen unit, which sends nothing"
                       : "You set reducing_ in a micro-step that only adds: nothing is in flight"},
                  {!in_flight.empty() && reducing.empty(),
                   "You did not set reducing_: nothing will finish this reduction"}});
      Check room(step,
                 "the shard is reduced into a new leaf of n elements, and sums of micro-steps are "
                 "kept like the carries of a binary counter",
                 seen);
      const std::int64_t full = sums.bytes(full_grad_bytes(unit, world));
      const std::int64_t shard = full / world;
      const bool is_copy = sums.is_cast && group == 1;
      const std::int64_t leaves = seen.bytes(rank, "after " + at, "REDUCE_SCATTER");
      const std::int64_t more =
          seen.bytes(rank, "after " + at, "total") - seen.bytes(rank, "before " + at, "total");
      room.at(rank, unit.name)
          .equal("REDUCE_SCATTER bytes", leaves, reduces ? shard + (is_copy ? full : 0) : 0,
                 {{world > 1 && !is_copy && leaves == full,
                   "The leaf has room for P elements: a rank keeps n"},
                  {is_copy && leaves == shard,
                   "The copy that the cast makes counts as another kind of memory: cast in an "
                   "AllocationScope with MemoryKind::reduce_scatter, like the leaf"},
                  {!sums.is_cast && group == 1 && leaves == 0 && more == shard,
                   "You allocated the leaf as another kind of memory: use an AllocationScope with "
                   "MemoryKind::reduce_scatter"}});
      const std::int64_t whole = seen.bytes(rank, "after " + at, "UNSHARDED_GRAD");
      const std::int64_t sent = reduces ? (is_copy ? 0 : 1) : partials((m + 1) % group);
      room.equal(fmt::format("UNSHARDED_GRAD bytes after micro-step {} of {}", m + 1, steps), whole,
                 full * sent,
                 {{sums.is_cast && whole - full * sent == sums.bytes_before_cast(unit, world),
                   "You did not free the full gradient: what is summed is its copy in "
                   "reduce_dtype(), so the full gradient is not needed anymore"},
                  {!reduces && whole == full && sent > 1,
                   fmt::format("You added the micro-steps one after the other: after {} of them "
                               "the canonical order keeps {} partial sums apart",
                               (m + 1) % group, sent)},
                  {sums.is_cast && !reduces && whole == sums.bytes_before_cast(unit, world) * sent,
                   fmt::format("You added micro-steps in the dtype of the gradient, {}. Cast "
                               "full_grad() to reduce_dtype(), {}, before you push it to `full`",
                               name_of(sums.gradient), name_of(sums.dtype))}});
      // A trace shows only what has an owner.
      const std::size_t at_least = reduces ? unit.trainable().size() * (is_copy ? 2 : 1) : 0;
      Check owner(step, "what is reduced counts as REDUCE_SCATTER of its unit", seen);
      owner.at(rank, unit.name)
          .equal("what was allocated for the reduction", leaves_of,
                 std::vector<std::string>(std::max(leaves_of.size(), at_least),
                                          "alloc reduce_scatter " + unit.name),
                 {{room.ok() && leaves_of.size() < at_least,
                   "The leaf has no owner, or the copy that the cast makes: give the "
                   "AllocationScope an Owner with the name of the unit"},
                  {true, "You named another owner: its first name is that of the unit"}});
    }
    const auto flats = unit.trainable();
    const auto reductions = static_cast<std::size_t>(steps / group);
    for (std::size_t k = 0; all_hold && k < flats.size() * reductions; ++k) {
      const std::size_t i = k % flats.size();
      const int last = (static_cast<int>(k / flats.size()) + 1) * group;
      std::vector<Floats> ranks, last_only, in_turn;
      for (int r = 0; r < world; ++r) {
        std::vector<Floats> own;
        for (int m = last - group; m < last; ++m) {
          own.push_back(filled_full_grad(seen.asked(), flats[i], r, m));
        }
        last_only.push_back(own.back());
        in_turn.push_back(one_after_the_other(own));
        ranks.push_back(tree(own, sums.dtype));
      }
      const Floats expected = shard_of(tree(ranks, sums.dtype), rank, world);
      const Floats leaf = seen.floats(rank, key_of(fmt::format("leaf {}", last - 1), i));
      const auto my = [&](const Floats& whole) { return shard_of(whole, rank, world); };
      const bool many = world > 1;
      Check sum(step,
                "the leaf is the sum over the ranks, after each rank has added its own micro-steps",
                seen);
      sum.at(rank, unit.name)
          .bits("the leaf", leaf, expected, -1,
                {{many && same(leaf, times(expected, 1.0F / static_cast<float>(world))),
                  "The collective averages: let it sum, because step 4.7 divides once"},
                 {many && same(leaf, my(ranks[static_cast<std::size_t>(rank)])),
                  "The leaf is this rank's own gradient: nothing was reduced"},
                 {group > 3 && same(leaf, my(tree(in_turn))),
                  fmt::format("You added the micro-steps of a rank one after the other: with L = "
                              "{} the canonical order adds (0 + 1) + (2 + 3)",
                              group)},
                 {group > 1 && same(leaf, my(tree(last_only))),
                  "The leaf has the gradient of the last micro-step only: add those of the whole "
                  "group"}});
    }
  }
}

void judge_start_reduce_peak(const Setup& setup) {
  const Observations& seen = run("start_reduce_peak", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  const int steps = seen.asked().options.value("micro_steps", 1);
  const int group = seen.asked().options.value("per_reduction", 1);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("4.3",
                "a reduction allocates a leaf of n elements and nothing else, and adding "
                "micro-steps frees more than that",
                seen);
    for (int m = 0; m < steps; ++m) {
      const bool reduces = (m + 1) % group == 0;
      const std::string key = fmt::format("peak {}", m);
      check.at(rank, unit.name)
          .equal(
              fmt::format("the peak of memory in micro-step {} of {}, above what was held before",
                          m + 1, steps),
              grown(seen, rank, key),
              reduces && group == 1 ? shard_grad_bytes(unit, seen.world_size()) : 0);
      check_heap(check, seen, rank, key);
    }
  }
}

void judge_finish_reduce_peak(const Setup& setup) {
  const Observations& seen = run("finish_reduce_peak", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("4.4",
                "finishing a reduction allocates nothing, because its leaf moves into the sum",
                seen);
    for (int m = 0; m < seen.asked().options.value("micro_steps", 1); ++m) {
      const std::string key = fmt::format("peak {}", m);
      check.at(rank, unit.name)
          .equal(
              fmt::format("the peak of memory in micro-step {}, above what was held before", m + 1),
              grown(seen, rank, key), 0);
      check_heap(check, seen, rank, key);
    }
  }
}

void judge_finish_reduce_in_mesh(const Setup& setup) {
  const Observations& seen = run("finish_reduce", setup);
  const auto flats = units_of(seen.asked()).front().trainable();
  const int shards = shards_of(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    for (std::size_t i = 0; i < flats.size(); ++i) {
      std::vector<Floats> micro_steps;
      for (int m = 0; m < seen.asked().options.value("micro_steps", 1); ++m) {
        std::vector<Floats> ranks;
        for (int r = 0; r < seen.world_size(); ++r) {
          ranks.push_back(filled_full_grad(seen.asked(), flats[i], r, m));
        }
        micro_steps.push_back(tree(ranks));
      }
      Check check("4.4", "in a mesh a leaf is summed over the replicas after it was pushed", seen);
      check.at(rank, units_of(seen.asked()).front().name)
          .bits("the sum", seen.floats(rank, key_of("sum", i)),
                shard_of(tree(micro_steps), rank % shards, shards));
    }
  }
}

void judge_finish_failed(const Setup& setup) {
  const Observations& seen = run("finish_failed", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("4.4", "a failure of another rank is reported, not summed up", seen);
    check.at(rank, units_of(seen.asked()).front().name)
        .that(seen.at(rank, "finish").at("type") != "none",
              "another rank failed during the reduction, and finish_reduce returned as if it had "
              "finished",
              "what Work::wait() throws is thrown",
              {{true,
                "You destroyed or dropped a Work instead of waiting for it: a destructor cannot "
                "throw, so the leaf is kept although nothing was reduced into it"}});
  }
}

void judge_finish_reduce(const Setup& setup) {
  const Observations& seen = run("finish_reduce", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  const int world = seen.world_size();
  const int steps = seen.asked().options.value("micro_steps", 1);
  const int group = seen.asked().options.value("per_reduction", 1);
  for (int rank = 0; rank < world; ++rank) {
    Check idle("4.4", "without a reduction in flight there is nothing to finish", seen);
    idle.at(rank, unit.name)
        .equal("what a call before any reduction did", seen.lines(rank, "nothing in flight"), {});
    for (int m = 0; m < steps; ++m) {
      const bool reduces = (m + 1) % group == 0;
      const int groups = (m + 1) / group;
      const std::string at = std::to_string(m), after = "after " + at;
      Check waits("4.4", "a shard can be read only after its reduction has finished", seen);
      std::vector<std::string> events;
      if (reduces) events = for_each_flat(unit, "wait reduce_scatter " + unit.name + "/gradient");
      const auto observed = seen.lines(rank, "events " + at);
      waits.at(rank, unit.name)
          .equal("the trace", observed, events,
                 {{seen.lines(rank, "started " + at).empty() && observed.empty(),
                   "Nothing was in flight: step 4.3 started no reduction in this micro-step"},
                  {seen.lines(rank, "started " + at) ==
                           for_each_flat(unit, "issue reduce_scatter " + unit.name + "/gradient") &&
                       observed.empty(),
                   "You did not wait for the reduction"}});
      waits.equal("the number of collectives in reductions_", seen.number(rank, "works " + at), 0,
                  {{true, "You did not clear reductions_: it grows with every reduction"}});
      waits.equal("the unit whose reduction is in flight", seen.text(rank, "reducing " + at), "");
      Check frees("4.4", "the full gradient is freed as soon as its reduction has finished", seen);
      const std::int64_t left = seen.bytes(rank, after, "UNSHARDED_GRAD");
      frees.at(rank, unit.name)
          .equal(fmt::format("UNSHARDED_GRAD bytes after micro-step {}", m + 1), left,
                 full_grad_bytes(unit, world) * partials((m + 1) % group),
                 {{reduces && left == seen.number(rank, "full gradients " + at),
                   "You did not free the full gradient"},
                  {reduces && left == seen.number(rank, "inputs " + at),
                   "You freed the full gradient, but not what was sent: with L > 1 that is the sum "
                   "of micro-steps"}});
      Check keeps("4.4", "every leaf is pushed to the sharded sum of its flat parameter", seen);
      for (const std::int64_t leaves : seen.at(rank, "leaves " + at)) {
        keeps.at(rank, unit.name)
            .equal("the number of leaves of the sum", leaves, groups,
                   {{reduces && leaves == 0, "You did not push the leaf to `sharded`"},
                    {reduces && leaves == 1 && groups > 1,
                     "The sum has one leaf at most: you overwrote what was reduced before, or "
                     "added to a running sum, whose order is not the canonical one"}});
      }
      keeps.equal("SHARDED_GRAD bytes", seen.bytes(rank, after, "SHARDED_GRAD"),
                  shard_grad_bytes(unit, world) * partials(groups));
      keeps.equal("REDUCE_SCATTER bytes", seen.bytes(rank, after, "REDUCE_SCATTER"), 0);
      idle.equal("what a second call did", seen.lines(rank, "again " + at), {});
    }
    const auto flats = unit.trainable();
    for (std::size_t i = 0; i < flats.size(); ++i) {
      std::vector<Floats> reductions;
      for (int first = 0; first < steps; first += group) {
        std::vector<Floats> ranks;
        for (int r = 0; r < world; ++r) {
          std::vector<Floats> own;
          for (int m = first; m < first + group; ++m) {
            own.push_back(filled_full_grad(seen.asked(), flats[i], r, m));
          }
          ranks.push_back(tree(own));
        }
        reductions.push_back(tree(ranks));
      }
      if (!seen.has(rank, key_of("sum", i))) continue;  // no leaf: see above
      const Floats sum = seen.floats(rank, key_of("sum", i));
      Check keeps("4.4", "reduced shards are summed over the micro-steps, in the canonical order",
                  seen);
      keeps.at(rank, unit.name)
          .bits("the sum", sum, shard_of(tree(reductions), rank, world), -1,
                {{steps > group && same(sum, shard_of(reductions.back(), rank, world)),
                  "You overwrote the sum of the earlier micro-steps"}});
    }
  }
}

}  // namespace fsdp::graded
