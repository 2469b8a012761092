// Task 2, step 5: which unit manages which parameter.
#include "support/catch.h"
#include "support/toy.h"
#include "task2_flat_parameter/flat_parameter.h"

#include <algorithm>
#include <set>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

using Paths = std::vector<std::string>;

std::vector<Paths> units_of(nn::Module& root, const std::vector<std::string>& unit_paths,
                            const Paths& ignored = {}) {
  std::vector<nn::Module*> modules;
  for (const std::string& path : unit_paths) modules.push_back(root.find(path));
  std::vector<const void*> ids;
  for (const nn::NamedParameter& each : root.named_parameters()) {
    if (std::find(ignored.begin(), ignored.end(), each.path) != ignored.end()) {
      ids.push_back(each.variable.id());
    }
  }
  std::vector<Paths> units;
  for (const auto& list : parameters_of_units(root, modules, ids)) {
    Paths& paths = units.emplace_back();
    for (const nn::NamedParameter& each : list) paths.push_back(each.path);
  }
  return units;
}

std::int64_t total_numel(nn::Module& root, const std::vector<std::string>& unit_paths) {
  std::vector<nn::Module*> modules;
  for (const std::string& path : unit_paths) modules.push_back(root.find(path));
  std::int64_t total = 0;
  for (const auto& list : parameters_of_units(root, modules)) {
    for (const nn::NamedParameter& each : list) total += each.variable.data().numel();
  }
  return total;
}

}  // namespace

TEST_CASE("A parameter belongs to the unit around its module, what is left to the root", "[2.5]") {
  Toy toy({.layers = 2, .root_weight = true});
  CHECK(units_of(toy, {"layers.0", "layers.1"}) ==
        std::vector<Paths>{{"layers.0.weight", "layers.0.bias"},
                           {"layers.1.weight", "layers.1.bias"},
                           {"weight"}});
  CHECK(units_of(toy, {"layers.1"}) ==
        std::vector<Paths>{{"layers.1.weight", "layers.1.bias"},
                           {"weight", "layers.0.weight", "layers.0.bias"}});
}

TEST_CASE("A root that manages nothing has an empty list", "[2.5]") {
  Toy toy({.layers = 2});
  CHECK(units_of(toy, {"layers.1", "layers.0"}) ==
        std::vector<Paths>{
            {"layers.1.weight", "layers.1.bias"}, {"layers.0.weight", "layers.0.bias"}, {}});
}

TEST_CASE("The root may be listed, anywhere", "[2.5]") {
  Toy toy({.layers = 1, .root_weight = true});
  CHECK(units_of(toy, {"", "layers.0"}) ==
        std::vector<Paths>{{"weight"}, {"layers.0.weight", "layers.0.bias"}});
}

TEST_CASE("Nested units: the innermost one has it, nobody has it twice", "[2.5]") {
  Toy toy({.layers = 2, .nested = true});
  const std::vector<std::string> inner_first = {"layers.0.inner", "layers.0", "layers.1"};
  const std::vector<std::string> outer_first = {"layers.0", "layers.0.inner", "layers.1"};
  CHECK(units_of(toy, inner_first) ==
        std::vector<Paths>{
            {"layers.0.inner.weight", "layers.0.inner.bias"},
            {"layers.0.weight", "layers.0.bias"},
            {"layers.1.weight", "layers.1.bias", "layers.1.inner.weight", "layers.1.inner.bias"},
            {}});
  CHECK(units_of(toy, outer_first)[0] == Paths{"layers.0.weight", "layers.0.bias"});
  CHECK(units_of(toy, outer_first)[1] == Paths{"layers.0.inner.weight", "layers.0.inner.bias"});
  CHECK(total_numel(toy, inner_first) == toy.parameter_count());
  CHECK(total_numel(toy, outer_first) == toy.parameter_count());
}

TEST_CASE("A tied parameter belongs to the lowest unit around all its users", "[2.5]") {
  Toy toy({.layers = 3, .tied = true});
  CHECK(units_of(toy, {"layers.0", "layers.1", "layers.2"}) ==
        std::vector<Paths>{{"layers.0.bias"},
                           {"layers.1.weight", "layers.1.bias"},
                           {"layers.2.bias"},
                           {"layers.0.weight"}});
  // With one of its users in no unit, it is the root's as well.
  CHECK(units_of(toy, {"layers.0"})[0] == Paths{"layers.0.bias"});
  CHECK(total_numel(toy, {"layers.0", "layers.1", "layers.2"}) == toy.parameter_count());
}

namespace {

/// Two toys side by side under a root.
class Pair : public nn::Module {
 public:
  explicit Pair(const ToyConfig& config)
      : left(register_child("left", std::make_shared<Toy>(config))),
        right(register_child("right", std::make_shared<Toy>(config))) {}
  std::shared_ptr<Toy> left, right;

 protected:
  Variable forward(const Variable& x) override { return (*right)((*left)(x)); }
};

}  // namespace

TEST_CASE("Weights tied within a unit stay in it, even if it is not the root", "[2.5]") {
  Pair pair({.layers = 2, .tied = true});
  const auto units = units_of(pair, {"left.layers.0", "left.layers.1", "left", "right"});
  CHECK(units[0] == Paths{"left.layers.0.bias"});
  CHECK(units[1] == Paths{"left.layers.1.bias"});
  CHECK(units[2] == Paths{"left.layers.0.weight"});
  CHECK(units[3] == Paths{"right.layers.0.weight", "right.layers.0.bias", "right.layers.1.bias"});
  CHECK(units[4].empty());
}

TEST_CASE("Ignored parameters are in no list", "[2.5]") {
  Toy toy({.layers = 2});
  CHECK(units_of(toy, {"layers.0", "layers.1"}, {"layers.0.bias", "layers.1.weight"}) ==
        std::vector<Paths>{{"layers.0.weight"}, {"layers.1.bias"}, {}});
}

TEST_CASE("A module cannot be a unit twice", "[2.5]") {
  Toy toy({.layers = 2});
  CHECK_THAT(message_of<Error>([&] {
               units_of(toy, {"layers.0", "layers.0"});
             }),
             contains("layers.0"));
}
