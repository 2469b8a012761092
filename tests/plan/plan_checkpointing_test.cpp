// The plan's front is that of trainings that really run, on the fake device with its tracker and
// its virtual clock, compared one with every other.
#include "plan/plan.h"
#include "plan/timed.h"
#include "support/catch.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace fsdp::testing::plans {
namespace {

using paper::MemoryOptions;
using plan::Evaluator;
using plan::Outcome;
using plan::Plan;
using plan::PlanRequest;

/// Picoseconds and bytes.
using Point = std::pair<std::int64_t, std::int64_t>;

PlanRequest small_request() {
  PlanRequest request{.model_name = "odd", .base = {}};
  request.base.recipe.clip = 1;
  request.ranks = {1, 2, 4};
  request.global_batch = 8;
  request.has_bus = true;
  request.ranks_per_box = 2;
  request.memory = std::int64_t{1} << 40;
  return request;
}

/// The time of the rank that owns most, and the highest peak of a rank.
Point run(const nn::TransformerConfig& model, const MemoryOptions& options, int busiest_rank) {
  MemoryCase test_case;
  test_case.model = model;
  test_case.options = options;
  test_case.records = false;
  test_case.is_fake = true;
  test_case.machine = kOddMachine;
  const bool differs = options.recipe.strategy == optim::Strategy::zero1 ||
                       options.recipe.strategy == optim::Strategy::zero2;
  Point highest{0, 0};
  for (int rank = 0; rank < (differs ? options.recipe.ranks : 1); ++rank) {
    test_case.options.rank = rank;
    const MeasuredMemory measured = measure(test_case).front();
    if (rank == busiest_rank) highest.first = measured.times.at(1);
    for (const paper::StepMemory& step : measured.steps) {
      highest.second = std::max(highest.second, step.peak().total());
    }
  }
  return highest;
}

/// What no other point beats: all pairs are compared.
std::set<Point> brute_force_front(const std::vector<Point>& points, std::int64_t memory) {
  std::set<Point> front;
  for (const Point& each : points) {
    const bool is_beaten = std::ranges::any_of(points, [&](const Point& other) {
      return other != each && other.first <= each.first && other.second <= each.second;
    });
    if (each.second <= memory && !is_beaten) front.insert(each);
  }
  return front;
}

std::set<Point> front_of(const Plan& plan) {
  std::set<Point> front;
  for (const std::size_t index : plan.front) {
    front.emplace(plan.outcomes[index].step(), plan.outcomes[index].memory());
  }
  return front;
}

}  // namespace

TEST_CASE("The front is the one of trainings that run") {
  const nn::TransformerConfig model = odd_model();
  Evaluator evaluator(model, kOddMachine);
  PlanRequest request = small_request();
  const Plan all = make_plan(evaluator, request);
  REQUIRE(all.outcomes.size() > 500);
  std::vector<Point> points;
  int number = 0;
  for (const Outcome& outcome : all.outcomes) {
    if (FSDP_SANITIZED && number++ % 7 != 0) {  // a part of the runs is enough there
      points.emplace_back(outcome.step(), outcome.memory());
      continue;
    }
    points.push_back(run(model, outcome.options, outcome.busiest_rank));
    if (points.back() == Point(outcome.step(), outcome.memory())) continue;
    FAIL_CHECK(plan::describe(outcome.options)
               << ": runs " << points.back().first << " ps and " << points.back().second
               << " bytes, the formulas say " << outcome.step() << " and " << outcome.memory());
  }
  CHECK(front_of(all) == brute_force_front(points, request.memory));
  CHECK(front_of(all).size() > 5);
  std::ranges::sort(points, {}, &Point::second);
  request.memory = points[points.size() / 2].second;  // half of them fit
  const Plan half = make_plan(evaluator, request);
  CHECK(half.fitting >= points.size() / 2);
  CHECK(half.fitting < points.size());
  CHECK(front_of(half) == brute_force_front(points, request.memory));
}

TEST_CASE("The fastest is the first of the front, and each alternative differs from it") {
  Evaluator evaluator(odd_model(), kOddMachine);
  const Plan plan = make_plan(evaluator, small_request());
  for (const Outcome& outcome : plan.outcomes) CHECK(plan.best().step() <= outcome.step());
  REQUIRE(plan.next_best != plan::Alternative::kNone);
  CHECK(plan.outcomes[plan.next_best].step() >= plan.best().step());
  CHECK(plan.alternatives.size() > 10);
  for (const plan::Alternative& each : plan.alternatives) {
    CHECK(value_of(each.choice, plan.best().options) != each.value);
    if (each.index == plan::Alternative::kNone) continue;
    const Outcome& fastest = plan.outcomes[each.index];
    CHECK(value_of(each.choice, fastest.options) == each.value);
    for (const Outcome& other : plan.outcomes) {
      if (value_of(each.choice, other.options) != each.value) continue;
      CHECK(fastest.step() <= other.step());
    }
  }
}

TEST_CASE("A plan into which nothing fits names the least memory") {
  Evaluator evaluator(odd_model(), kOddMachine);
  PlanRequest request = small_request();
  request.memory = 1000;
  const Plan plan = make_plan(evaluator, request);
  CHECK_FALSE(plan.is_feasible());
  CHECK(plan.fitting == 0);
  const std::string text = plan_text(plan, evaluator);
  CHECK(text.find("None fits. The least memory is that of") != std::string::npos);
  request.global_batch = 7;
  request.ranks = {2, 4};
  CHECK_THROWS_WITH(make_plan(evaluator, request), contains("7 sequences cannot be divided"));
}

}  // namespace fsdp::testing::plans
