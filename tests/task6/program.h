/// @file
/// Task 6: a stack of layers whose control flow is a list of numbers.
#pragma once

#include "support/toy_model.h"

namespace fsdp::graded {

/// In Program::order, layer n is called and its output is used; kDropped + n: it is called beside
/// the others, and nobody uses its output, so that it has no backward.
inline constexpr int kDropped = 100;

class Program : public testing::Toy {
 public:
  using Toy::Toy;

 protected:
  Variable forward(const Variable& x) override {
    Variable y = x;
    for (const int call : order) {
      const Variable out = (*layers().at(static_cast<std::size_t>(call % kDropped)))(y);
      if (call < kDropped) y = out;
    }
    return y;
  }
};

/// `frozen`: numbers of layers that are not trained.
inline testing::ToyConfig config_of(std::int64_t width, int layers,
                                    const std::vector<int>& frozen) {
  testing::ToyConfig config{.width = width, .layers = layers};
  for (const int n : frozen) config.frozen.push_back("layers." + std::to_string(n) + ".");
  return config;
}

}  // namespace fsdp::graded
