// The hidden cases of task 7: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task7/cases.h"

using namespace fsdp::graded;

namespace {

const Json kOther = {{"layers", 3},        {"vocabulary", 29}, {"ffn", 36},
                     {"micro_batches", 8}, {"clip", 0.25},     {"batch", 1}};

}  // namespace

TEST_CASE("Training other models", "[7.4][hidden]") {
  const Json ignored = {{"ignored", {"model.layers.2.input_layernorm", "lm_head.weight"}}};
  judge_training({.world_size = 8, .seed = 21, .options = with(kOther, {{"depth", 2}})});
  judge_training({.world_size = 4,
                  .seed = 22,
                  .delivery = Delivery::lazy,
                  .options = with(with(kOther, ignored), {{"meta", true}, {"group", 2}})});
  judge_training({.world_size = 4,
                  .seed = 25,
                  .options = with(with(kOther, ignored),
                                  {{"param", "float16"}, {"reduce", "float32"}, {"depth", 2}})});
  judge_gradients({.world_size = 4, .seed = 23, .options = with(kOther, ignored)});
  judge_memory({.world_size = 3,
                .seed = 24,
                .options = {{"width", 48},
                            {"ffn", 150},
                            {"vocabulary", 70},
                            {"layers", 3},
                            {"micro_batches", 6},
                            {"no_decay", {"norm"}}}});
}

TEST_CASE("Checkpoints of other models", "[7.6][hidden]") {
  judge_resume({.seed = 31,
                .options = with(kOther, {{"ranks", 8},
                                         {"heirs", 4},
                                         {"half", 2},
                                         {"steps", 3},
                                         {"ignored", {"model.embed_tokens"}}})});
  judge_damaged({.seed = 32, .options = with(kOther, {{"ranks", 2}, {"heirs", 4}, {"file", 1}})});
}
