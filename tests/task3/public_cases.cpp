// The public cases of task 3.
#include "graded/expect.h"
#include "support/catch.h"
#include "task3/cases.h"

using namespace fsdp::graded;

namespace {

const std::vector<Json> kLayers = {
    {{"width", 5}},                   // 30 elements: W = 4 pads two
    {{"width", 1}},                   // 2 elements: empty shards at W = 3, 4
    {{"width", 3}, {"spare", true}},  // three parameters
    {{"width", 4}, {"frozen", Json::array({"layers.0.bias"})}},  // two flat parameters
};

/// Runs `judge` on every layer and world.
template <class Judge>
void everywhere(const Judge& judge, Delivery delivery = Delivery::plain,
                const Json& more = Json::object()) {
  for (const Json& layer : kLayers) {
    for (const int world_size : worlds({1, 2, 3, 4})) {
      for (const std::uint64_t seed : seeds({1})) {
        Json options = layer;
        options.update(more);
        judge({.world_size = world_size, .seed = seed, .delivery = delivery, .options = options});
      }
    }
  }
}

/// Runs judge_calls() for all of `calls`. Letters: s, S, c: start_unshard in forward, in backward,
/// in a third phase; f, F: finish_unshard in forward, in backward; r: reshard; k:
/// reshard_to_subgroup; u: an optimizer step.
void in_order(const std::string& step, const std::vector<std::string>& calls, const Setup& setup) {
  for (const std::string& each : calls) {
    Setup asked = setup;
    asked.options["calls"] = each;
    judge_calls(step, asked);
  }
}

// The first is the smaller one, and frozen; in kLayers it is the larger one, and trainable.
const Json kTwoFlats = {{"width", 4}, {"frozen", {"layers.0.bias"}}, {"frozen_first", true}};

const Json kFrozen = {{"width", 3}, {"frozen", {"layers.0"}}};

}  // namespace

TEST_CASE("start_unshard gathers into the flat vector and does not wait", "[3.1]") {
  everywhere(judge_start);
}

TEST_CASE("start_unshard allocates the flat vector and nothing else", "[3.1]") {
  for (const int world_size : worlds({2, 3, 4})) {
    judge_start_peak({.world_size = world_size, .options = {{"width", 128}}});
  }
}

TEST_CASE("start_unshard in every phase and under every option", "[3.1]") {
  for (const int group : {0, 1, 2}) {
    in_order("3.1", {"s", "S", "sS", "Ss", "c"},
             {.world_size = 4, .options = with(kTwoFlats, {{"group", group}, {"keep", {0}}})});
  }
  in_order("3.1", {"s", "S"}, {.world_size = 2, .options = kFrozen});
  in_order("3.1", {"Ss"}, {.world_size = 8, .options = {{"group", 2}}});
  in_order("3.1", {"s", "S"}, {.world_size = 3, .options = with(kTwoFlats, {{"wide", true}})});
}

TEST_CASE("finish_unshard waits for the gather that start_unshard began", "[3.2]") {
  everywhere(judge_finish, Delivery::lazy);
}

TEST_CASE("finish_unshard alone also gathers", "[3.2]") {
  everywhere(judge_finish, Delivery::lazy, {{"started", false}});
}

TEST_CASE("The two halves in every order and every phase", "[3.2]") {
  const std::vector<std::string> orders = {"f",    "F",    "sF",   "Sf", "SF",
                                           "fsFS", "SsfF", "FfsS", "C",  "sC"};
  for (const Delivery delivery : {Delivery::lazy, Delivery::eager}) {
    in_order("3.2", orders, {.world_size = 3, .delivery = delivery, .options = kTwoFlats});
  }
  in_order("3.2", {"sfF", "F"},
           {.world_size = 4, .delivery = Delivery::lazy, .options = {{"group", 2}}});
  in_order("3.2", {"sF"},
           {.world_size = 2, .delivery = Delivery::lazy, .options = {{"wide", true}}});
}

TEST_CASE("finish_unshard throws if another rank has failed", "[3.2]") {
  for (const char* calls : {"sf", "F"}) {
    judge_failure("3.2", "finish_unshard()",
                  {.world_size = 3,
                   .delivery = Delivery::fails,
                   .options = with(kTwoFlats, {{"calls", calls}})});
  }
}

TEST_CASE("reshard frees the storage and keeps the views", "[3.3]") { everywhere(judge_reshard); }

TEST_CASE("reshard waits for a gather in flight", "[3.3]") {
  everywhere(judge_reshard, Delivery::lazy, {{"when", "unsharding"}});
}

TEST_CASE("reshard throws if another rank has failed", "[3.3]") {
  judge_failure("3.3", "reshard()",
                {.world_size = 3,
                 .delivery = Delivery::fails,
                 .options = with(kTwoFlats, {{"calls", "sr"}})});
}

TEST_CASE("reshard follows no option", "[3.3]") {
  for (const Json& options : {Json{{"group", 1}}, Json{{"keep", {0}}}}) {
    in_order("3.3", {"frrsrFr"}, {.world_size = 2, .options = with(kTwoFlats, options)});
  }
}

TEST_CASE("Ten rounds of gather, reshard and optimizer step", "[3.3]") {
  for (const Json& options : {kTwoFlats, with(kTwoFlats, {{"wide", true}}), Json{{"width", 1}}}) {
    in_order("3.3", {"sfruSFrufrusfruFrusFruSfrusfruSFrufru"},
             {.world_size = 3, .delivery = Delivery::lazy, .options = options});
  }
}

TEST_CASE("The two halves and reshard in every order", "[3.3]") {
  in_order("3.3", {"rrsrSrfrFr", "sSrrfFrrsfrf", "rurufsSrSsr", "fuFruf"},
           {.world_size = 2, .delivery = Delivery::lazy, .options = kTwoFlats});
  in_order("3.3", {"SrsrFrf"}, {.world_size = 4, .options = {{"group", 2}}});
}

TEST_CASE("Within a subgroup a rank keeps 1/s of the parameters", "[3.4]") {
  for (const auto& [world_size, group] : {std::pair{4, 2}, {8, 2}, {8, 4}, {6, 3}}) {
    for (const int width : {1, 5, 8}) {
      judge_subgroup({.world_size = world_size,
                      .delivery = Delivery::lazy,
                      .options = {{"width", width}, {"group", group}}});
    }
  }
}

TEST_CASE("Parts are kept, gathered and dropped in every order", "[3.4]") {
  const std::vector<std::string> orders = {"fkFr",    "kkfkkSFkrf",    "fkSruf",
                                           "fkfrFkf", "sFkSsFkFrufkF", "fkrrkF"};
  for (const int world_size : {4, 8}) {
    in_order("3.4", orders,
             {.world_size = world_size,
              .delivery = Delivery::lazy,
              .options = with(kTwoFlats, {{"group", 2}})});
  }
  in_order("3.4", {"fkFr"}, {.world_size = 4, .options = with(kFrozen, {{"group", 2}})});
  in_order("3.4", {"fkFr"},
           {.world_size = 4, .options = with(kTwoFlats, {{"group", 2}, {"keep", {0}}})});
  in_order("3.4", {"fkFrufkF"},
           {.world_size = 6,
            .delivery = Delivery::lazy,
            .options = with(kTwoFlats, {{"group", 3}, {"wide", true}})});
}

TEST_CASE("The hooks gather before a unit computes and reshard after it", "[3.5]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    for (const Delivery delivery : {Delivery::plain, Delivery::lazy}) {
      judge_hooks({.world_size = world_size,
                   .delivery = delivery,
                   .options = {{"width", 5}, {"layers", 3}}});
    }
  }
}

TEST_CASE("What is kept until backward follows the options", "[3.5]") {
  for (const int world_size : worlds({2, 3, 1})) {
    judge_hooks({.world_size = world_size, .options = {{"layers", 3}, {"keep", {2}}}});
    judge_hooks({.world_size = world_size, .options = {{"layers", 3}, {"group", 1}}});
  }
  judge_hooks({.world_size = 4, .options = {{"layers", 3}, {"group", 2}, {"keep", {0}}}});
  judge_hooks({.world_size = 2, .options = {{"layers", 3}, {"keep", {1}}, {"set_options", true}}});
}

TEST_CASE("Several forwards in a row, with and without a tape", "[3.5]") {
  const std::vector<std::string> passes = {"tape", "eval",  "tape",   "reset", "update", "tape",
                                           "tape", "tape",  "update", "reset", "eval",   "again",
                                           "eval", "reset", "again",  "reset"};
  const Json model = {{"layers", 3}, {"width", 4}, {"frozen", {"layers.0.bias", "layers.1"}}};
  for (const Json& rule : {Json{{"group", 0}}, Json{{"group", 1}}, Json{{"keep", {0, 2}}}}) {
    Json options = with(model, rule);
    options["passes"] = rule.contains("group") && rule.at("group") == 0
                            ? Json(passes)
                            : Json{"tape",   "eval",  "update", "tape", "tape", "reset",
                                   "update", "again", "again",  "eval", "reset"};
    judge_hooks({.world_size = 3, .delivery = Delivery::lazy, .options = options});
  }
  judge_hooks({.world_size = 2, .options = with(model, {{"wide", true}, {"passes", {"tape"}}})});
}

TEST_CASE("Parts that no backward gathers", "[3.5]") {
  for (const int world_size : {4, 8}) {
    judge_hooks({.world_size = world_size,
                 .delivery = Delivery::lazy,
                 .options = {{"layers", 2},
                             {"group", 2},
                             {"frozen", {"layers.1"}},
                             {"passes",
                              {"tape", "tape", "eval", "again", "eval", "tape", "reset", "update",
                               "tape", "reset"}}}});
  }
}

TEST_CASE("A gather that is in flight before a forward", "[3.5]") {
  judge_hooks(
      {.world_size = 3,
       .delivery = Delivery::lazy,
       .options = {{"layers", 2}, {"passes", {"ahead", "tape", "reset", "ahead", "eval"}}}});
}

TEST_CASE("A unit still works after its module throws", "[3.5]") {
  for (const int group : {0, 1}) {
    judge_hooks({.world_size = 2,
                 .options = {{"layers", 2},
                             {"group", group},
                             {"passes",
                              {"throws", "reset", "tape", "reset", "throws", "eval", "throws",
                               "tape", "reset"}}}});
  }
}

TEST_CASE("A unit is destroyed before its module", "[3.5]") { judge_destroyed({.world_size = 2}); }

TEST_CASE("The hooks also work without a scheduler", "[3.5]") {
  judge_hooks({.world_size = 2, .options = {{"layers", 2}, {"scheduler", false}}});
}

TEST_CASE("Under mixed precision a cast copy of the shard is gathered", "[3.6]") {
  everywhere(judge_start, Delivery::plain, {{"param", "bfloat16"}});
  judge_start({.world_size = 3, .options = with(kTwoFlats, {{"param", "float16"}})});
  in_order("3.6", {"s", "S"},
           {.world_size = 4, .options = with(kTwoFlats, {{"param", "bfloat16"}})});
}

TEST_CASE("Under mixed precision the cast copy is freed with the gather", "[3.6]") {
  everywhere(judge_finish, Delivery::lazy, {{"param", "bfloat16"}});
}

TEST_CASE("Under mixed precision parts are kept in the dtype that the model reads", "[3.6]") {
  for (const int width : {1, 5}) {
    judge_subgroup({.world_size = 4,
                    .delivery = Delivery::lazy,
                    .options = {{"width", width}, {"group", 2}, {"param", "bfloat16"}}});
  }
}
