// Activation checkpointing, in both spellings.
#include "estimate/modes.h"

namespace fsdp::estimate {

TEST_CASE("fake, real and formula have the same bytes with checkpointing",
          "[estimator][checkpointing]") {
  for (const Words& strategy : {Words{}, {"--parallel.strategy=fsdp", "--parallel.ranks=3"}}) {
    for (const Words& mode : {Words{"--activation_checkpoint.mode=full"},
                              {"--activation_checkpoint.mode=selective"},
                              {"--activation_checkpoint.mode=selective",
                               "--activation_checkpoint.selective_ac_option=op"}}) {
      Words words = {"--model.preset=tiny", "--training.local_batch_size=2",
                     "--training.seq_len=24"};
      words.insert(words.end(), mode.begin(), mode.end());
      words.insert(words.end(), strategy.begin(), strategy.end());
      check_modes(words);
    }
  }
}

}  // namespace fsdp::estimate
