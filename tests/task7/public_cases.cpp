// The public cases of task 7.
#include "graded/expect.h"
#include "support/catch.h"
#include "task7/cases.h"

using namespace fsdp::graded;

namespace {

/// A global batch of four, whatever W is.
const Json kFour = {{"micro_batches", 4}, {"clip", 0.5}};
/// One parameter alone, one whole module, one that is not trained.
const Json kIgnored = {{"ignored", {"model.norm", "model.layers.1.mlp.up_proj.weight"}}};

/// Mixed precision: sums in the dtype of the gradients, and in a wider one.
const std::vector<Json> kPolicies = {{{"param", "bfloat16"}, {"reduce", "float32"}},
                                     {{"param", "bfloat16"}, {"reduce", "bfloat16"}}};

void units(int world_size, const Json& options) {
  judge_units({.world_size = world_size, .options = options});
}

}  // namespace

TEST_CASE("The units of a transformer, their order and their names", "[7.1]") {
  for (const int world_size : worlds({1, 2, 3, 4})) units(world_size, Json::object());
  units(2, {{"layers", 3}, {"frozen", {"model.layers.0"}}});
}

TEST_CASE("Tied embeddings belong to the root, which is kept", "[7.1]") {
  for (const int world_size : worlds({1, 2})) units(world_size, {{"tied", true}});
}

TEST_CASE("The units of any other module are its children", "[7.1]") {
  units(2, {{"model", "toy"}});
  units(3, {{"model", "toy"}, {"root_weight", true}});
}

TEST_CASE("Nested units and tied weights: no parameter twice, none left out", "[7.1]") {
  const Json nested = {{"model", "toy"}, {"nested", true}};
  units(2, with(nested, {{"wrap", {"layers.0", "layers.0.inner", "layers.1", "layers.2"}}}));
  units(2, with(nested, {{"wrap", {"layers.1.inner", "layers.2"}}}));
  units(3, {{"model", "toy"}, {"tied", true}});
  units(2, {{"model", "toy"}, {"wrap", Json::array()}});
}

TEST_CASE("The units are in the order of the policy, not that of the module tree", "[7.1]") {
  const Json turned = {{"wrap", {"layers.2", "layers.0", "layers.1"}}};
  for (const bool root_weight : {false, true}) {
    units(2, with(turned, {{"model", "toy"}, {"root_weight", root_weight}}));
  }
}

TEST_CASE("One flat parameter per kind: trainable or frozen, dtype, decay", "[7.1]") {
  units(2, {{"no_decay", {"norm"}}});
  units(2, {{"no_decay", {"norm"}}, {"frozen", {"model.layers.0.mlp", "lm_head"}}});
  units(3, {{"model", "mixed"}, {"no_decay", {"wide_d"}}, {"frozen", {"mixed.c"}}});
}

TEST_CASE("Ignored parameters are in no unit, and a module without parameters is no unit",
          "[7.1]") {
  units(2, kIgnored);
  units(2, {{"ignored", {"model.norm", "lm_head"}}});
  units(2, {{"ignored", {"model.norm", "lm_head"}}, {"frozen", {"model.norm"}}});
  units(2, {{"ignored", {"model.embed_tokens"}}, {"tied", true}});
}

TEST_CASE("After a meta start each rank draws its own shards", "[7.1]") {
  for (const int world_size : worlds({1, 2, 3, 4})) units(world_size, {{"meta", true}});
  units(
      4,
      {{"meta", true}, {"width", 64}, {"ffn", 170}, {"vocabulary", 64}, {"ignored", {"lm_head"}}});
}

TEST_CASE("Under within(s) the units gather in a subgroup", "[7.1]") {
  if (judge_splits({.options = {{"ranks", 4}, {"group", 2}}})) units(4, {{"group", 2}});
  units(2, {{"group", 1}});
}

TEST_CASE("Flat parameters follow the options' mixed precision", "[7.1]") {
  for (const Json& policy : kPolicies) {
    for (const int world_size : worlds({1, 2, 3, 4})) units(world_size, policy);
  }
  units(2, {{"reduce", "bfloat16"}, {"no_decay", {"norm"}}});
}

TEST_CASE("Hooks: which ones run, and when", "[7.2]") {
  for (const int world_size : worlds({1, 2, 3})) {
    for (const int depth : {0, 1, 2}) {
      judge_hooks({.world_size = world_size,
                   .delivery = Delivery::lazy,
                   .options = {{"model", "toy"}, {"depth", depth}}});
    }
  }
  judge_hooks({.world_size = 2,
               .delivery = Delivery::eager,
               .options = {{"model", "toy"}, {"layers", 5}, {"depth", 3}, {"limit", 1}}});
}

TEST_CASE("Hooks: a root with a weight of its own is gathered first and kept", "[7.2]") {
  for (const int depth : {0, 1}) {
    judge_hooks({.world_size = 2,
                 .delivery = Delivery::lazy,
                 .options = {{"model", "toy"}, {"root_weight", true}, {"depth", depth}}});
  }
}

TEST_CASE("Hooks: a forward that skips layers", "[7.2]") {
  for (const int depth : {0, 1, 2}) {
    judge_left_out(
        {.world_size = 2,
         .delivery = Delivery::lazy,
         .options = {{"model", "toy"}, {"layers", 4}, {"root_weight", true}, {"depth", depth}}});
  }
}

TEST_CASE("Ignored parameters stay whole, after an eager build and after a meta start", "[7.3]") {
  for (const int world_size : worlds({1, 2, 3})) {
    for (const bool meta : {false, true}) {
      judge_replicated({.world_size = world_size, .options = with(kIgnored, {{"meta", meta}})});
    }
  }
  judge_replicated(
      {.world_size = 2,
       .options = {{"ignored", {"model.embed_tokens"}}, {"tied", true}, {"meta", true}}});
  judge_replicated({.world_size = 2, .options = with(kIgnored, {{"no_decay", {"norm"}}})});
}

TEST_CASE("Buffers and the generator after a meta start", "[7.3]") {
  judge_replicated({.world_size = 2, .options = {{"meta", false}}});
  judge_replicated({.world_size = 2, .options = {{"meta", true}}});
  judge_replicated({.world_size = 4,
                    .options = {{"meta", true}, {"width", 64}, {"ffn", 170}, {"vocabulary", 64}}});
}

TEST_CASE("Ignored, frozen parameters need no all-reduce", "[7.3]") {
  for (const bool meta : {false, true}) {
    judge_replicated(
        {.world_size = 2,
         .options = {{"ignored", {"model.norm"}}, {"frozen", {"model.norm"}}, {"meta", meta}}});
  }
}

TEST_CASE("Under mixed precision ignored parameters have masters", "[7.3]") {
  for (const int world_size : worlds({1, 2, 3})) {
    for (const bool meta : {false, true}) {
      judge_replicated({.world_size = world_size,
                        .options = with(with(kIgnored, kPolicies[0]), {{"meta", meta}})});
    }
  }
}

TEST_CASE("Frozen, ignored parameters have masters too, which change when a state is loaded",
          "[7.3]") {
  for (const bool meta : {false, true}) {
    for (const char* frozen : {"model.norm", "model"}) {
      judge_replicated(
          {.world_size = 2,
           .options = with(with(kIgnored, kPolicies[0]), {{"frozen", {frozen}}, {"meta", meta}})});
    }
  }
}

TEST_CASE("Gradients, norm and clipping of shards and of replicated parameters", "[7.4]") {
  for (const int world_size : worlds({1, 2, 4})) {
    judge_gradients({.world_size = world_size, .delivery = Delivery::lazy, .options = kFour});
    judge_gradients({.world_size = world_size, .options = with(kFour, kIgnored)});
  }
  judge_gradients({.world_size = 2,
                   .delivery = Delivery::eager,
                   .options = with(with(kFour, kIgnored), {{"no_sync", true}})});
}

TEST_CASE("Training gives the same bits as a single process", "[7.4]") {
  for (const int world_size : worlds({1, 2, 4})) {
    judge_training({.world_size = world_size, .delivery = Delivery::lazy, .options = kFour});
    judge_training(
        {.world_size = world_size, .options = with(kFour, {{"no_sync", true}, {"meta", true}})});
  }
}

TEST_CASE("Ignored, tied and frozen parameters, some without decay, in subgroups", "[7.4]") {
  for (const int world_size : worlds({1, 2, 4})) {
    judge_training({.world_size = world_size,
                    .options = with(with(kFour, kIgnored), {{"steps", 3}, {"meta", true}})});
  }
  judge_training({.world_size = 2, .options = with(kFour, {{"tied", true}, {"depth", 2}})});
  judge_training({.world_size = 2, .options = with(kFour, {{"no_decay", {"norm"}}, {"group", 1}})});
  judge_training({.world_size = 2,
                  .options = with(with(kFour, kIgnored), {{"no_decay", {"norm"}}, {"steps", 3}})});
  judge_training({.world_size = 2, .options = with(kFour, {{"frozen", {"model.layers.0"}}})});
  judge_training({.world_size = 4, .options = with(kFour, {{"group", 2}, {"depth", 0}})});
}

TEST_CASE("Under mixed precision every bit equals a single process too", "[7.4]") {
  for (const Json& policy : kPolicies) {
    for (const int world_size : worlds({1, 2, 4})) {
      judge_training({.world_size = world_size,
                      .delivery = Delivery::lazy,
                      .options = with(with(kFour, policy), {{"evaluates", true}})});
    }
    judge_training({.world_size = 2,
                    .options = with(with(with(kFour, kIgnored), policy),
                                    {{"meta", true}, {"steps", 3}, {"no_sync", true}})});
    judge_training({.world_size = 4, .options = with(with(kFour, policy), {{"group", 2}})});
    judge_gradients({.world_size = 2, .options = with(with(kFour, kIgnored), policy)});
  }
}

TEST_CASE("Training on three ranks is correct, but not to the last bit", "[7.4]") {
  judge_training({.world_size = 3, .options = {{"micro_batches", 6}, {"clip", 0.5}}});
}

TEST_CASE("A backward that reaches no unit counts as a micro-step", "[7.4]") {
  judge_training({.world_size = 2, .options = with(kFour, {{"without_model", {1}}})});
  judge_training(
      {.world_size = 2, .options = with(with(kFour, kIgnored), {{"without_model", {0}}})});
}

TEST_CASE("The peak of memory matches the formula", "[7.4]") {
  const Json wide = {
      {"width", 64}, {"ffn", 170}, {"vocabulary", 96}, {"clip", 0.5}, {"micro_batches", 8}};
  for (const int world_size : worlds({1, 2, 4})) {
    judge_memory({.world_size = world_size, .options = wide});
  }
  judge_memory({.world_size = 4, .options = with(wide, {{"tied", true}, {"depth", 2}})});
}

TEST_CASE("The full state, unit by unit", "[7.5]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    judge_visit({.world_size = world_size, .delivery = Delivery::lazy, .options = Json::object()});
  }
  judge_visit({.world_size = 2, .options = with(kIgnored, {{"tied", true}})});
  judge_visit(
      {.world_size = 2, .options = {{"no_decay", {"norm"}}, {"frozen", {"model.layers.0"}}}});
  judge_visit({.world_size = 4, .options = {{"width", 64}, {"ffn", 170}, {"vocabulary", 64}}});
}

TEST_CASE("save_full writes what from_pretrained loads, and the folder appears complete", "[7.5]") {
  for (const int ranks : {1, 2, 3}) judge_save_full({.options = {{"ranks", ranks}}});
  judge_save_full({.options = with(kIgnored, {{"ranks", 2}, {"no_decay", {"norm"}}})});
  judge_save_full({.options = {{"ranks", 2}, {"tied", true}}});
}

TEST_CASE("load_full reads this rank's slices, or changes nothing", "[7.5]") {
  for (const int ranks : {1, 2, 3, 4}) judge_load_full({.options = {{"ranks", ranks}}});
  judge_load_full({.options = with(kIgnored, {{"ranks", 2}, {"meta", true}})});
  judge_load_full({.options = {{"ranks", 3}, {"misled", {1}}}});
}

TEST_CASE("Under mixed precision the full state is that of the masters", "[7.5]") {
  const Json mixed = with(kPolicies[0], kIgnored);
  for (const int world_size : worlds({1, 2, 3, 4})) {
    judge_visit({.world_size = world_size, .delivery = Delivery::lazy, .options = mixed});
  }
  for (const int ranks : {1, 2, 3}) judge_save_full({.options = with(mixed, {{"ranks", ranks}})});
  for (const int ranks : {2, 3}) judge_load_full({.options = with(mixed, {{"ranks", ranks}})});
}

TEST_CASE("The slices of all ranks are the training state", "[7.6]") {
  for (const int world_size : worlds({1, 2, 4})) {
    judge_slices({.world_size = world_size, .options = kFour});
    judge_slices({.world_size = world_size, .options = with(kFour, kIgnored)});
  }
}

TEST_CASE("A checkpoint of four ranks continues on two, with the same bits", "[7.6]") {
  for (const auto& [ranks, heirs] : {std::pair{4, 2}, {2, 4}, {1, 2}, {2, 1}}) {
    judge_resume({.options = with(kFour, {{"ranks", ranks}, {"heirs", heirs}})});
  }
  judge_resume(
      {.options = with(with(kFour, kIgnored), {{"steps", 4}, {"half", 2}, {"meta", true}})});
}

TEST_CASE("Under mixed precision a checkpoint holds the masters", "[7.6]") {
  for (const Json& policy : kPolicies) {
    const Json mixed = with(with(kFour, kIgnored), policy);
    for (const int world_size : worlds({1, 2, 4})) {
      judge_slices({.world_size = world_size, .options = mixed});
    }
    judge_resume({.options = with(mixed, {{"ranks", 4}, {"heirs", 2}})});
  }
}

TEST_CASE("A checkpoint that does not fit changes nothing", "[7.6]") {
  for (const char* damage : {"bit", "cut", "missing", "mixed", "other"}) {
    judge_damaged({.options = {{"micro_batches", 4}, {"damage", damage}}});
  }
  judge_damaged({.options = {{"micro_batches", 4}, {"damage", "bit"}, {"file", 1}}});
}
