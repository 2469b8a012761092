// Rule one, across machines: the bits of a training depend on nothing but its numbers. The
// constants hold for every compiler, processor and width of vector (`make check-arm64` tries
// another one).
#include "support/catch.h"
#include "support/training.h"

#include <bit>
#include <cstdint>
#include <map>
#include <string>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// Of all bits that a training leaves.
std::uint64_t checksum(const TrainingResult& result) {
  std::uint64_t sum = 0;
  const auto add = [&](std::uint64_t word) { sum = (sum ^ word) * 6364136223846793005u + 1; };
  for (const float loss : result.losses) add(std::bit_cast<std::uint32_t>(loss));
  for (const double norm : result.norms) add(std::bit_cast<std::uint64_t>(norm));
  for (const auto& [name, values] : result.state) {
    for (const float value : values) add(std::bit_cast<std::uint32_t>(value));
  }
  return sum;
}

}  // namespace

TEST_CASE("Five steps of nano leave the same bits on every machine") {
  TrainingCase options;
  options.steps = 5;
  options.recipe.clip = 0.5;
  const auto [strategy, world_size] =
      GENERATE(std::pair{Strategy::single, 1}, std::pair{Strategy::ddp, 2},
               std::pair{Strategy::fsdp, 2}, std::pair{Strategy::fsdp, 4});
  CAPTURE(static_cast<int>(strategy), world_size);
  CHECK(checksum(train(options.spread(strategy, world_size))) == 0x6caea2d57076f10eu);
}

TEST_CASE("A step of a transformer with tied weights leaves the same bits on every machine") {
  TrainingCase options;
  options.steps = 1;
  options.model = nn::TransformerConfig::tiny();
  options.model.tie_word_embeddings = true;
  options.recipe.micro_steps = 1;
  CHECK(checksum(train(options)) == 0xb170642653207764u);
}
