// The public cases of task 6.
#include "graded/expect.h"
#include "support/catch.h"
#include "task6/cases.h"

using namespace fsdp::graded;

namespace {

const Json kAll = {0, 1, 2, 3, 4};
const Json kThree = {0, 1, 2};
const Json kLast = Json::array({2});

/// Some iterations of three layers, the last of which is kept.
Json three(int depth, const Json& more = Json::object()) {
  return with({{"layers", 3}, {"keep", kLast}, {"depth", depth}, {"orders", {kThree, kThree}}},
              more);
}

/// What each iteration of a model calls whose control flow changes.
const std::vector<Json> kPrograms = {
    {kAll, {0, 2, 4}, kAll},                        // skips, and back
    {kAll, {0, 3}, {0, 3}},                         // skips more than one
    {kAll, {4, 3, 2, 1, 0}, kAll},                  // turns round
    {{0, 1, 2}, {2, 3, 4}, {3, 0, 4, 1}},           // others
    {{0, 2, 4}, kAll},                              // inserts
    {{0, 1, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 0, 1}}  // repeats
};

/// Six iterations of a model that changes its mind.
const Json kAlternating = {{"orders", {kAll, {0, 2, 4}, kAll, {0, 2, 4}, {4, 1, 2, 0}, kAll}}};
/// Evaluations between the steps call fewer units, or in another order.
const Json kEvaluated = {{"orders", {kAll, {0, 1, 2}, kAll, {3, 1, 4}, {3, 1, 4}, kAll}},
                         {"evaluations", {1, 3, 4}}};
/// One unit is called ten times.
const Json kOftenUsed = {
    {"layers", 3},
    {"depth", 2},
    {"orders",
     {{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 1, 0, 1, 0, 1, 0, 1, 0}, {2, 1, 0, 1, 0}, kThree}}};

/// layers.10 comes before layers.2 in the alphabet, and not in the model.
Json twelve() {
  Json all = Json::array();
  for (int n = 0; n < 12; ++n) all.push_back(n);
  return {{"layers", 12}, {"depth", 3}, {"keep", {11}}, {"orders", {all, all}}};
}

/// A unit's forward takes 1024 ps; its gather, at W = 2, 128 times these.
const std::vector<double> kLinks = {2, 8, 12, 40};

}  // namespace

TEST_CASE("A report moves the cursor of the guess", "[6.1]") {
  const auto reports = [](const Json& guess, int cursor, const Json& units) {
    judge_walk({.options = {{"guess", guess}, {"cursor", cursor}, {"reports", units}}});
  };
  reports(kAll, 0, kAll);                           // as expected
  reports(kAll, 1, {3, 4});                         // later than expected
  reports(kAll, 0, {4});                            // last of all
  reports({0, 2, 4}, 1, {1, 2, 3, 4});              // not in the guess: it stays
  reports(kAll, 3, {1, 3});                         // passed already
  reports({0, 1, 0, 1, 2}, 0, {0, 1, 0, 1, 2, 2});  // twice in the guess
  reports(Json::array(), 0, {0, 1});                // no guess yet
}

TEST_CASE("Units gathered ahead that do not come next in the guess are resharded", "[6.1]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    const auto stale = [&](const Json& options) {
      judge_stale({.world_size = world_size,
                   .delivery = Delivery::lazy,
                   .options = with({{"guess", kAll}}, options)});
    };
    stale({{"cursor", 2}, {"ahead", {0, 1, 4}}, {"depth", 1}});
    stale({{"cursor", 1}, {"ahead", {0, 1, 2, 3, 4}}, {"depth", 2}});
    stale({{"cursor", 4}, {"ahead", {1, 2}}, {"there", {3}}, {"depth", 2}});
    stale({{"cursor", 2}, {"ahead", {1, 2, 3}}, {"there", {1}}, {"depth", 2}});
    stale({{"cursor", 1}, {"ahead", {1, 2}}, {"depth", 1}});
    stale({{"cursor", 5}, {"ahead", {0}}, {"depth", 3}});
    stale({{"cursor", 1}, {"ahead", {1}}, {"there", {0}}, {"coming", {4}}});
    // The in-flight limit has nothing to do with it.
    stale({{"cursor", 1}, {"ahead", {0, 1, 2, 3}}, {"depth", 3}, {"limit", 1}});
    stale({{"cursor", 1}, {"ahead", {1, 2}}, {"depth", 1}, {"limit", 4}});
    // A unit that is twice in the guess may have been passed once.
    stale({{"guess", {0, 1, 0, 1, 2}}, {"cursor", 2}, {"ahead", {0, 1, 2}}, {"depth", 3}});
    stale({{"guess", {0, 1, 0, 1, 2}}, {"cursor", 2}, {"ahead", {0, 1}}, {"depth", 1}});
    stale({{"guess", {0, 1, 0, 1, 2}}, {"cursor", 4}, {"ahead", {0, 1, 2}}, {"depth", 3}});
  }
}

TEST_CASE("The next units are started, as far as depth and limit allow", "[6.2]") {
  for (const int world_size : worlds({1, 2, 3})) {
    const auto start = [&](const Json& options) {
      judge_start({.world_size = world_size,
                   .delivery = Delivery::lazy,
                   .options = with({{"guess", kAll}}, options)});
    };
    start({{"cursor", 1}});
    start({{"cursor", 1}, {"depth", 2}, {"limit", 4}});
    start({{"cursor", 1}, {"depth", 3}});
    start({{"cursor", 4}, {"depth", 3}});
    start({{"cursor", 5}, {"depth", 2}});
    start({{"guess", {4, 3, 2, 1, 0}}, {"cursor", 2}, {"depth", 2}, {"phase", "backward"}});
    start({{"guess", Json::array()}, {"depth", 2}});
    // Neither is treated in another way.
    start({{"cursor", 1}, {"depth", 3}, {"frozen", {2}}});
    start({{"cursor", 1}, {"depth", 3}, {"keep", {2}}});
  }
}

TEST_CASE("Units that are unsharded or in flight count toward the depth", "[6.2]") {
  const auto start = [&](const Json& options) {
    judge_start({.world_size = 2, .options = with({{"guess", kAll}}, options)});
  };
  start({{"cursor", 1}, {"depth", 4}, {"there", {3}}});
  start({{"cursor", 1}, {"depth", 2}, {"there", {1, 2}}});
  start({{"cursor", 1}, {"depth", 2}, {"there", {1}}});
  start({{"cursor", 1}, {"depth", 2}, {"limit", 4}, {"there", {1, 2}}});
  start({{"cursor", 1}, {"depth", 2}, {"ahead", {1}}});
  start({{"cursor", 1}, {"depth", 3}, {"there", {0, 2}}});
  start({{"cursor", 0}, {"depth", 1}, {"there", {0}}});
  start({{"guess", {0, 1, 1, 2, 1}}, {"cursor", 1}, {"depth", 4}});  // started once
}

TEST_CASE("The gathers in flight never exceed the limit, wherever they were started", "[6.2]") {
  const auto start = [&](const Json& options) {
    judge_start({.world_size = 2, .options = with({{"guess", kAll}, {"depth", 4}}, options)});
  };
  start({{"limit", 1}, {"cursor", 2}, {"ahead", {1}}, {"there", {1}}});
  start({{"limit", 2}, {"cursor", 1}, {"coming", {0, 4}}});
  start({{"limit", 1}});
  start({{"limit", 2}});
  start({{"limit", 9}});
  start({{"limit", 2}, {"cursor", 1}, {"coming", {0}}});
  start({{"limit", 1}, {"coming", {4}}});
  start({{"limit", 2}, {"there", {0, 1}}});
}

TEST_CASE("A forward begins: the record becomes the guess, and the rest is cleared", "[6.3]") {
  for (const int world_size : worlds({1, 2, 3})) {
    const Setup setup{.world_size = world_size, .delivery = Delivery::lazy};
    const auto begins = [&](const Json& options) {
      Setup asked = setup;
      asked.options = options;
      judge_begins(asked);
    };
    begins({{"recorded", {0, 2, 4}}, {"recording", {0, 1}}, {"guess", {1, 3, 2}}, {"cursor", 2}});
    begins({{"recorded", kAll}, {"ahead", {2, 3}}, {"there", {2}}, {"guess", {1}}, {"cursor", 1}});
    begins({{"recorded", kAll}, {"recording", kAll}, {"guess", kAll}, {"cursor", 5}});
    begins({{"recording", {0, 1}}});
    begins({{"recorded", {3, 1}}, {"ahead", {2}}, {"there", {0}}, {"guess", kAll}});
  }
}

TEST_CASE("A forward ends: the recording becomes the record, and nothing is left ahead", "[6.3]") {
  for (const int world_size : worlds({1, 2, 3})) {
    const Setup setup{.world_size = world_size, .delivery = Delivery::lazy};
    const auto ends = [&](const Json& options) {
      Setup asked = setup;
      asked.options = options;
      judge_ends(asked);
    };
    ends({{"recorded", kAll}, {"recording", {0, 1}}, {"ahead", {2, 3}}, {"guess", kAll}});
    ends({{"recording", kAll}, {"ahead", {1}}, {"there", {1, 4}}});
    ends({{"recorded", {1, 2}}, {"recording", {3, 1, 0, 2, 4}}});
    ends({{"recorded", {2}}, {"recording", {2}}});
    ends({{"recorded", kAll}, {"recording", {0, 1}}, {"tape", false}});
    ends({{"recorded", kAll}, {"recording", {4, 0, 4}}, {"guess", kAll}, {"cursor", 5}});
  }
}

TEST_CASE("Forward: unit k + 1 is gathered before unit k computes", "[6.4]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    for (const int depth : {1, 2}) {
      judge_iterations(
          "6.4", {.world_size = world_size, .delivery = Delivery::lazy, .options = three(depth)});
    }
  }
  judge_iterations("6.4", {.world_size = 2, .delivery = Delivery::eager, .options = three(1)});
}

TEST_CASE("Forward: depth, limit and kept units", "[6.4]") {
  const Json five = {{"layers", 5}, {"keep", {4}}, {"orders", {kAll, kAll, kAll}}};
  for (const auto& [depth, limit] : {std::pair{2, 1}, {3, 2}, {9, 0}}) {
    judge_iterations(
        "6.4", {.world_size = 2, .options = with(five, {{"depth", depth}, {"limit", limit}})});
  }
  judge_iterations("6.4", {.world_size = 2, .options = with(five, {{"depth", 2}, {"group", 1}})});
  judge_iterations("6.4",
                   {.world_size = 2, .options = with(five, {{"depth", 2}, {"tape", false}})});
  judge_iterations("6.4", {.world_size = 4, .options = with(five, {{"group", 2}})});
}

TEST_CASE("Forward: the order may change", "[6.4]") {
  for (const Json& orders : kPrograms) {
    for (const int depth : {1, 2}) {
      judge_iterations("6.4", {.world_size = 2,
                               .delivery = Delivery::lazy,
                               .options = {{"orders", orders}, {"depth", depth}}});
    }
  }
}

TEST_CASE("Forward: a kept unit stays unsharded when the guess turns out wrong", "[6.4]") {
  judge_iterations("6.4", {.world_size = 2,
                           .delivery = Delivery::lazy,
                           .options = {{"keep", {1}}, {"orders", {kAll, {0, 1, 3, 4}, kAll}}}});
}

TEST_CASE("Forward: units out of alphabetical order, and one that is used ten times", "[6.4]") {
  judge_iterations("6.4", {.world_size = 2, .options = twelve()});
  judge_iterations("6.4", {.world_size = 1, .options = kOftenUsed});
}

TEST_CASE("Forward: units that are not trained are gathered ahead like the others", "[6.4]") {
  for (const Json& frozen : {Json{0, 1}, Json{2}, Json{1, 4}}) {
    judge_iterations("6.4", {.world_size = 2,
                             .delivery = Delivery::lazy,
                             .options = {{"frozen", frozen}, {"orders", {kAll, kAll}}}});
  }
}

TEST_CASE("Forward: the order alternates, and evaluations come between the steps", "[6.4]") {
  for (const int depth : {1, 3}) {
    judge_iterations("6.4", {.world_size = 3, .options = with(kAlternating, {{"depth", depth}})});
    judge_iterations("6.4", {.world_size = 2, .options = with(kEvaluated, {{"depth", depth}})});
  }
}

TEST_CASE("A forward that throws leaves no record", "[6.4]") {
  // No step begins after an evaluation that throws: what it had ahead is still in memory.
  judge_iterations("6.4", {.world_size = 2,
                           .delivery = Delivery::lazy,
                           .options = {{"orders", {kAll, {2, 1, 0, 3}, {4, 3, 2}, kAll}},
                                       {"evaluations", {1, 2}},
                                       {"throws", 1},
                                       {"depth", 2}}});
  for (const int depth : {1, 2}) {
    judge_iterations(
        "6.4",
        {.world_size = 2,
         .options = {{"orders", {kAll, {3, 1, 0, 2, 4}, kAll}}, {"throws", 1}, {"depth", depth}}});
  }
}

TEST_CASE("The virtual time of a forward matches the formula", "[6.4]") {
  for (const double link : kLinks) {
    judge_time("6.4", {.options = {{"units", 6}, {"ps_per_byte", link}}});
    judge_time("6.4", {.options = {{"units", 6}, {"ps_per_byte", link}, {"depth", 3}}});
  }
  judge_time("6.4", {.options = {{"ranks", 8}, {"alpha", 100}, {"ps_per_byte", 3}}});
}

TEST_CASE("Backward: unit k - 1 is gathered before unit k computes", "[6.5]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    for (const int depth : {1, 2}) {
      judge_iterations(
          "6.5", {.world_size = world_size, .delivery = Delivery::lazy, .options = three(depth)});
    }
  }
  judge_iterations("6.5", {.world_size = 2, .delivery = Delivery::eager, .options = three(1)});
}

TEST_CASE("Backward: kept units take no place in the order", "[6.5]") {
  for (const Json& kept : {Json{0}, Json{4}, Json{2, 4}, Json{0, 1}, Json::array()}) {
    for (const int depth : {1, 2}) {
      judge_iterations("6.5",
                       {.world_size = 2,
                        .options = {{"keep", kept}, {"depth", depth}, {"orders", {kAll, kAll}}}});
    }
  }
  judge_iterations(
      "6.5", {.world_size = 2, .options = {{"group", 1}, {"depth", 2}, {"orders", {kAll, kAll}}}});
  judge_iterations(
      "6.5", {.world_size = 4, .options = {{"group", 2}, {"keep", {4}}, {"orders", {kAll, kAll}}}});
}

TEST_CASE("Backward: the order is the reverse of this iteration's forward, whatever it was before",
          "[6.5]") {
  for (const Json& orders : kPrograms) {
    for (const int depth : {1, 2}) {
      judge_iterations("6.5", {.world_size = 2,
                               .delivery = Delivery::lazy,
                               .options = {{"orders", orders}, {"depth", depth}, {"keep", {4}}}});
    }
  }
}

TEST_CASE("Backward: depth and limit", "[6.5]") {
  const Json five = {{"layers", 5}, {"keep", {4}}, {"orders", {kAll, kAll}}};
  for (const auto& [depth, limit] : {std::pair{2, 1}, {3, 2}, {1, 3}, {9, 0}}) {
    judge_iterations(
        "6.5", {.world_size = 2, .options = with(five, {{"depth", depth}, {"limit", limit}})});
  }
  judge_iterations("6.5", {.world_size = 2, .options = twelve()});
}

TEST_CASE("Backward: units that it does not reach are stale and resharded", "[6.5]") {
  const auto steps = [](const Json& orders, const Json& more) {
    for (const int depth : {1, 2}) {
      judge_iterations("6.5", {.world_size = 2,
                               .delivery = Delivery::lazy,
                               .options = with({{"orders", orders}, {"depth", depth}}, more)});
    }
  };
  // Nobody uses the output of layers.3, of layers.2 and layers.1, of the second call of layers.1.
  steps({{0, 1, 2, 100 + 3, 4}, {0, 1, 2, 100 + 3, 4}}, {{"keep", {4}}});
  steps({{0, 100 + 1, 100 + 2, 3, 4}, kAll}, {{"keep", {4}}});
  steps({{0, 1, 2, 100 + 1, 3}, {0, 1, 2, 100 + 1, 3}}, Json::object());
  // layers.0 still has a call to come when layers.3 is found stale.
  steps({{0, 4, 1, 100 + 3, 0, 2}, {0, 4, 1, 100 + 3, 0, 2}}, Json::object());
}

TEST_CASE("Backward: units that are not trained", "[6.5]") {
  for (const Json& frozen : {Json{0, 1}, Json{2}, Json{1, 4}, Json{0, 1, 2, 3}}) {
    for (const int depth : {1, 2}) {
      judge_iterations(
          "6.5",
          {.world_size = 2,
           .delivery = Delivery::lazy,
           .options = {
               {"frozen", frozen}, {"keep", {4}}, {"depth", depth}, {"orders", {kAll, kAll}}}});
    }
  }
}

TEST_CASE("Backward: after evaluations, dropped losses, and in several micro-steps", "[6.5]") {
  const auto steps = [](const Json& options) {
    for (const int world_size : {1, 2}) {
      judge_iterations("6.5", {.world_size = world_size, .options = options});
    }
  };
  steps(with(kEvaluated, {{"keep", {4}}, {"depth", 2}}));
  steps(with(kAlternating, {{"keep", {4}}, {"abandoned", {1, 4}}}));
  steps(with(kAlternating, {{"keep", {2}}, {"micro_steps", 3}}));
  steps(with(kAlternating, {{"micro_steps", 6}, {"per_reduction", 3}, {"depth", 2}}));
  steps(with(kAlternating, {{"group", 1}, {"depth", 2}}));
  steps(kOftenUsed);
}

TEST_CASE("The virtual time of a backward matches the formula", "[6.5]") {
  for (const double link : kLinks) {
    for (const int factor : {1, 3}) {
      const Json options = {{"units", 6}, {"ps_per_byte", link}, {"reduce_factor", factor}};
      judge_time("6.5", {.options = options});
      judge_time("6.5", {.options = with(options, {{"depth", 3}, {"limit", 2}})});
    }
  }
  judge_time("6.5", {.options = {{"ranks", 8}, {"alpha", 100}, {"ps_per_byte", 3}}});
}
