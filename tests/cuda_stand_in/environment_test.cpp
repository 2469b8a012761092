// The plan of programs that have no Session.
#include "support/cuda_on_host/environment.h"
#include "base/check.h"
#include "cuda_stand_in/plans.h"

#include <cstdlib>

using cuda_on_host::plan_named;

TEST_CASE("CUDA_ON_HOST names a mode, and a seed if it is not 1") {
  CHECK(text_of(plan_named("")) == "random, seed 1");
  CHECK(text_of(plan_named("lazy")) == "lazy, seed 1");
  CHECK(text_of(plan_named("eager:0")) == "eager, seed 0");
  CHECK(text_of(plan_named("random:18446744073709551615")) == "random, seed 18446744073709551615");
}

TEST_CASE("CUDA_ON_HOST_CARDS chooses cards") {
  const auto cards_of = [](const char* text) {
    REQUIRE(setenv("CUDA_ON_HOST_CARDS", text, 1) == 0);
    const Plan plan = cuda_on_host::plan_of_environment();
    REQUIRE(unsetenv("CUDA_ON_HOST_CARDS") == 0);
    CHECK(plan.devices == static_cast<int>(plan.cards.size()));
    return plan.cards;
  };
  using Cards = std::vector<int>;
  CHECK(cards_of("5") == Cards{5});
  CHECK(cards_of("2,0") == Cards{2, 0});
  CHECK(cards_of("1,2,8,3") == Cards{1, 2});
  CHECK(cards_of("3,x") == Cards{3});
  CHECK(cards_of("").empty());
  CHECK(cuda_on_host::plan_of_environment().devices == 8);
}

TEST_CASE("any other CUDA_ON_HOST is an error that says what there is") {
  for (const std::string text : {"lazily", "lazy:", "lazy:x", "lazy:1 ", "lazy:-1", ":1", "LAZY",
                                 "random:18446744073709551616"}) {
    CAPTURE(text);
    CHECK(message_of<fsdp::InputError>([&] { plan_named(text); }) ==
          "CUDA_ON_HOST: is '" + text +
              "'; use lazy, eager or random, or one with a seed, as in random:17");
  }
}
