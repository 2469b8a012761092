#include "optim/loss_scaler.h"

#include "optim/step_plan.h"

#include "base/check.h"
#include "support/catch.h"

#include <string>
#include <utility>
#include <vector>

using namespace fsdp;
using optim::LossScaler;

namespace {

LossScaler::Options d6() { return {.initial_power = 15, .window = 500}; }

/// The scale after each step; 'x' overflows.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> result;
  for (const char step : steps) {
    scaler.update(step == 'x');
    result.push_back(scaler.scale());
  }
  return result;
}

}  // namespace

TEST_CASE("the scale is kept at the first overflow and halved at the second, D6") {
  LossScaler scaler(d6());
  CHECK(scaler.scale() == 32768);
  CHECK(scales(scaler, "xxx.x") == std::vector<double>{32768, 16384, 8192, 8192, 4096});
}

TEST_CASE("overflows that are not neighbors count alike, until a window has passed") {
  LossScaler scaler(d6());
  CHECK(scales(scaler, "x....x") == std::vector<double>{32768, 32768, 32768, 32768, 32768, 16384});
  LossScaler consecutive({.initial_power = 15, .consecutive_hysteresis = true});
  CHECK(scales(consecutive, "x.x.xx") ==
        std::vector<double>{32768, 32768, 32768, 32768, 32768, 16384});
}

TEST_CASE("the scale is doubled after every window without overflow") {
  LossScaler scaler({.initial_power = 4, .window = 3});
  CHECK(scales(scaler, "......") == std::vector<double>{16, 16, 32, 32, 32, 64});
  LossScaler disturbed({.initial_power = 4, .window = 3});
  CHECK(scales(disturbed, "xx...x") == std::vector<double>{16, 8, 8, 8, 16, 16});
}

TEST_CASE("the scale does not fall below the least, and a fixed one never changes") {
  LossScaler scaler({.initial_power = 1, .hysteresis = 1, .least = 1});
  CHECK(scales(scaler, "x") == std::vector<double>{1});
  CHECK_THAT(message_of<Error>([&] { scaler.update(true); }),
             contains("at the smallest loss scale, 1"));
  LossScaler fixed({.fixed = 128});
  CHECK(scales(fixed, "x.x") == std::vector<double>{128, 128, 128});
  LossScaler none;
  CHECK(scales(none, "x.") == std::vector<double>{1, 1});
}

TEST_CASE("the scale stays a number of float32") {
  LossScaler scaler({.initial_power = 126, .window = 1});
  CHECK(scales(scaler, "...") == std::vector<double>{0x1p127, 0x1p127, 0x1p127});
}

TEST_CASE("a scaler continues where another one stopped") {
  const std::string steps = "x..x.....x.xx......x";
  LossScaler whole({.initial_power = 10, .window = 4});
  const std::vector<double> expected = scales(whole, steps);
  for (std::size_t cut = 0; cut <= steps.size(); ++cut) {
    LossScaler first({.initial_power = 10, .window = 4});
    std::vector<double> joined = scales(first, steps.substr(0, cut));
    LossScaler second({.initial_power = 3, .window = 4});
    second.restore(first.state());
    const std::vector<double> rest = scales(second, steps.substr(cut));
    joined.insert(joined.end(), rest.begin(), rest.end());
    CHECK(joined == expected);
  }
}

TEST_CASE("what cannot be a loss scale is refused") {
  CHECK_THROWS_AS(LossScaler({.fixed = 3}), Error);
  CHECK_THROWS_AS(LossScaler({.least = 0}), Error);
  CHECK_THROWS_AS(LossScaler({.initial_power = 3, .least = 16}), Error);
  CHECK_NOTHROW(LossScaler({.fixed = 8, .least = 16}));
  CHECK_THROWS_AS(LossScaler({.window = 0}), Error);
  CHECK_THROWS_AS(LossScaler({.hysteresis = 0}), Error);
  LossScaler scaler;
  CHECK(message_of<Error>([&] { scaler.restore({}); }) == "loss_scale is missing");
  auto state = scaler.state();
  state["loss_scale_step"] = "7x";
  CHECK(message_of<Error>([&] { scaler.restore(state); }) == "loss_scale_step is 7x, not a number");
  state = scaler.state();
  state["loss_scale"] = "3";
  CHECK_THROWS_AS(scaler.restore(state), Error);
}

TEST_CASE("what scales gradients before their sum is the next power of two below 1/J") {
  for (const auto& [micro_batches, factor] :
       {std::pair(1, 1.0), {2, 0.5}, {3, 0.25}, {4, 0.25}, {5, 0.125}, {12, 0.0625}}) {
    CHECK(optim::prescale_of(micro_batches) == factor);
  }
  CHECK_THROWS_AS(optim::prescale_of(0), Error);
}
