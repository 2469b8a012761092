// What a judge says of a run, apart from what it compares.
#include "graded/wording.h"
#include "graded/observations.h"
#include "support/catch.h"

#include <string>
#include <utility>

namespace fsdp::graded {
namespace {

Case asked(Json options = Json::object()) {
  Case made;
  made.scenario = "unit";
  made.world_size = 2;
  made.options = std::move(options);
  return made;
}

}  // namespace

TEST_CASE("an exception is told as what was observed, expected, and likely", "[judge]") {
  CHECK(thrown(asked(), "Error", "narrow(0, 4, 2) of shape (4)") ==
        "unit W=2 seed 1\n"
        "  observed: the run threw Error: narrow(0, 4, 2) of shape (4)\n"
        "  expected: no exception: it runs to its end\n"
        "  likely:   one of the usual mistakes of this step\n"
        "  find it:  in make debug-n.m, `catch throw` stops where it is thrown");
}

TEST_CASE("an Aborted is called so once", "[judge]") {
  const std::string told = thrown(asked(), "Aborted", "Aborted: rank 1 left");
  CHECK_THAT(told, contains("the run threw Aborted: rank 1 left\n"));
}

TEST_CASE("a NaN has no sign", "[judge]") {
  CHECK(without_sign_of_nan("x is -nan, -nan and nan; -1") == "x is nan, nan and nan; -1");
  CHECK_THAT(thrown(asked(), "Error", "norm -nan"), !contains("-nan"));
}

TEST_CASE("an option that only the scenario knows is told in words", "[judge]") {
  CHECK(to_string(asked({{"poison", false}})) == "unit W=2 seed 1 (nothing is written first)");
  CHECK(to_string(asked({{"poison", true}})) == "unit W=2 seed 1 (garbage is written first)");
  CHECK(to_string(asked({{"poison", 5.0}})) == "unit W=2 seed 1 (garbage is written first: 5.0)");
  CHECK(to_string(asked({{"tied", true}})) == "unit W=2 seed 1 tied=true");
}

}  // namespace fsdp::graded
