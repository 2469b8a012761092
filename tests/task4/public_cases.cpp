// The public cases of task 4.
#include "graded/expect.h"
#include "support/catch.h"
#include "task4/cases.h"

using namespace fsdp::graded;

namespace {

/// First units of all kinds: with padding, with empty shards, with an unused parameter, with a
/// frozen part, with a weight that is used twice, with two trainable flat parameters.
const std::vector<Json> kUnits = {
    {{"width", 5}},
    {{"width", 1}},
    {{"width", 3}, {"spare", true}},
    {{"width", 4}, {"frozen", Json::array({"layers.0.bias"})}},
    {{"width", 3}, {"tied", true}},
    {{"width", 4}, {"split", true}},
};

struct Plan {
  int micro_steps, per_reduction;
};

Json planned(Json options, const Plan& plan) {
  return with(std::move(options),
              {{"micro_steps", plan.micro_steps}, {"per_reduction", plan.per_reduction}});
}

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

/// Whole models.
const std::vector<Json> kModels = {
    {{"width", 5}},
    {{"width", 1}},
    {{"width", 3}, {"spare", true}},
    {{"width", 4}, {"root", true}},
    {{"width", 5}, {"tied", true}},
    {{"width", 3}, {"shared", true}, {"root", true}},
    {{"width", 3}, {"nested", true}},
    {{"width", 4}, {"split", true}},
};
/// A model whose forward calls a layer twice, or does not call one.
const std::vector<Json> kOrders = {
    {{"order", {0, 1, 1, 2}}}, {{"order", {0, 1, 2, 0}}}, {{"order", {2, 0, 1, 2}}}};
const std::vector<Json> kUnreached = {
    {{"order", {0, 2}}}, {{"order", {1, 2}}}, {{"order", {0, 1}}}};
/// What is called changes from micro-step to micro-step, on all ranks alike.
const std::vector<Json> kChanging = {{{"orders", {{0, 1, 2}, {0, 2}}}},
                                     {{"orders", {{1, 2}, {0, 1}, {2}}}},
                                     {{"orders", {{0, 2}, {0, 1, 1, 2}, {2, 0, 1}}}}};
/// A layer is called, and its output is not used: one that backward does not reach in that
/// micro-step, one that it does, and one that it does while another is not reached.
const std::vector<Json> kAside = {
    {{"orders", {{0, 2}, {0, 1, 2}}}, {"aside", Json::array({{1}, Json::array()})}},
    {{"aside", Json::array({Json::array(), {1}})}},
    {{"order", {0, 2}}, {"aside", Json::array({{2}, Json::array()})}}};
/// Frozen at the bottom, in the middle, at the top, and in part.
const std::vector<Json> kFrozen = {
    {{"frozen", Json::array({"layers.0"})}},
    {{"frozen", Json::array({"layers.1"})}},
    {{"frozen", Json::array({"layers.2"})}},
    {{"frozen", Json::array({"layers.1.weight"})}, {"spare", true}},
    {{"frozen", Json::array({"layers.1"})}, {"order", {0, 1, 1, 2}}},
};

/// Options that no list above sets together.
const std::vector<Json> kPairs = {
    {{"root", true}, {"split", true}, {"order", {0, 2}}, {"keep", {"layers.2"}}},
    {{"tied", true},
     {"split", true},
     {"group", 1},
     {"orders", {{0, 1, 2}, {0, 2}}},
     {"frozen", Json::array({"layers.1"})}},
    {{"nested", true}, {"spare", true}, {"orders", {{0, 2}, {0, 1, 1, 2}}}},
    {{"shared", true},
     {"root", true},
     {"frozen", Json::array({"layers.0.bias"})},
     {"dropped", {1}},
     {"evaluate", true}},
    {{"nested", true},
     {"root", true},
     {"split", true},
     {"order", {0, 1, 1, 2}},
     {"evaluate", true}},
};

const Plan kPairPlans[] = {{4, 2}, {2, 1}};

/// Mixed precision: sums in the dtype of the gradients, and in a wider one.
const std::vector<Json> kPolicies = {{{"param", "bfloat16"}, {"reduce", "float32"}},
                                     {{"param", "bfloat16"}, {"reduce", "bfloat16"}}};

}  // namespace

TEST_CASE("pre_backward unshards a unit and allocates its gradients", "[4.1]") {
  for (const Json& unit : kUnits) at_all(judge_pre_backward, unit, Delivery::lazy);
  at_all(judge_pre_backward, {{"frozen", Json::array({"layers.0"})}}, Delivery::lazy, {2});
  at_all(judge_pre_backward, {{"micro_steps", 2}, {"micro_step", 1}}, Delivery::lazy, {1, 2});
}

TEST_CASE("Parameters kept since forward are not gathered again", "[4.1]") {
  at_all(judge_pre_backward, {{"kept", true}}, Delivery::plain, {2, 3});
  at_all(judge_pre_backward, {{"scheduler", false}}, Delivery::plain, {2});
  at_all(judge_pre_backward, {{"group", 1}}, Delivery::plain, {2});
  at_all(judge_pre_backward, {{"keep", {"layers.0"}}}, Delivery::plain, {2});
}

TEST_CASE("Unused parameters and padding get +0", "[4.2]") {
  for (const bool poison : {false, true}) {
    for (const Json& unit : kUnits) at_all(judge_complete, with(unit, {{"poison", poison}}));
    at_all(judge_complete, {{"poison", poison}, {"spare", true}, {"written", {0, 1, 2}}});
    at_all(judge_complete, {{"poison", poison}, {"written", Json::array()}});
    at_all(judge_complete, {{"poison", poison}, {"width", 2}, {"spare", true}, {"written", {2}}});
  }
}

TEST_CASE("A gradient is completed in place", "[4.2]") {
  at_all(judge_complete, {{"width", 128}}, Delivery::plain, {3});
}

TEST_CASE("A unit's gradient is summed by one reduce-scatter", "[4.3]") {
  for (const Json& unit : kUnits) {
    at_all(judge_start_reduce, unit, Delivery::lazy);
    at_all(judge_start_reduce, unit, Delivery::eager, {3});
  }
  at_all(judge_start_reduce, {{"frozen", Json::array({"layers.0"})}}, Delivery::plain, {2});
}

TEST_CASE("Under no_sync micro-steps are added first and reduced once", "[4.3]") {
  for (const Plan& plan : {Plan{2, 2}, {3, 3}, {4, 4}}) {
    at_all(judge_start_reduce, planned({{"width", 5}}, plan), Delivery::lazy);
    at_all(judge_start_reduce, planned({{"width", 1}}, plan), Delivery::eager);
  }
  at_all(judge_start_reduce, planned(kUnits[3], {2, 2}), Delivery::lazy);
}

TEST_CASE("A step may have several groups of micro-steps", "[4.3]") {
  for (const Plan& plan : {Plan{3, 1}, {4, 2}, {6, 3}}) {
    at_all(judge_start_reduce, planned({{"width", 5}}, plan), Delivery::lazy, {2, 3});
  }
}

TEST_CASE("A reduction allocates its leaf and nothing else", "[4.3]") {
  at_all(judge_start_reduce_peak, {{"width", 128}}, Delivery::plain, {2, 3, 4});
  for (const Plan& plan : {Plan{2, 2}, {3, 3}, {8, 4}}) {
    at_all(judge_start_reduce_peak, planned({{"width", 128}}, plan), Delivery::plain, {2, 3});
  }
}

TEST_CASE("A leaf has the dtype of its gradient", "[4.3]") {
  for (const Plan& plan : {Plan{1, 1}, {3, 3}}) {
    at_all(judge_double_leaf, planned({{"width", 5}, {"double", true}}, plan), Delivery::plain,
           {2, 3});
  }
}

TEST_CASE("A finished reduction leaves a shard and no full gradient", "[4.4]") {
  for (const Json& unit : kUnits) {
    at_all(judge_finish_reduce, unit, Delivery::lazy);
    at_all(judge_finish_reduce, unit, Delivery::eager, {3});
  }
}

TEST_CASE("Shards are summed over the micro-steps", "[4.4]") {
  for (const Plan& plan : {Plan{3, 1}, {4, 1}, {2, 2}, {4, 2}, {6, 3}}) {
    at_all(judge_finish_reduce, planned({{"width", 5}}, plan), Delivery::lazy);
    at_all(judge_finish_reduce, planned({{"width", 1}, {"spare", true}}, plan), Delivery::eager,
           {2, 3});
  }
}

TEST_CASE("A rank that fails during a reduction is noticed", "[4.4]") {
  for (const Json& unit : {kUnits[0], kUnits[5]}) {
    at_all(judge_finish_failed, unit, Delivery::fails, {2, 3});
  }
}

TEST_CASE("In a mesh a leaf is handed over with its bytes", "[4.4]") {
  for (const Json& unit : {kUnits[0], kUnits[2], kUnits[5]}) {
    at_all(judge_finish_reduce_in_mesh, with(planned(unit, {2, 1}), {{"replicas", 2}}),
           Delivery::lazy, {4});
  }
}

TEST_CASE("Finishing a reduction allocates nothing", "[4.4]") {
  for (const Plan& plan : {Plan{5, 1}, {4, 2}}) {
    at_all(judge_finish_reduce_peak, planned({{"width", 128}}, plan), Delivery::plain, {2, 3});
  }
}

TEST_CASE("After its backward a unit reshards and reduces its gradient", "[4.5]") {
  for (const Json& model : kModels) at_all(judge_until_end, model, Delivery::lazy);
  at_all(judge_until_end, kModels.front(), Delivery::eager);
  at_all(judge_until_end, {{"group", 1}}, Delivery::plain, {2});
  at_all(judge_until_end, {{"group", 2}}, Delivery::plain, {4});
  at_all(judge_until_end, {{"keep", {"layers.2"}}}, Delivery::plain, {2});
}

TEST_CASE("A module called twice reduces its gradient after the last call", "[4.5]") {
  for (const Json& order : kOrders) at_all(judge_until_end, order, Delivery::lazy, {1, 2, 3});
}

TEST_CASE("Frozen units only reshard", "[4.5]") {
  for (const Json& frozen : kFrozen) at_all(judge_until_end, frozen, Delivery::lazy, {2, 3});
}

TEST_CASE("There are never more than two full gradients", "[4.5]") {
  at_all(judge_two_gradients, {{"width", 6}, {"layers", 6}});
  at_all(judge_until_end_peak, {{"width", 128}, {"layers", 4}}, Delivery::plain, {2, 4});
}

TEST_CASE("Under no_sync a unit holds only its sums in addition", "[4.5]") {
  for (const Plan& plan : {Plan{2, 2}, {4, 4}}) {
    at_all(judge_until_each_end, planned({{"width", 6}, {"layers", 4}}, plan), Delivery::lazy,
           {2, 3});
  }
}

TEST_CASE("After backward only sharded gradients remain", "[4.6]") {
  for (const Json& model : kModels) {
    at_all(judge_whole_backward, model, Delivery::lazy);
    at_all(judge_whole_backward, planned(model, {2, 2}), Delivery::eager, {2, 3});
  }
  at_all(judge_whole_backward, planned(kModels.front(), {3, 1}), Delivery::lazy);
  at_all(judge_whole_backward, planned(kModels.front(), {4, 2}), Delivery::lazy);
  at_all(judge_whole_backward, {{"group", 1}}, Delivery::plain, {2, 3});
  at_all(judge_whole_backward, {{"group", 2}, {"keep", {"layers.2"}}}, Delivery::plain, {4});
}

TEST_CASE("Units that backward does not reach contribute +0", "[4.6]") {
  for (const Json& unreached : kUnreached) {
    at_all(judge_whole_backward, unreached, Delivery::lazy);
    at_all(judge_whole_backward, with(unreached, {{"group", 1}}), Delivery::plain, {2});
    at_all(judge_whole_backward, planned(unreached, {2, 2}), Delivery::plain, {2});
  }
  at_all(judge_whole_backward, {{"layers", 6}, {"order", {2}}}, Delivery::plain, {2, 3});
  for (const Plan& plan : {Plan{2, 2}, {4, 2}}) {
    at_all(judge_whole_backward, planned({{"layers", 6}, {"order", {2}}}, plan), Delivery::plain,
           {2});
  }
  at_all(judge_whole_backward, {{"ahead", true}}, Delivery::lazy, {1, 2, 3});
  at_all(judge_whole_backward, {{"ahead", true}, {"frozen", Json::array({"layers.2"})}},
         Delivery::lazy, {2});
}

TEST_CASE("Units that only an earlier micro-step reached contribute +0", "[4.6]") {
  for (const Json& changing : kChanging) {
    for (const Plan& plan : {Plan{2, 1}, {2, 2}, {3, 1}, {4, 4}}) {
      at_all(judge_whole_backward, planned(changing, plan), Delivery::lazy, {1, 2, 3});
    }
  }
}

TEST_CASE("An evaluation between forward and backward changes nothing", "[4.6]") {
  for (const Json& kept : {Json{{"root", true}}, {{"group", 1}}, {{"keep", {"layers.2"}}}}) {
    at_all(judge_whole_backward, with(planned(kept, {2, 1}), {{"evaluate", true}}), Delivery::plain,
           {2, 3});
  }
  at_all(judge_whole_backward, {{"group", 2}, {"evaluate", true}}, Delivery::plain, {4});
}

TEST_CASE("A backward that throws does not affect the next step", "[4.6]") {
  for (const Json& model : {kModels[0], kModels[3], kChanging[0]}) {
    at_all(judge_whole_backward, with(planned(model, {2, 1}), {{"fails", true}}), Delivery::lazy,
           {2, 3});
  }
  at_all(judge_whole_backward, with(planned(kModels[0], {2, 2}), {{"fails", true}}),
         Delivery::eager, {3});
}

TEST_CASE("Units are ordered by position, not by name", "[4.6]") {
  at_all(judge_whole_backward, {{"width", 2}, {"layers", 12}, {"order", {3, 10, 2, 0}}},
         Delivery::lazy, {2});
}

TEST_CASE("A dropped loss, frozen units and repeated calls leave nothing behind", "[4.6]") {
  at_all(judge_whole_backward, {{"dropped", {1}}}, Delivery::plain, {1, 2, 3});
  at_all(judge_whole_backward, planned({{"dropped", {2, 0, 1}}}, {3, 1}), Delivery::plain, {2, 3});
  at_all(judge_whole_backward,
         planned({{"dropped", {3}}, {"orders", {{0, 2}, {0, 1, 1, 2}}}}, {2, 2}), Delivery::plain,
         {2});
  for (const Json& frozen : kFrozen) {
    at_all(judge_whole_backward, frozen, Delivery::plain, {2, 3});
    at_all(judge_whole_backward, with(frozen, {{"group", 1}}), Delivery::plain, {2});
  }
  for (const Json& order : kOrders) {
    at_all(judge_whole_backward, planned(order, {2, 1}), Delivery::plain, {2});
  }
}

TEST_CASE("Options of a model go together", "[4.6]") {
  for (const Json& model : kPairs) {
    for (const Plan& plan : {Plan{2, 1}, {4, 2}}) {
      at_all(judge_whole_backward, planned(model, plan), Delivery::lazy, {2, 3});
    }
  }
}

TEST_CASE("A layer whose output is not used counts as not reached", "[4.6]") {
  for (const Json& aside : kAside) {
    for (const Plan& plan : {Plan{4, 1}, {4, 2}}) {
      at_all(judge_whole_backward, planned(aside, plan), Delivery::lazy, {2, 3});
    }
    at_all(judge_whole_backward, with(planned(aside, {2, 1}), {{"group", 1}}), Delivery::plain,
           {2});
  }
}

TEST_CASE("Gradients are averages with the bits of a single process", "[4.7]") {
  for (const Json& model : kModels) {
    at_all(judge_finish, planned(model, {1, 1}));
    for (const Plan& plan : {Plan{2, 1}, {2, 2}, {4, 2}}) {
      at_all(judge_finish, planned(model, plan), Delivery::plain, {2, 3});
    }
  }
  for (const Plan& plan : {Plan{2, 1}, {4, 4}}) {
    at_all(judge_finish, planned(kModels.front(), plan), Delivery::plain, {1, 4});
  }
}

TEST_CASE("Gradients are right whatever the model does", "[4.7]") {
  for (const auto* all : {&kOrders, &kUnreached, &kChanging, &kAside, &kFrozen}) {
    for (const Json& model : *all) {
      at_all(judge_finish, planned(model, {2, 1}), Delivery::lazy, {2, 3});
    }
  }
}

TEST_CASE("The average divides once by W times M", "[4.7]") {
  for (const Plan& plan : {Plan{3, 1}, {3, 3}, {6, 3}, {5, 1}}) {
    at_all(judge_finish, planned({{"width", 3}}, plan), Delivery::plain, {3, 5});
  }
}

TEST_CASE("Options of a model and of a step go together", "[4.7]") {
  for (std::size_t i = 0; i < kPairs.size(); ++i) {
    at_all(judge_finish, planned(with(kPairs[i], {{"loss_scale", 8.0}}), kPairPlans[i % 2]),
           Delivery::eager, {3});
  }
}

TEST_CASE("The average divides by the loss scale as well", "[4.7]") {
  for (const double scale : {8192.0, 0.125}) {
    for (const Plan& plan : {Plan{1, 1}, {3, 3}, {4, 2}}) {
      at_all(judge_finish, planned({{"width", 3}, {"loss_scale", scale}}, plan));
    }
  }
}

TEST_CASE("The average counts the replicas of a mesh once", "[4.7]") {
  for (const int replicas : {2, 4}) {
    for (const Plan& plan : {Plan{1, 1}, {2, 1}, {2, 2}}) {
      at_all(judge_finish_in_mesh, planned(with(kModels[2], {{"replicas", replicas}}), plan),
             Delivery::lazy, {4});
    }
    at_all(judge_finish_in_mesh, with(kModels[7], {{"replicas", replicas}, {"loss_scale", 8.0}}),
           Delivery::plain, {4});
  }
}

TEST_CASE("float64 parameters have float64 gradients", "[4.7]") {
  for (const Plan& plan : {Plan{1, 1}, {2, 1}, {3, 3}}) {
    at_all(judge_double_average, planned({{"width", 3}, {"root", true}, {"double", true}}, plan),
           Delivery::plain, {2, 3});
  }
}

TEST_CASE("One backward too many throws, and the next step is right", "[4.7]") {
  for (const Plan& plan : {Plan{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
    at_all(judge_finish, planned({{"extra", true}}, plan), Delivery::plain, {1, 2, 3});
  }
}

TEST_CASE("Every step gives the same bits, whatever came before it", "[4.7]") {
  at_all(judge_finish, {{"steps", 5}}, Delivery::lazy, {1, 2, 3});
  at_all(judge_finish, planned({{"steps", 4}, {"kept", true}}, {2, 1}), Delivery::plain, {2, 3});
  for (const Json& model : {kModels[4], kChanging[2], kAside[0]}) {
    at_all(judge_finish, with(planned(model, {4, 2}), {{"steps", 4}}), Delivery::lazy, {2});
  }
  at_all(judge_finish, planned({{"steps", 3}, {"dropped", {0, 2}}, {"evaluate", true}}, {2, 1}),
         Delivery::plain, {2});
}

TEST_CASE("The next step starts from nothing", "[4.7]") {
  at_all(judge_finish, planned({{"steps", 3}}, {3, 1}), Delivery::eager);
  at_all(judge_finish, planned({{"steps", 2}, {"spare", true}}, {4, 4}), Delivery::lazy);
}

TEST_CASE("Under mixed precision a gradient is cast once, before it is summed", "[4.8]") {
  for (const Json& policy : kPolicies) {
    for (const Plan& plan : {Plan{1, 1}, {4, 4}, {4, 2}}) {
      at_all(judge_start_reduce, planned(with(policy, {{"width", 5}}), plan), Delivery::lazy);
    }
    at_all(judge_start_reduce, with(kUnits[5], policy), Delivery::eager, {3});
  }
  const Json scaled = {{"width", 6}, {"param", "float16"}, {"reduce", "float32"}};
  at_all(judge_start_reduce, planned(scaled, {3, 3}), Delivery::lazy, {3});
}

TEST_CASE("Under mixed precision the sum is cast to the shard's dtype, then averaged", "[4.8]") {
  for (const Json& policy : kPolicies) {
    for (const Plan& plan : {Plan{1, 1}, {3, 1}, {2, 2}}) {
      at_all(judge_finish, planned(with(kModels[4], policy), plan), Delivery::lazy);
    }
    at_all(judge_finish, planned(with(kModels[2], policy), {4, 2}), Delivery::eager, {3});
  }
}

TEST_CASE("Under mixed precision options of a model and of a step go together", "[4.8]") {
  for (std::size_t i = 0; i < kPairs.size(); ++i) {
    const Json options = with(with(kPairs[i], kPolicies[i % 2]), {{"loss_scale", 8.0}});
    at_all(judge_finish, planned(options, kPairPlans[i % 2]), Delivery::eager, {3});
  }
}
