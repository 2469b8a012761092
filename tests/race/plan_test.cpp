// A plan as text, and what is refused: each message names the field and the remedy.
#include "base/todo.h"
#include "race/judge.h"
#include "race/plan_text.h"
#include "race/plans.h"
#include "support/catch.h"

#include <functional>
#include <string>

namespace fsdp::testing::race_plans {

using race::Plan;

TEST_CASE("A plan that was written is read as it was") {
  const race::PaperTrack paper(odd_track(4));
  const Plan plan = random_plan(paper, 5);
  const Plan read = race::plan_from_json(race::to_json(plan));
  CHECK(race::to_json(read) == race::to_json(plan));
  CHECK(paper.estimate(read).step_ps == paper.estimate(plan).step_ps);
}

TEST_CASE("What is no plan is refused") {
  for (const auto& [text, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {" \n", "no plan over"},
           {"hello", "the plan is not JSON"},
           {"{} {}", "the plan is not JSON"},
           {"[]", "no JSON object"},
           {R"({"units": [], "step_ps": 1})", "the plan's step_ps: a plan has no such field"},
           {R"({"units": [], "neighbors": 1.5})", "neighbors: 1.5; write a number of ranks"},
           {R"({"units": [], "neighbors": -2})", "neighbors: -2; write a number of ranks"},
           {R"({"units": 3})", "the plan's units: is no list"},
           {R"({"units": [7]})", "units[0]: 7 is no unit"},
           {R"({"units": [{"module": "a", "time": 0}]})", "units[0]: a unit has no time"},
           {R"({"units": [{"module": 4}]})", "units[0].module: 4 is no name"},
           {R"({"units": [{"module": "a", "keep": 1}]})", "units[0].keep: 1; write true or false"},
           {R"({"units": [{"before_forward": "a"}]})", "units[0].before_forward:"},
           {R"({"units": [{"before_forward": [1]}]})", "units[0].before_forward[0]: 1"},
       }) {
    CAPTURE(text);
    const std::string written = text;
    CHECK_THAT(message_of<InputError>([&] { race::plan_from_json(written); }), contains(said));
  }
  CHECK_THAT(message_of<InputError>([] { race::plan_from_json(std::string(2 << 20, ' ')); }),
             contains("at most"));
}

TEST_CASE("A plan that does not fit the model is refused") {
  const race::PaperTrack paper(odd_track(4));
  const auto said_of = [&](const std::function<void(Plan&)>& change) {
    Plan plan = plain_plan(paper.modules());
    change(plan);
    return message_of<InputError>([&] { race::check_plan(plan, paper.modules(), 4); });
  };
  CHECK(said_of([](Plan&) {}) == "");
  CHECK_THAT(said_of([](Plan& plan) { plan.units.clear(); }), contains("units: there is none"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units[1].module = "model.layers.9"; }),
             contains("units[1].module: model.layers.9 cannot be a unit"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units[1].module = plan.units[0].module; }),
             contains("units[1].module: model.embed_tokens is a unit already"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units[0].checkpoint = true; }),
             contains("units[0].checkpoint: model.embed_tokens is no block"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units[2].before_backward = {"lm_head"}; }),
             contains("units[2].before_backward[0]: lm_head is no unit of this plan"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units.push_back({.module = "root"}); }),
             contains("every module is a unit"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units.back() = {.module = "root", .keep_part = true}; }),
             contains("the root is always kept"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units.back().keep_part = true; }),
             contains("units[4]: model.norm+lm_head is kept, and a part of it too; choose one"));
  CHECK_THAT(said_of([](Plan& plan) { plan.units[1].keep_part = true; }),
             contains("neighbors: 0; of 4 ranks, 2 can share a unit"));
  CHECK_THAT(said_of([](Plan& plan) { plan.neighbors = 3; }),
             contains("neighbors: 3; of 4 ranks, 2 can share a unit of which parts are kept"));
  Plan parts = plain_plan(paper.modules());
  parts.neighbors = 3;
  CHECK_THAT(message_of<InputError>([&] { race::check_plan(parts, paper.modules(), 3); }),
             contains("neighbors: 3 ranks have no smaller groups of equal size; leave it 0"));
  CHECK(said_of([](Plan& plan) {
          plan.neighbors = 2;
          plan.units[1].keep_part = true;
        }) == "");
  CHECK_THAT(said_of([](Plan& plan) { plan.units.back() = {.module = "root", .keep = true}; }),
             contains("the root is always kept"));
}

TEST_CASE("A plan over the memory limit has no time, and one within it has") {
  race::Track track = odd_track(4);
  const race::PaperTrack paper(track);
  const Plan plan = plain_plan(paper.modules());
  track.memory_bytes = paper.estimate(plan).peak_bytes;
  CHECK(race::judge(track, race::to_json(plan)).refused == "");
  --track.memory_bytes;
  const race::Verdict verdict = race::judge(track, race::to_json(plan));
  CHECK_THAT(verdict.refused, contains("at its peak, and a rank has"));
}

TEST_CASE("A plan that needs an unwritten step has no time, and the step is named") {
  CHECK(race::refusal([] { return std::string(); }) == "");
  CHECK(race::refusal([]() -> std::string { throw Error("other bits"); }) == "other bits");
  const std::string said = race::refusal([]() -> std::string { todo("8.4"); });
  CHECK_THAT(said, contains("step 8.4 is not written yet"));
  CHECK_THAT(said, contains("make test-task8 ONLY=8.4 tests it. Until then, plan no checkpoint"));
  const std::string of_parts = race::refusal([]() -> std::string { todo("3.4"); });
  CHECK_THAT(of_parts, contains("step 3.4 is not written yet"));
  CHECK_THAT(of_parts, contains("Until then, plan no keep_part"));
}

}  // namespace fsdp::testing::race_plans
