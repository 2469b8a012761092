// The hidden cases of task 5: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task5/cases.h"

using namespace fsdp::graded;

namespace {

/// Other sizes, other places of what is frozen.
const Json kFlats = Json::array(
    {Json::array({"x", {{9, 3}, {2}}, true, true}), Json::array({"y", {{4}}, true, false}),
     Json::array({"y", {{5, 5}}, false, true}), Json::array({"y", {{2}, {7}, {1}}, true, true}),
     Json::array({"z", {{3}}, false, true})});

}  // namespace

TEST_CASE("Clipping other gradients", "[5.4][hidden]") {
  for (const int world_size : {6, 7}) {
    for (const double max_norm : {0.125, 100.0}) {
      judge_clip({.world_size = world_size,
                  .seed = 29,
                  .delivery = Delivery::lazy,
                  .options = {{"flats", kFlats}, {"max_norm", max_norm}, {"poison", "5"}}});
    }
  }
  judge_clip({.world_size = 5,
              .seed = 3,
              .options = {{"flats", kFlats}, {"bad", "nan"}, {"bad_rank", 4}}});
}

TEST_CASE("The training state of other models", "[5.5][hidden]") {
  judge_state({.world_size = 6, .seed = 12, .options = {{"flats", kFlats}, {"steps", 2}}});
  judge_state({.world_size = 7, .seed = 12, .options = {{"flats", kFlats}, {"steps", 1}}});
  judge_reload({.world_size = 1,
                .seed = 12,
                .options = {{"flats", kFlats}, {"saved_at", 7}, {"loaded_at", 6}, {"steps", 3}}});
}
