// The step of a plan on paper is that of the engine, and a plan changes no bits.
#include "race/bound.h"
#include "race/judge.h"
#include "race/plan_text.h"
#include "race/plans.h"
#include "support/catch.h"

#include <string>

namespace fsdp::testing::race_walk {

using race::PaperTrack;
using race::Plan;
using race::Track;

TEST_CASE("Every plan takes the time and the bytes that the walk says") {
  for (const int ranks : {1, 3, 4, 6}) {
    for (const bool is_tied : {false, true}) {
      const Track track = odd_track(ranks, is_tied);
      const PaperTrack paper(track);
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const Plan plan = random_plan(paper, seed);
        CAPTURE(ranks, is_tied, race::to_json(plan));
        const race::Estimate expected = paper.estimate(plan);
        const race::Measured measured = race::measure(track, &plan);
        CHECK(measured.step_ps == expected.step_ps);
        CHECK(measured.peak_bytes == expected.peak_bytes);
      }
    }
  }
}

TEST_CASE("A part that is kept saves time against none, and memory against all") {
  Track track = odd_track(4);
  track.model.num_hidden_layers = 12;  // the parts of many, beside the whole of two
  const PaperTrack paper(track);
  Plan plan = plain_plan(paper.modules());
  for (race::Unit& unit : plan.units) unit.keep = false;
  const race::Estimate none = paper.estimate(plan);
  plan.neighbors = 2;
  for (race::Unit& unit : plan.units) unit.keep_part = true;
  const race::Estimate part = paper.estimate(plan);
  for (race::Unit& unit : plan.units) {
    unit.keep_part = false;
    unit.keep = true;
  }
  const race::Estimate all = paper.estimate(plan);
  CHECK(part.step_ps < none.step_ps);  // the neighbors share a box
  CHECK(part.peak_bytes < all.peak_bytes);
}

TEST_CASE("The plan that is handed out is plain FSDP") {
  const Track track = odd_track(4);
  const PaperTrack paper(track);
  const Plan plan = plain_plan(paper.modules());
  const race::Measured plain = race::measure(track, nullptr);
  CHECK(paper.estimate(plan).step_ps == plain.step_ps);
  CHECK(paper.estimate(plan).peak_bytes == plain.peak_bytes);
}

TEST_CASE("A plan changes no bits") {
  for (const bool is_tied : {false, true}) {
    const Track track = odd_track(4, is_tied);
    const PaperTrack paper(track);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Plan plan = random_plan(paper, seed);
      CAPTURE(is_tied, race::to_json(plan));
      CHECK(race::difference_in_bits(track, plan) == "");
    }
  }
}

TEST_CASE("No plan beats the bound") {
  const PaperTrack paper(odd_track(4));
  const std::int64_t bound = race::bound_of(paper).ps();
  CHECK(bound > 0);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CHECK(paper.estimate(random_plan(paper, seed)).step_ps >= bound);
  }
}

}  // namespace fsdp::testing::race_walk
