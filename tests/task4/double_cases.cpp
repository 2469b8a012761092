#include "task4/cases.h"
#include "task4/notes.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {

void judge_double_leaf(const Setup& setup) {
  const Observations& seen = run("start_reduce", setup);
  const UnitLayout unit = units_of(seen.asked()).front();
  const int world = seen.world_size(), last = seen.asked().options.value("micro_steps", 1) - 1;
  if (!check_started(seen, last + 1)) return;
  for (int rank = 0; rank < world; ++rank) {
    Check like("4.3", "a leaf has the dtype of the gradient that is reduced", seen);
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < unit.trainable().size(); ++i) {
      const FlatLayout flat = unit.trainable()[i];
      expected.push_back(fmt::format("reduce_scatter {}/gradient of {} float64 per rank", unit.name,
                                     flat.shard(world)));
      std::vector<std::vector<double>> ranks;
      for (int r = 0; r < world; ++r) {
        std::vector<std::vector<double>> own;
        for (int m = 0; m <= last; ++m) {
          const Floats filled = filled_full_grad(seen.asked(), flat, r, m);
          own.emplace_back(filled.begin(), filled.end());
        }
        ranks.push_back(tree(own));
      }
      like.at(rank, unit.name)
          .equal("the leaf", digits_in(seen, rank, key_of(fmt::format("leaf {}", last), i)),
                 digits_of(shard_of(tree(ranks), rank, world)));
    }
    std::sort(expected.begin(), expected.end());
    like.equal("what was started",
               reductions_in(seen.at(rank, fmt::format("collectives {}", last))), expected);
  }
}

void judge_double_average(const Setup& setup) {
  const Observations& seen = run("finish", setup);
  const int world = seen.world_size();
  const GradientsOf<double> gradients(seen.asked());
  const double factor = 1.0 / gradients.micro_batches();
  for (int rank = 0; rank < world; ++rank) {
    for (const UnitLayout& unit : units_of(seen.asked())) {
      for (std::size_t i = 0; i < unit.trainable().size(); ++i) {
        const std::string key = fmt::format("step 0 {}.{}", unit.name, i);
        Check values("4.7", "gradients of float64 parameters have the bits of one process, too",
                     seen);
        values.at(rank, unit.name)
            .that(seen.has(rank, key), "shard_grad is undefined", "a gradient");
        if (!values.ok()) continue;
        const FlatLayout flat = unit.trainable()[i];
        values.equal("shard_grad", digits_in(seen, rank, key),
                     digits_of(shard_of(gradients.of(flat, -1, factor), rank, world)));
      }
    }
  }
}

}  // namespace fsdp::graded
