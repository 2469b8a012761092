#include "race/bound.h"

#include "base/check.h"
#include "paper/books.h"

namespace fsdp::race {

Bound bound_of(const PaperTrack& paper) {
  const Track& track = paper.track();
  const paper::MemoryOptions options = track.options();
  const paper::KernelTimes& kernels = paper.kernels();
  const std::int64_t layers = track.model.num_hidden_layers;
  const std::int64_t numel = track.model.parameter_count();
  // Every kernel and collective is rounded to a picosecond, and a plan has few of those that it can
  // divide: per module and the root a cast, two collectives, a mean and an update.
  const std::int64_t rounding = 5 * (layers + 3);

  paper::Books books(options);
  books.open_clock(track.machine, kernels);
  const paper::GroupShape world = books.group_of(0, track.ranks, 1);
  const double per_byte =
      world.is_far ? track.machine.far_link_ps_per_byte : track.machine.link_ps_per_byte;
  // 4 bytes of a gradient's element travel, and 6 are moved to make them from 2.
  const double others = static_cast<double>(track.ranks - 1) / track.ranks;
  FSDP_CHECK(4 * others * per_byte >= 6 * track.machine.ps_per_byte,
             "{}: the reduction of a gradient must take longer than its cast", track.name);

  const auto collective = [&](CollectiveOp op, std::int64_t elements, std::int64_t element) {
    paper::Books fresh(options);
    fresh.open_clock(track.machine, kernels);
    return fresh.start(&paper::WireBytes::gathers, op, elements / track.ranks, element, world);
  };
  const paper::Formats formats(options.recipe.precision);
  books.divide_mean(numel / track.ranks);
  books.update(numel / track.ranks, /*is_first=*/false);
  const std::int64_t update = books.take_time().total();
  books.cast(paper::TimePart::gradients, numel, formats.param, formats.sum);
  const std::int64_t casts = books.take_time().total();

  const std::int64_t loss = kernels.loss.forward + kernels.loss.backward;
  const std::int64_t compute = kernels.embedding.forward + kernels.embedding.backward +
                               layers * (kernels.block.forward + kernels.block.backward) +
                               kernels.head.forward + kernels.head.backward + loss + casts;
  const std::int64_t first = track.model.vocab_size * track.model.hidden_size;
  return {.computation = collective(CollectiveOp::all_gather, first, formats.param) + compute +
                         collective(CollectiveOp::reduce_scatter, first, formats.sum) + update -
                         rounding,
          .channel = collective(CollectiveOp::all_gather, numel, formats.param) +
                     kernels.head.forward + loss + kernels.head.backward +
                     collective(CollectiveOp::reduce_scatter, numel, formats.sum) + update -
                     rounding};
}

}  // namespace fsdp::race
