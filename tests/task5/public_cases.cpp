// The public cases of task 5.
#include "graded/expect.h"
#include "support/catch.h"
#include "task5/cases.h"

using namespace fsdp::graded;

namespace {

/// One flat parameter of the option "flats".
Json flat(const char* unit, const Json& shapes, bool trainable = true, bool decay = true) {
  return Json::array({unit, shapes, trainable, decay});
}

Json model(const std::vector<Json>& flats, const Json& more = Json::object()) {
  Json options = {{"flats", flats}};
  options.update(more);
  return options;
}

/// Three flat parameters in a unit, one of them frozen; another unit (flats.h).
const Json kMixed = Json::object();
/// Shards without an element, and ranks that hold nothing but padding.
const Json kTiny =
    model({flat("a", {{1}}), flat("b", {{2}, {3}}), flat("c", {{1, 1}}, true, false)});
/// Frozen first, and a whole frozen unit.
const Json kFrozen = model({flat("a", {{3}}, false), flat("a", {{7}}, true, false),
                            flat("b", {{5}}, false), flat("c", {{4}, {4}})});
/// Units whose names do not sort in their order; decaying and other flat parameters take turns.
const Json kUnsorted = model({flat("layers.2", {{6}}), flat("layers.2", {{2}}, true, false),
                              flat("layers.10", {{3, 3}}), flat("layers.10", {{1}}, true, false),
                              flat("embed", {{5}}, false), flat("embed", {{4}})});
const std::vector<Json> kModels = {kMixed, kTiny, kFrozen, kUnsorted};
/// Nothing to train, and nothing at all.
const Json kAllFrozen = model({flat("a", {{4, 2}, {5}}, false), flat("b", {{7}}, false)});
const Json kNothing = model({});

/// Runs `judge` for every W and seed.
template <class Judge>
void at_all(const Judge& judge, const Json& options, Delivery delivery = Delivery::plain,
            const std::vector<int>& given = {1, 2, 3, 4}) {
  for (const int world_size : worlds(given)) {
    for (const std::uint64_t seed : seeds({1})) {
      judge({.world_size = world_size, .seed = seed, .delivery = delivery, .options = options});
    }
  }
}

}  // namespace

TEST_CASE("Pieces are trainable shards, under keys that name their place", "[5.1]") {
  for (const Json& each : kModels) at_all(judge_pieces, each);
}

TEST_CASE("Steps on shards give the same bits as steps on whole parameters", "[5.2]") {
  for (const Json& each : kModels) {
    at_all(judge_step, with(each, {{"steps", 3}}), Delivery::plain, {2, 1, 3, 4, 5, 8});
    at_all(judge_step, with(each, {{"steps", 2}, {"optimizer", "momentum"}}), Delivery::plain,
           {2, 3});
  }
  at_all(judge_step, {{"steps", 4}, {"optimizer", "sgd"}}, Delivery::plain, {2, 3});
}

TEST_CASE("The same holds for an optimizer that has already made steps", "[5.2]") {
  at_all(judge_step, {{"steps", 2}, {"begin_at", 7}}, Delivery::plain, {1, 3});
}

TEST_CASE("After a step padding is zero, whatever it held before", "[5.2]") {
  for (const Json& each : kModels) {
    at_all(judge_step, with(each, {{"steps", 3}, {"poison", "7"}}), Delivery::plain, {2, 3, 4, 7});
    at_all(judge_step, with(each, {{"steps", 2}, {"poison", "nan"}}), Delivery::plain, {4});
  }
  for (const char* optimizer : {"momentum", "sgd"}) {
    at_all(judge_step, {{"steps", 5}, {"poison", "7"}, {"optimizer", optimizer}}, Delivery::plain,
           {2, 4});
  }
  for (const char* only : {"param", "grad", "state"}) {
    for (const char* value : {"-7", "nan", "-inf"}) {
      at_all(judge_step, {{"steps", 1}, {"poison", value}, {"poisoned", only}}, Delivery::plain,
             {4});
    }
  }
}

TEST_CASE("Steps on float64 shards give the same bits as steps on whole parameters", "[5.2]") {
  for (const char* optimizer : {"adamw", "momentum"}) {
    at_all(judge_double_step,
           {{"steps", 3}, {"double", true}, {"optimizer", optimizer}, {"poison", "nan"}},
           Delivery::plain, {2, 4});
  }
}

TEST_CASE("A step with nothing to train counts, and clears the padding of frozen shards", "[5.2]") {
  for (const char* poison : {"0", "-inf"}) {
    at_all(judge_step, with(kAllFrozen, {{"steps", 3}, {"poison", poison}}), Delivery::plain,
           {1, 2, 3, 4});
  }
  at_all(judge_step, with(kNothing, {{"steps", 2}}), Delivery::plain, {2});
}

TEST_CASE("A step needs no memory besides the optimizer's state", "[5.2]") {
  at_all(judge_step, model({flat("a", {{128, 96}}), flat("b", {{96, 128}})}, {{"steps", 2}}),
         Delivery::plain, {2, 3});
}

TEST_CASE("The squares of a rank's gradients, without padding", "[5.3]") {
  for (const Json& each : kModels) {
    at_all(judge_squares, each, Delivery::plain, {1, 2, 3, 4, 8});
    at_all(judge_squares, with(each, {{"poison", "1e6"}}), Delivery::plain, {2, 3, 4, 7});
    at_all(judge_squares, with(each, {{"poison", "nan"}}), Delivery::plain, {4});
  }
  at_all(judge_squares, {{"poison", "-inf"}}, Delivery::plain, {3});
  at_all(judge_squares, {{"bad", "inf"}, {"bad_rank", 1}}, Delivery::plain, {2, 3});
  at_all(judge_squares, model({flat("a", {{128, 96}})}), Delivery::plain, {3});
}

TEST_CASE("Clipping uses the norm of the whole gradient, which is equal at every W", "[5.4]") {
  for (const Json& each : kModels) {
    for (const Delivery delivery : {Delivery::lazy, Delivery::eager}) {
      at_all(judge_clip, with(each, {{"max_norm", 0.25}}), delivery, {2, 1, 3, 4, 5, 8});
    }
    at_all(judge_clip, with(each, {{"max_norm", 0.5}, {"poison", "1e6"}}), Delivery::plain,
           {2, 3, 4});
    at_all(judge_clip, with(each, {{"max_norm", 0.5}, {"poison", "nan"}}), Delivery::plain, {4});
  }
}

TEST_CASE("The norm is sent even if there is nothing to add or to scale", "[5.4]") {
  for (const Json& each : {kAllFrozen, kNothing}) {
    for (const bool others : {true, false}) {
      at_all(judge_clip, with(each, {{"max_norm", 0.5}, {"others", others}}), Delivery::lazy,
             {1, 2, 3});
    }
  }
}

TEST_CASE("If another rank fails, clipping fails too", "[5.4]") {
  for (const Json& each : {kMixed, kTiny, kNothing}) {
    for (const int world_size : {1, 3}) {  // odd: nothing that a trace shows happens
      judge_clip_beside_a_failure({.world_size = world_size, .options = each});
    }
  }
}

TEST_CASE("A small gradient stays as it is", "[5.4]") {
  for (const Json& each : kModels) {
    at_all(judge_clip, with(each, {{"max_norm", 1e9}}), Delivery::plain, {1, 2, 3});
    at_all(judge_clip, with(each, {{"max_norm", 0.5}, {"others", true}}), Delivery::plain,
           {1, 2, 3});
  }
}

TEST_CASE("Without a limit nothing is clipped, and the norm is returned", "[5.4]") {
  for (const Json& each : {kMixed, kTiny}) {
    at_all(judge_clip, with(each, {{"unlimited", true}}), Delivery::plain, {1, 2, 3, 4});
  }
}

TEST_CASE("Close to max_norm, the 1e-6 decides", "[5.4]") {
  for (const double distance : {0.0, 5e-7, -1e-3, 1e-3}) {
    for (const int world_size : worlds({2, 3})) {
      judge_clip_beside({.world_size = world_size, .options = kMixed}, distance);
    }
  }
}

TEST_CASE("Zero, tiny and huge gradients also have a norm", "[5.4]") {
  for (const double scale : {0.0, 1e-12, 1e18}) {
    for (const Json& each : {kMixed, kTiny}) {
      at_all(judge_clip, with(each, {{"scale", scale}, {"max_norm", 0.5}}), Delivery::plain,
             {2, 4});
    }
  }
}

TEST_CASE("A gradient is scaled down however small it is", "[5.4]") {
  at_all(judge_clip, {{"scale", 0.01}, {"max_norm", 0.001}}, Delivery::plain, {1, 3});
}

TEST_CASE("A norm that is not finite is an error on every rank", "[5.4]") {
  for (const char* bad : {"inf", "nan"}) {
    at_all(judge_clip, {{"bad", bad}, {"bad_rank", 0}}, Delivery::plain, {1, 2, 4});
    at_all(judge_clip, {{"bad", bad}, {"bad_rank", 1}}, Delivery::plain, {2, 3});
  }
}

TEST_CASE("Slices name every element of the training state once", "[5.5]") {
  at_all(judge_state, {{"steps", 1}, {"alone", true}}, Delivery::plain, {2, 3});
  for (const Json& each : kModels) {
    at_all(judge_state, with(each, {{"steps", 1}}), Delivery::plain, {2, 1, 3, 4, 5, 8});
    at_all(judge_state, with(each, {{"steps", 0}}), Delivery::plain, {2, 3});
  }
  for (const char* optimizer : {"momentum", "sgd"}) {
    at_all(judge_state, {{"steps", 2}, {"optimizer", optimizer}}, Delivery::plain, {3});
  }
}

TEST_CASE("A state saved at one W loads at another", "[5.5]") {
  for (const auto& [saved_at, loaded_at] : {std::pair{4, 2}, {2, 4}, {1, 3}, {3, 1}, {5, 4}}) {
    for (const Json& each : kModels) {
      judge_reload({.world_size = 1,
                    .options = with(each, {{"saved_at", saved_at}, {"loaded_at", loaded_at}})});
    }
  }
}
