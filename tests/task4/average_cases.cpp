#include "graded/precision.h"
#include "task4/cases.h"
#include "task4/notes.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::graded {

namespace {

Floats in_two_steps(Floats sum, int world, int steps) {
  return times(times(std::move(sum), static_cast<float>(1.0 / world)),
               static_cast<float>(1.0 / steps));
}

Floats in_dtype(Floats values, DType dtype) {
  for (float& value : values) value = rounded(value, dtype);
  return values;
}

/// The gradients of a rank after `step`, every bit.
void check_averages(const Observations& seen, int rank, int step, const Gradients& gradients) {
  const Json& options = seen.asked().options;
  const std::string named = step_of("4.7", seen.asked());
  const int steps = options.value("micro_steps", 1), world = seen.world_size();
  const int shards = shards_of(seen.asked()), replicas = world / shards;
  const int per_reduction = options.value("per_reduction", 1);
  const int j = gradients.micro_batches();
  const double scale = options.value("loss_scale", 1.0);
  const auto factor = static_cast<float>(1.0 / j / scale);
  for (const UnitLayout& unit : units_of(seen.asked())) {
    const auto flats = unit.trainable();
    for (std::size_t i = 0; i < flats.size(); ++i) {
      const std::string key = fmt::format("step {} {}.{}", step, unit.name, i);
      Check values(named, "a gradient is the sum over all micro-batches, multiplied by 1/J once",
                   seen);
      values.at(rank, unit.name);
      if (!seen.has(rank, key)) {
        values.that(false, "shard_grad is undefined", "a gradient", {});
        continue;
      }
      const auto my = [&](const Floats& whole) { return shard_of(whole, rank % shards, shards); };
      const Floats expected = my(gradients.of(flats[i], -1, factor));
      const Floats sum = my(gradients.of(flats[i]));
      const Floats observed = seen.floats(rank, key);
      const std::string last = fmt::format("step {} {}.{}", step - 1, unit.name, i);
      const bool adds = options.value("kept", false) && seen.has(rank, last) &&
                        observed == tree<float>({seen.floats(rank, last), expected});
      const auto is_sum_times = [&](double by) {
        return observed == my(gradients.of(flats[i], -1, static_cast<float>(by)));
      };
      values.bits(
          "shard_grad", observed, expected, valid_of(flats[i], rank % shards, shards),
          {{replicas > 1 && is_sum_times(1.0 / j / scale / replicas),
            "You divided by the number of replicas twice: begin_step has multiplied "
            "plan_.loss_scale by it"},
           {replicas > 1 && is_sum_times(1.0 * replicas / j / scale),
            "You left out the number of replicas: begin_step has multiplied plan_.loss_scale by "
            "it"},
           {scale != 1 && is_sum_times(1.0 / j),
            "You did not divide by plan_.loss_scale: the caller has multiplied the loss by it"},
           {scale != 1 && is_sum_times(1.0 / j / scale / scale),
            "You divided by plan_.loss_scale twice"},
           {observed != expected &&
                observed == in_dtype(times(sum, factor), reduce_dtype_of(seen.asked())),
            "You multiplied by 1/J in the dtype of the sums, which rounds the average: cast the "
            "sum to the dtype of the shard first"},
           {steps > 1 && world > 1 && observed == in_two_steps(sum, world, steps),
            "You multiplied by 1/W and then by 1/M: that is two roundings, where 1/J has one"},
           {adds, "You added to the gradient of the previous step, which was kept: replace it"},
           {steps > 1 && world == 1 && observed == sum,
            "You did not divide by the number of micro-steps"},
           {steps > 1 && world > 1 && observed == sum,
            "This is the sum itself: you did not divide by J"},
           {per_reduction > 1 && is_sum_times(1.0 * per_reduction / j),
            fmt::format("You divided by the number of reductions, W * M / L with L = {}, but "
                        "every micro-batch counts{}",
                        per_reduction,
                        per_reduction == steps ? "; or you divided by W and not by M" : "")},
           {steps > 1 && world > 1 && is_sum_times(1.0 / world), "You divided by W, but not by M"},
           {steps > 1 && world > 1 && is_sum_times(1.0 / steps),
            "You divided by M, but not by W"}});
    }
  }
}

}  // namespace

void judge_finish(const Setup& setup) {
  const Observations& seen = run("finish", setup);
  const Json& options = seen.asked().options;
  const std::string named = step_of("4.7", seen.asked());
  const int steps = options.value("micro_steps", 1), world = seen.world_size();
  const auto units = units_of(seen.asked());
  const int per_reduction = options.value("per_reduction", 1);
  std::int64_t shard = 0;
  for (const UnitLayout& unit : units) shard += shard_grad_bytes(unit, world);
  const DType dtype = reduce_dtype_of(seen.asked());
  const std::int64_t summed = shard / 4 * static_cast<std::int64_t>(size_of(dtype));
  for (int rank = 0; options.value("extra", false) && rank < world; ++rank) {
    Check many(named, "a step ends after exactly M backwards", seen);
    many.at(rank).refused(
        fmt::format("finish_gradients after {} of {} micro-steps", steps + 1, steps),
        seen.at(rank, "after too many"), "Error",
        {std::to_string(steps + 1), std::to_string(steps)});
  }
  for (int step = 0; step < options.value("steps", 1); ++step) {
    const std::string at = fmt::format("step {} ", step);
    const Gradients gradients(seen.asked(), step);
    for (int rank = 0; rank < world; ++rank) {
      Check all(named, "gradients exist only after all micro-steps", seen);
      all.at(rank);
      for (int m = 0; m < steps; ++m) {
        all.refused(fmt::format("finish_gradients after {} of {} micro-steps", m, steps),
                    seen.at(rank, fmt::format("{}after {}", at, m)), "Error",
                    {std::to_string(m), std::to_string(steps)});
        Check early(named, "a call that throws changes nothing", seen);
        early.at(rank).equal(
            fmt::format("micro_step() and leaves after finish_gradients after {} of {}", m, steps),
            seen.text(rank, fmt::format("{}left after {}", at, m)),
            fmt::format("{} and {}", m, m / per_reduction),
            {{true, "You reset or folded before you compared the count with plan_.micro_steps"}});
      }
      Check ended(named, "a step ends after exactly M backwards", seen);
      ended.at(rank).accepted("finish_gradients after all micro-steps",
                              seen.at(rank, at + "after all"));
      const std::int64_t counted = seen.number(rank, at + "micro-steps");
      Check ends(named, "finish_gradients ends the step: the count of micro-steps is 0 again",
                 seen);
      ends.at(rank).equal(
          "micro_step() after finish_gradients", counted, 0,
          {{counted == steps,
            "You did not reset micro_step_ to 0: a second finish_gradients would count the "
            "backwards of the first again"}});
      all.refused("a second finish_gradients", seen.at(rank, at + "again"), "Error",
                  {"0", std::to_string(steps)});
      const bool kept = options.value("kept", false);
      if (!kept || step == 0) {
        all.equal("gradients defined before finish_gradients", seen.number(rank, at + "early"), 0,
                  {{true, "You set shard_grad outside step 4.7, or in a call that throws"}});
        all.equal("SHARDED_GRAD bytes before finish_gradients",
                  seen.bytes(rank, at + "accumulated", "SHARDED_GRAD"),
                  summed * partials(steps / per_reduction));
      }
      std::int64_t defined = 0, trainable = 0;
      for (const UnitLayout& unit : units) {
        for (std::size_t i = 0; i < unit.trainable().size(); ++i, ++trainable) {
          defined += seen.has(rank, fmt::format("{}{}.{}", at, unit.name, i)) ? 1 : 0;
        }
      }
      Check set(named, "every trainable flat parameter has a gradient after finish_gradients",
                seen);
      set.at(rank).equal(
          "flat parameters with a shard_grad", defined, trainable,
          {{defined == 0, "You computed the averages and did not set shard_grad"},
           {defined == std::ssize(units), "You set that of one flat parameter of each unit"}});
      Check kind(named,
                 "the gradient of a shard has its n elements and its dtype, and counts as "
                 "SHARDED_GRAD",
                 seen);
      const std::int64_t left = seen.bytes(rank, at + "finished", "SHARDED_GRAD");
      const std::int64_t released = seen.bytes(rank, at + "accumulated", "SHARDED_GRAD");
      const std::int64_t grown = seen.bytes(rank, at + "finished", "total") -
                                 seen.bytes(rank, at + "accumulated", "total");
      kind.at(rank).equal(
          "SHARDED_GRAD bytes after finish_gradients", left, shard,
          {{left == 2 * shard, "The sums stay allocated beside the gradients made of them"},
           {summed != shard && left == summed,
            "The gradient has the dtype of the sums: scale what to_shard_dtype() returns, which is "
            "cast "
            "to the dtype of the shard"},
           {summed != shard && left == 0 && grown == shard - released,
            "The cast made a copy that counts as another kind of memory: cast in an "
            "AllocationScope with MemoryKind::sharded_grad"}});
      Check held(named, "after a step only one gradient of n elements per shard is held", seen);
      held.at(rank).equal("collectives", std::ssize(seen.at(rank, at + "collectives")), 0);
      held.equal("UNSHARDED_GRAD bytes", seen.bytes(rank, at + "finished", "UNSHARDED_GRAD"), 0);
      if (!kept) {
        held.equal("SHARDED_GRAD bytes after the gradients were dropped",
                   seen.bytes(rank, at + "dropped", "SHARDED_GRAD"), 0,
                   {{true, "Part of the accumulated gradients stays allocated"}});
      }
      check_averages(seen, rank, step, gradients);
    }
  }
}

void judge_finish_in_mesh(const Setup& setup) {
  const Observations& seen = run("finish", setup);
  const Gradients gradients(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check ends("4.7", "in a mesh, too, a step ends with the average over all micro-batches", seen);
    ends.at(rank).accepted("finish_gradients after all micro-steps",
                           seen.at(rank, "step 0 after all"));
    if (ends.ok()) check_averages(seen, rank, 0, gradients);
  }
}

}  // namespace fsdp::graded
