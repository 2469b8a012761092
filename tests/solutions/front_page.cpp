// The code that README.md shows: it compiles, trains, and is the same (test_front_page.py).
#include "autograd/functions.h"
#include "comm/world.h"
#include "nn/transformer.h"
#include "support/catch.h"
#include "support/training.h"
#include "task7_integration/integration.h"

#include <memory>
#include <vector>

using namespace fsdp;

namespace {

/// Each rank's losses over ten steps on its own tokens.
std::vector<std::vector<float>> losses_of_the_front_page() {
  const auto batch_of = [](int rank) {
    return testing::make_micro_batch(nn::TransformerConfig::nano(), 2, /*seed=*/3, 0, rank);
  };
  std::vector<std::vector<float>> losses(4);
  const auto print = [&](int rank, const Variable& loss) {
    losses[static_cast<std::size_t>(rank)].push_back(static_cast<float>(loss.data().item()));
  };
  // README
  run_ranks(4, [&](ProcessGroup& group) {
    nn::TransformerLM model(nn::TransformerConfig::nano());
    auto sharded = fully_shard(model, borrowed(group));
    sharded->attach_optimizer(
        [] { return std::make_shared<optim::AdamW>(optim::AdamW::Options()); });
    const auto [tokens, targets] = batch_of(group.rank());
    for (int step = 0; step < 10; ++step) {
      sharded->begin_step({});
      const Variable loss = cross_entropy(model(Variable(tokens)), targets);
      loss.backward();  // gathers unit by unit, and reduces the gradients into shards
      sharded->end_micro_step();
      sharded->finish_gradients();
      sharded->clip_grad_norm(1.0);  // by the norm over all ranks
      sharded->step(1e-2);           // each rank updates its own shard
      sharded->zero_grad();
      print(group.rank(), loss);
    }
  });
  // end
  return losses;
}

TEST_CASE("the code on the front page trains", "[task7]") {
  for (const std::vector<float>& each : losses_of_the_front_page()) {
    REQUIRE(each.size() == 10);
    CHECK(each.back() < 0.8F * each.front());
  }
}

}  // namespace
