// More public cases of task 7: models, plans and histories that are not the usual ones.
#include "graded/expect.h"
#include "support/catch.h"
#include "task7/cases.h"

using namespace fsdp::graded;

namespace {

const Json kToy = {{"model", "toy"}, {"width", 3}};
/// Everything whose shape depends on the vocabulary, and nothing else.
const Json kIgnoredEnds = {{"ignored", {"model.embed_tokens", "lm_head"}}, {"micro_batches", 4}};
const Json kEight = {{"micro_batches", 8}, {"clip", 0.5}};
/// In units and ignored, frozen parameters beside others; the last unit, which is kept until
/// backward, is frozen. Blocks have two flat parameters.
const Json kFrozenParts = {
    {"ignored", {"model.layers.1.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj"}},
    {"frozen", {"model.layers.0", "model.layers.1.mlp.up_proj", "model.norm", "lm_head"}},
    {"no_decay", {"mlp"}},
    {"micro_batches", 4},
    {"clip", 0.5}};
const Json kMixed = {{"param", "bfloat16"}, {"reduce", "float32"}};
/// A history that leaves units unsharded where nobody expects them.
const Json kAbandons = {{"abandons", true}, {"evaluates", true}, {"steps", 4}};

}  // namespace

TEST_CASE("Units stay in the order of the model, even where their names sort differently",
          "[7.1]") {
  judge_units({.world_size = 2, .options = with(kToy, {{"layers", 12}})});
}

TEST_CASE("A policy may return the root, anywhere in its list", "[7.1]") {
  judge_units({.world_size = 2,
               .options = with(kToy, {{"root_weight", true},
                                      {"wrap", {"layers.0", "", "layers.1", "layers.2"}}})});
  judge_units({.world_size = 3, .options = with(kToy, {{"wrap", {"", "layers.0", "layers.1"}}})});
}

TEST_CASE("A tied weight that is ignored under both of its paths is one parameter", "[7.1]") {
  judge_units({.world_size = 2,
               .options = with(
                   kToy, {{"tied", true}, {"ignored", {"layers.0.weight", "layers.2.weight"}}})});
}

TEST_CASE("The group is split once for all units", "[7.1]") {
  judge_splits({.options = with(kToy, {{"ranks", 4}, {"group", 2}, {"layers", 4}})});
  judge_splits({.options = with(kToy, {{"ranks", 4}, {"group", 0}, {"layers", 4}})});
  judge_splits({.options = with(kToy, {{"ranks", 4}, {"group", 1}, {"layers", 4}})});
}

TEST_CASE("The units follow all options at once", "[7.1]") {
  judge_units({.world_size = 4,
               .options = with(kMixed, {{"group", 2},
                                        {"ignored", {"model.norm"}},
                                        {"no_decay", {"norm"}},
                                        {"offload", "gradients"}})});
  judge_units(
      {.world_size = 4, .options = with(kMixed, {{"group", 2}, {"meta", true}, {"tied", true}})});
  judge_units({.world_size = 2,
               .options = with(kMixed, {{"meta", true},
                                        {"frozen", {"model.layers.0"}},
                                        {"no_decay", {"norm"}},
                                        {"ignored", {"lm_head"}}})});
  judge_units(
      {.world_size = 3, .options = {{"meta", true}, {"group", 1}, {"offload", "parameters"}}});
  judge_units({.world_size = 2,
               .options = {{"tied", true},
                           {"group", 1},
                           {"frozen", {"model.embed_tokens", "model.norm"}},
                           {"no_decay", {"norm"}},
                           {"offload", "parameters"}}});
  judge_units({.world_size = 4,
               .options = with(kToy, {{"root_weight", true},
                                      {"wrap", {"layers.1", "layers.0"}},
                                      {"group", 2},
                                      {"meta", true},
                                      {"ignored", {"layers.2.weight"}},
                                      {"no_decay", {"bias"}}})});
}

TEST_CASE("Hooks: frozen and ignored layers", "[7.2]") {
  const Json five = with(kToy, {{"width", 5}, {"layers", 5}});
  for (const auto& [depth, limit] : {std::pair{3, 1}, {2, 0}, {1, 0}, {0, 0}}) {
    const Json ahead = with(five, {{"depth", depth}, {"limit", limit}});
    judge_hooks({.world_size = 2,
                 .delivery = Delivery::lazy,
                 .options = with(ahead, {{"frozen", {"layers.1", "layers.2"}}})});
    judge_hooks(
        {.world_size = 2, .options = with(ahead, {{"ignored", {"layers.2", "layers.3.bias"}}})});
  }
}

TEST_CASE("A sharded model that is destroyed removes its hooks", "[7.2]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    judge_gone({.world_size = world_size, .options = with(kToy, {{"width", 5}})});
  }
}

TEST_CASE("A sharded model that is destroyed no longer casts masters", "[7.3]") {
  judge_gone_replicated({.world_size = 2, .options = {{"ignored", {"model.norm"}}}});
}

TEST_CASE("A frozen parameter that is ignored, before trainable ones", "[7.3]") {
  for (const bool meta : {false, true}) {
    judge_replicated({.world_size = 2,
                      .seed = (std::uint64_t{1} << 32) + 5,
                      .options = {{"ignored", {"model.embed_tokens", "model.norm", "lm_head"}},
                                  {"frozen", {"model.embed_tokens"}},
                                  {"no_decay", {"norm"}},
                                  {"meta", meta}}});
  }
}

TEST_CASE("An ignored parameter of float64 stays one", "[7.3]") {
  for (const bool meta : {false, true}) {
    judge_replicated(
        {.world_size = 2,
         .options = {
             {"model", "mixed"}, {"ignored", {"mixed.wide_b", "mixed.c"}}, {"meta", meta}}});
  }
}

TEST_CASE("Ignored, tied, frozen and deep models train like any other", "[7.4]") {
  judge_training(
      {.world_size = 2,
       .options = with(with(kToy, kEight),
                       {{"tied", true}, {"ignored", {"layers.0.weight", "layers.2.weight"}}})});
  judge_training({.world_size = 4, .options = with(with(kToy, kEight), {{"layers", 12}})});
  judge_training({.world_size = 2,
                  .options = with(kEight, {{"ignored", {"model.embed_tokens", "model.norm"}},
                                           {"frozen", {"model.embed_tokens", "lm_head"}},
                                           {"meta", true}})});
  judge_training({.world_size = 3,
                  .options = {{"ignored", {"model.norm", "model.layers.0.mlp"}},
                              {"micro_batches", 6},
                              {"clip", 0.5}}});
}

TEST_CASE("Whatever is kept between forward and backward, no bit changes", "[7.4]") {
  for (const int group : {0, 1, 2}) {
    for (const int depth : {0, 1, 3}) {
      judge_training({.world_size = 4,
                      .options = with(with(kToy, kEight),
                                      {{"layers", 5}, {"group", group}, {"depth", depth}})});
    }
  }
}

// Every two values of every two options meet in one of these rows.
TEST_CASE("Options in pairs train like any other", "[7.4]") {
  struct Row {
    int group, depth, limit;
    bool ignored, no_decay;
    int mixed;
    bool meta, frozen, tied;
    int per_reduction;
    bool abandons;
  };
  const std::vector<Row> rows = {
      {2, 2, 0, false, false, 0, false, false, false, 2, false},
      {1, 1, 1, true, true, 2, true, false, true, 1, true},
      {0, 0, 0, true, false, 1, false, true, true, 1, true},
      {0, 1, 1, false, true, 1, true, true, false, 2, false},
      {2, 2, 1, true, true, 0, true, true, true, 2, true},
      {1, 0, 0, false, true, 2, false, true, false, 2, false},
      {0, 0, 1, false, false, 0, true, false, true, 1, false},
      {1, 2, 0, true, false, 1, true, false, false, 1, true},
      {2, 1, 0, false, false, 2, false, true, false, 1, true},
      {0, 2, 1, true, false, 2, false, true, false, 1, false},
      {1, 1, 1, true, true, 0, false, true, false, 1, false},
      {2, 0, 1, false, true, 1, false, false, true, 2, false},
  };
  for (const Row& row : rows) {
    Json options = with(kEight, {{"group", row.group},
                                 {"depth", row.depth},
                                 {"limit", row.limit},
                                 {"meta", row.meta},
                                 {"tied", row.tied},
                                 {"per_reduction", row.per_reduction},
                                 {"abandons", row.abandons},
                                 {"evaluates", row.abandons}});
    if (row.ignored) options["ignored"] = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
    if (row.no_decay) options["no_decay"] = {"norm"};
    if (row.frozen) options["frozen"] = {"model.layers.0"};
    if (row.mixed > 0) options["param"] = "bfloat16";
    if (row.mixed > 0) options["reduce"] = row.mixed == 1 ? "float32" : "bfloat16";
    judge_training({.world_size = 4, .options = options});
  }
}

TEST_CASE("Two micro-steps of four share a reduction", "[7.4]") {
  judge_gradients({.world_size = 2, .options = with(kEight, {{"per_reduction", 2}})});
  judge_training({.world_size = 2,
                  .options = with(kEight, {{"per_reduction", 2}, {"ignored", {"model.norm"}}})});
}

TEST_CASE("Four steps, with evaluations and with forwards that no backward follows", "[7.4]") {
  for (const int group : {0, 1, 2}) {
    judge_training({.world_size = 4,
                    .options = with(with(with(kToy, kEight), kAbandons), {{"group", group}})});
  }
  judge_training(
      {.world_size = 2, .options = with(with(kEight, kAbandons), {{"ignored", {"model.norm"}}})});
}

TEST_CASE("The loss scale is part of the plan, for shards and for what is ignored", "[7.4]") {
  judge_gradients(
      {.world_size = 2, .options = with(kEight, {{"loss_scale", 32}, {"ignored", {"lm_head"}}})});
}

TEST_CASE("Only ignored parameters are trained", "[7.4]") {
  judge_training({.world_size = 2,
                  .options = with(kEight, {{"ignored", {"model.norm"}},
                                           {"frozen", {"model.embed", "model.layers", "lm"}}})});
}

TEST_CASE("The peak of memory matches the formula for small weights too", "[7.4]") {
  judge_memory({.world_size = 2, .options = {{"clip", 0.5}, {"micro_batches", 4}}});
  judge_memory(
      {.world_size = 4, .options = {{"micro_batches", 8}, {"ignored", {"model.norm", "lm_head"}}}});
}

TEST_CASE("A visit also reshards the units that a forward left unsharded", "[7.5]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    judge_visit({.world_size = world_size, .options = {{"abandons", true}}});
  }
  judge_visit({.world_size = 3, .options = {{"abandons", true}, {"group", 1}}});
  judge_visit({.world_size = 2, .options = {{"abandons", true}, {"tied", true}}});
}

TEST_CASE("load_full reaches units that a forward left unsharded", "[7.5]") {
  judge_load_full({.options = {{"ranks", 2}, {"abandons", true}}});
  judge_load_full({.options = {{"ranks", 3}, {"abandons", true}, {"tied", true}}});
}

TEST_CASE("What is frozen is part of the full state, in units and ignored", "[7.5]") {
  judge_visit({.world_size = 2, .options = with(kFrozenParts, kMixed)});
  judge_load_full(
      {.options = with(kFrozenParts, {{"ranks", 4}, {"group", 2}, {"abandons", true}})});
}

TEST_CASE("load_full refuses a file in which one tensor does not fit", "[7.5]") {
  judge_load_full({.options = {{"ranks", 2}, {"damage", "lacks"}}});
  judge_load_full({.options = {{"ranks", 2}, {"damage", "shape"}}});
  judge_load_full({.options = with(kIgnoredEnds, {{"ranks", 2}, {"damage", "vocabulary"}})});
}

TEST_CASE("load_full refuses a file with tensors that the model would not read", "[7.5]") {
  for (const bool tied : {false, true}) {
    judge_load_full({.options = {{"ranks", 2}, {"damage", "deeper"}, {"tied", tied}}});
  }
}

TEST_CASE("Two ranks load what three saved, even after a save that crashed", "[7.5]") {
  judge_handover({.options = {{"ranks", 3}, {"heirs", 2}, {"ignored", {"model.norm"}}}});
  judge_handover({.options = {{"ranks", 2}, {"heirs", 3}, {"crash", true}}});
}

TEST_CASE("A checkpoint's number is not the count of steps", "[7.6]") {
  judge_resume(
      {.options = with(kEight, {{"ranks", 2}, {"number", 700}, {"ignored", {"lm_head"}}})});
}

TEST_CASE("Ignored, frozen parameters are saved with everything else", "[7.6]") {
  judge_resume({.options = with(kEight, {{"ranks", 2},
                                         {"ignored", {"model.embed_tokens", "model.norm"}},
                                         {"frozen", {"model.embed_tokens"}}})});
}

TEST_CASE("What is frozen is saved and loaded, in units and ignored, whatever the optimizer",
          "[7.6]") {
  judge_slices(
      {.world_size = 2, .options = with(with(kFrozenParts, kMixed), {{"optimizer", "momentum"}})});
  judge_resume({.options = with(kFrozenParts,
                                {{"ranks", 4}, {"heirs", 4}, {"group", 2}, {"abandons", true}})});
}

TEST_CASE("A loaded state is trained, saved and loaded again", "[7.6]") {
  judge_resume(
      {.options = with(
           kEight, {{"ranks", 4}, {"steps", 3}, {"again", true}, {"ignored", {"model.norm"}}})});
}

TEST_CASE("A checkpoint is loaded into a model that has been used", "[7.6]") {
  judge_resume({.options = with(kEight, {{"ranks", 2}, {"trained", true}, {"abandons", true}})});
}

TEST_CASE("A save that crashed leaves nothing in the next checkpoint", "[7.6]") {
  judge_resume({.options = with(kEight, {{"ranks", 2}, {"crash", true}})});
}

TEST_CASE("A checkpoint with one part that does not fit changes nothing", "[7.6]") {
  judge_damaged({.options = with(kIgnoredEnds, {{"damage", "vocabulary"}})});
  for (const char* damage : {"count", "deeper"}) {
    judge_damaged({.options = {{"micro_batches", 4}, {"damage", damage}}});
  }
}
