/// @file
/// The trees of modules that the cases of step 2.5 are about: known to the scenario and the judge.
#pragma once

#include "grader/case.h"
#include "support/toy_model.h"

#include <memory>

namespace fsdp::graded {

/// Two toys side by side under a root that has nothing of its own.
class Pair : public nn::Module {
 public:
  explicit Pair(const testing::ToyConfig& config)
      : left_(register_child("left", std::make_shared<testing::Toy>(config))),
        right_(register_child("right", std::make_shared<testing::Toy>(config))) {}

 protected:
  Variable forward(const Variable& x) override { return (*right_)((*left_)(x)); }

 private:
  std::shared_ptr<testing::Toy> left_, right_;
};

/// The model of a case: options layers, root_weight, tied, nested; pair (two of them).
inline std::shared_ptr<nn::Module> model_of(const Case& asked) {
  const Json& options = asked.options;
  const testing::ToyConfig config{.width = 3,
                                  .layers = options.value("layers", 2),
                                  .root_weight = options.value("root_weight", false),
                                  .tied = options.value("tied", false),
                                  .nested = options.value("nested", false)};
  if (options.value("pair", false)) return std::make_shared<Pair>(config);
  return std::make_shared<testing::Toy>(config);
}

}  // namespace fsdp::graded
