/// @file
/// The trees of modules that the cases of step 2.5 are about: known to the scenario and the judge.
#pragma once

#include "graded/case.h"
#include "support/toy_model.h"

#include <memory>
#include <string>
#include <vector>

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

/// Two branches with three layers that share one weight; two of them are in the branch `pair`.
class ThreeUsers : public nn::Module {
 public:
  explicit ThreeUsers(const std::string& pair) {
    const testing::ToyConfig config{.width = 3};
    const auto left = register_child("left", std::make_shared<Branch>());
    const auto right = register_child("right", std::make_shared<Branch>());
    Variable weight;
    const auto add = [&](Branch& to, const char* name) {
      weight = to.add(name, std::make_shared<testing::ToyLayer>(config, false, weight));
    };
    add(*left, "layers.10");
    add(pair == "left" ? *left : *right, "layers.9");
    add(*right, "layers.2");
  }

 protected:
  Variable forward(const Variable& x) override { return x; }

 private:
  class Branch : public nn::Module {
   public:
    const Variable& add(const char* name, const std::shared_ptr<testing::ToyLayer>& layer) {
      return register_child(name, layer)->weight();
    }

   protected:
    Variable forward(const Variable& x) override { return x; }
  };
};

/// The model of a case: options layers, root_weight, tied, nested, frozen; pair (two of them);
/// three (which branch has two of the three users). Option "root": the path of the module whose
/// units are asked for.
inline std::shared_ptr<nn::Module> model_of(const Case& asked) {
  const Json& options = asked.options;
  const testing::ToyConfig config{.width = 3,
                                  .layers = options.value("layers", 2),
                                  .root_weight = options.value("root_weight", false),
                                  .tied = options.value("tied", false),
                                  .nested = options.value("nested", false),
                                  .frozen = options.value("frozen", std::vector<std::string>{})};
  if (options.contains("three")) return std::make_shared<ThreeUsers>(options.at("three"));
  if (options.value("pair", false)) return std::make_shared<Pair>(config);
  return std::make_shared<testing::Toy>(config);
}

}  // namespace fsdp::graded
