// The training on the front page, as a whole program: a small Llama on made-up tokens.
//
//     make run FILE=apps/examples/first_training.cpp ARGS=4
//
// ARGS is the number of ranks. The losses of 1, 2 and 4 ranks differ, because each rank brings data
// of its own: with more ranks, a step sees more of it.
#include "autograd/functions.h"
#include "comm/world.h"
#include "nn/transformer.h"
#include "program/program.h"
#include "task7_integration/integration.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace {

using namespace fsdp;

/// Two sequences of eight tokens, and for each token the one that follows it. The next token is
/// always the last one times 3 plus 5, so there is something to learn.
std::pair<Tensor, Tensor> batch_of(int rank, const nn::TransformerConfig& model) {
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    std::int64_t token = std::int64_t{7} * rank + 2 * sequence + 1;
    for (int i = 0; i < 8; ++i) {
      tokens.push_back(static_cast<std::int32_t>(token % model.vocab_size));
      token = 3 * token + 5;
      targets.push_back(static_cast<std::int32_t>(token % model.vocab_size));
    }
  }
  return {Tensor::from(tokens, {2, 8}), Tensor::from(targets, {2, 8})};
}

void train(ProcessGroup& group) {
  const nn::TransformerConfig config = nn::TransformerConfig::nano();
  nn::TransformerLM model(config);
  auto sharded = fully_shard(model, borrowed(group));
  sharded->attach_optimizer([] { return std::make_shared<optim::AdamW>(optim::AdamW::Options()); });
  const auto [tokens, targets] = batch_of(group.rank(), config);
  for (int step = 1; step <= 20; ++step) {
    sharded->begin_step({});
    const Variable loss = cross_entropy(model(Variable(tokens)), targets);
    loss.backward();  // gathers unit by unit, and reduces the gradients into shards
    sharded->end_micro_step();
    sharded->finish_gradients();
    const double norm = sharded->clip_grad_norm(1.0);  // by the norm over all ranks
    sharded->step(1e-2);                               // each rank updates its own shard
    sharded->zero_grad();
    if (group.rank() == 0 && step % 5 == 0) {
      fmt::print("step {:2}  loss {:.4f}  gradient norm {:.3f}\n", step, loss.data().item(), norm);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return program::run("first_training", [&] {
    run_ranks(argc > 1 ? std::atoi(argv[1]) : 4, train);
    return 0;
  });
}
