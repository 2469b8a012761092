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

}  // namespace

void judge_finish(const Setup& setup) {
  const Observations& seen = run("finish", setup);
  const Json& options = seen.asked().options;
  const int steps = options.value("micro_steps", 1), world = seen.world_size();
  const auto units = units_of(seen.asked());
  const int per_reduction = options.value("per_reduction", 1);
  std::int64_t shard = 0;
  for (const UnitLayout& unit : units) shard += shard_grad_bytes(unit, world);
  const DType dtype = reduce_dtype_of(seen.asked());
  const std::int64_t summed = shard / 4 * static_cast<std::int64_t>(size_of(dtype));
  for (int rank = 0; options.value("extra", false) && rank < world; ++rank) {
    Check many("4.7", "a step has as many backwards as its plan has micro-steps, and no more",
               seen);
    many.at(rank).refused(
        fmt::format("finish_gradients after {} of {} micro-steps", steps + 1, steps),
        seen.at(rank, "after too many"), "Error",
        {std::to_string(steps + 1), std::to_string(steps)});
  }
  for (int step = 0; step < options.value("steps", 1); ++step) {
    const std::string at = fmt::format("step {} ", step);
    const Gradients gradients(seen.asked(), step);
    const int j = gradients.micro_batches();
    const double scale = options.value("loss_scale", 1.0);
    const auto factor = static_cast<float>(1.0 / j / scale);
    for (int rank = 0; rank < world; ++rank) {
      Check all("4.7", "gradients exist only after all micro-steps", seen);
      all.at(rank).accepted("finish_gradients after all micro-steps",
                            seen.at(rank, at + "after all"));
      for (int m = 0; m < steps; ++m) {
        all.refused(fmt::format("finish_gradients after {} of {} micro-steps", m, steps),
                    seen.at(rank, fmt::format("{}after {}", at, m)), "Error",
                    {std::to_string(m), std::to_string(steps)});
      }
      const std::int64_t counted = seen.number(rank, at + "micro-steps");
      Check ends("4.7", "finish_gradients ends the step: the count of micro-steps is 0 again",
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
      Check kind("4.7",
                 "the gradient of a shard has its n elements and its dtype, and counts as "
                 "SHARDED_GRAD",
                 seen);
      const std::int64_t left = seen.bytes(rank, at + "finished", "SHARDED_GRAD");
      const std::int64_t released = seen.bytes(rank, at + "accumulated", "SHARDED_GRAD");
      const std::int64_t grown = seen.bytes(rank, at + "finished", "total") -
                                 seen.bytes(rank, at + "accumulated", "total");
      kind.at(rank).equal(
          "SHARDED_GRAD bytes after finish_gradients", left, shard,
          {{summed != shard && left == summed,
            "The gradient has the dtype of the sums: cast it to that of the shard"},
           {summed != shard && left == 0 && grown == shard - released,
            "The cast made a copy that counts as another kind of memory: cast in an "
            "AllocationScope with MemoryKind::sharded_grad"}});
      Check held("4.7", "after a step only one gradient of n elements per shard is held", seen);
      held.at(rank).equal("collectives", std::ssize(seen.at(rank, at + "collectives")), 0);
      held.equal("UNSHARDED_GRAD bytes", seen.bytes(rank, at + "finished", "UNSHARDED_GRAD"), 0);
      if (!kept) {
        held.equal("SHARDED_GRAD bytes after the gradients were dropped",
                   seen.bytes(rank, at + "dropped", "SHARDED_GRAD"), 0,
                   {{true, "Part of the accumulated gradients stays allocated"}});
      }
      for (const UnitLayout& unit : units) {
        const auto flats = unit.trainable();
        for (std::size_t i = 0; i < flats.size(); ++i) {
          const std::string key = fmt::format("{}{}.{}", at, unit.name, i);
          Check values(
              "4.7", "a gradient is the sum over all micro-batches, multiplied by 1/J once", seen);
          values.at(rank, unit.name);
          if (!seen.has(rank, key)) {
            values.that(false, "shard_grad is undefined", "a gradient", {});
            continue;
          }
          const Floats expected = shard_of(gradients.of(flats[i], -1, factor), rank, world);
          const Floats sum = shard_of(gradients.of(flats[i]), rank, world);
          const Floats observed = seen.floats(rank, key);
          const std::string last = fmt::format("step {} {}.{}", step - 1, unit.name, i);
          const bool adds = kept && seen.has(rank, last) &&
                            observed == tree<float>({seen.floats(rank, last), expected});
          const auto is_sum_times = [&](double by) {
            return observed ==
                   shard_of(gradients.of(flats[i], -1, static_cast<float>(by)), rank, world);
          };
          values.bits(
              "shard_grad", observed, expected, valid_of(flats[i], rank, world),
              {{scale != 1 && is_sum_times(1.0 / j),
                "You did not divide by plan_.loss_scale: the caller has multiplied the loss by it"},
               {observed != expected && observed == in_dtype(times(sum, factor), dtype),
                "You multiplied by 1/J in the dtype of the sums, which rounds the average: cast "
                "the sum to the dtype of the shard first"},
               {observed == in_two_steps(sum, world, steps),
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
               {steps > 1 && world > 1 && is_sum_times(1.0 / world),
                "You divided by W, but not by M"},
               {steps > 1 && world > 1 && is_sum_times(1.0 / steps),
                "You divided by M, but not by W"}});
        }
      }
    }
  }
}

}  // namespace fsdp::graded
