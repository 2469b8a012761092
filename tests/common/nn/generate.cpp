#include "nn/generate.h"

#include "toy_modules.h"

#include <cmath>
#include <map>

namespace fsdp::nn {

namespace {

using Tokens = std::vector<std::int32_t>;

/// Logits (1, T', 4) that are the same at every position: log of 0.1, 0.2, 0.3, 0.4.
class Dice : public Module {
 public:
  std::vector<std::int64_t> lengths;

 protected:
  Variable forward(const Variable& tokens) override {
    lengths.push_back(tokens.shape()[1]);
    CHECK_FALSE(grad_enabled());
    std::vector<float> logits;
    for (std::int64_t t = 0; t < tokens.shape()[1]; ++t) {
      for (const double p : {0.1, 0.2, 0.3, 0.4}) logits.push_back(static_cast<float>(std::log(p)));
    }
    return Variable(Tensor::from(logits, {1, tokens.shape()[1], 4}));
  }
};

std::map<std::int32_t, int> throw_dice(int count, const SamplingOptions& options) {
  Dice dice;
  Generator generator(5);
  std::map<std::int32_t, int> seen;
  const Tokens tokens = generate(dice, {0}, count, 4, options, generator);
  for (std::size_t i = 1; i < tokens.size(); ++i) ++seen[tokens[i]];
  CHECK(generator.offset() == static_cast<std::uint64_t>(count));
  return seen;
}

}  // namespace

TEST_CASE("generation continues the prompt, with a sliding context") {
  Dice dice;
  Generator generator(1);
  const Tokens tokens = generate(dice, {1, 2}, 4, 3, {}, generator);
  CHECK(tokens.size() == 6);
  CHECK(Tokens(tokens.begin(), tokens.begin() + 2) == Tokens{1, 2});
  CHECK(dice.lengths == std::vector<std::int64_t>{2, 3, 3, 3});
}

TEST_CASE("the same generator gives the same tokens, another one others") {
  Dice dice;
  const auto run = [&](std::uint64_t seed) {
    Generator generator(seed);
    return generate(dice, {0}, 30, 4, {}, generator);
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}

TEST_CASE("tokens come as often as their probability says") {
  const auto seen = throw_dice(2000, {});
  CHECK(std::abs(seen.at(0) - 200) < 60);
  CHECK(std::abs(seen.at(3) - 800) < 100);
}

TEST_CASE("temperature 0 takes the likeliest, a low one nearly so, a high one spreads") {
  CHECK(throw_dice(20, {.temperature = 0}) == std::map<std::int32_t, int>{{3, 20}});
  CHECK(throw_dice(500, {.temperature = 0.1}).at(3) > 450);
  CHECK(throw_dice(2000, {.temperature = 100}).at(0) > 400);
}

TEST_CASE("top_k keeps the k likeliest, more than there are keeps all") {
  const auto two = throw_dice(500, {.top_k = 2});
  CHECK(two.size() == 2);
  CHECK(two.count(2) == 1);
  CHECK(two.count(3) == 1);
  CHECK(throw_dice(20, {.top_k = 1}) == std::map<std::int32_t, int>{{3, 20}});
  CHECK(throw_dice(200, {.top_k = 100}) == throw_dice(200, {}));
}

TEST_CASE("what generation refuses") {
  Dice dice;
  Generator generator(1);
  CHECK_THROWS_AS(generate(dice, {}, 1, 4, {}, generator), Error);
  CHECK_THROWS_AS(generate(dice, {0}, 1, 0, {}, generator), Error);
  CHECK_THROWS_AS(generate(dice, {0}, 1, 4, {.temperature = -1}, generator), Error);
  CHECK_THROWS_AS(generate(dice, {0}, 1, 4, {.top_k = -1}, generator), Error);
  Toy broken([](const Variable&) {
    return Variable(Tensor::from(std::vector<float>{0, std::nanf(""), 1, 0}, {1, 1, 4}));
  });
  CHECK(message_of<Error>([&] { generate(broken, {0}, 1, 4, {}, generator); }).find("finite") !=
        std::string::npos);
}

}  // namespace fsdp::nn
