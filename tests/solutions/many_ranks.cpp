// Graded cases stop at eight ranks. A layout has no reason to.
#include "support/catch.h"
#include "task2_flat_parameter/flat_parameter.h"

#include <numeric>
#include <vector>

using namespace fsdp;

TEST_CASE("Every element has one owner, also among more than eight ranks") {
  Context context;
  const ContextScope scope(context);
  const int world_size = GENERATE(9, 12, 13, 16);
  const std::int64_t width = GENERATE(1, 2, 5, 31);
  std::vector<float> expected(static_cast<std::size_t>(3 * width + 4));
  std::iota(expected.begin(), expected.end(), 1.0F);
  const auto end_of_weight = expected.end() - 4;
  std::vector<float> seen;
  CAPTURE(world_size, width);
  for (int rank = 0; rank < world_size; ++rank) {
    const Variable weight(Tensor::from(std::vector(expected.begin(), end_of_weight), {3, width}),
                          true);
    const Variable bias(Tensor::from(std::vector(end_of_weight, expected.end()), {4}), true);
    const FlatParameter flat("unit", {{"weight", weight, nullptr}, {"bias", bias, nullptr}}, rank,
                             world_size, kCpu, copy_slice);
    const std::vector<float> shard = flat.shard().to_vector<float>();
    const auto valid = static_cast<std::size_t>(flat.valid_shard_numel());
    seen.insert(seen.end(), shard.begin(), shard.begin() + static_cast<std::ptrdiff_t>(valid));
    std::int64_t owned = 0;
    for (const ShardPiece& piece : flat.pieces_of(rank)) owned += piece.numel;
    CHECK(owned == flat.valid_shard_numel());
    for (std::size_t i = valid; i < shard.size(); ++i) CHECK(shard[i] == 0);
  }
  CHECK(seen == expected);
}
