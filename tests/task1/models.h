/// @file
/// The models that the cases of task 1 are about: known to the scenarios and to the judge.
#pragma once

#include "graded/case.h"
#include "nn/transformer.h"
#include "support/numbers.h"
#include "support/toy_model.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::graded {

/// Random parameters between constants, a buffer, and a child that is made before the parent's last
/// parameter: so the order of the tree is not the order in which words are drawn. One parameter is
/// frozen, the values of two are all equal although they are drawn, and one has no elements.
class Mixed : public nn::Module {
 public:
  /// `wide`: some of its parameters are float64.
  explicit Mixed(bool wide) {
    const DType other = wide ? DType::float64 : DType::float32;
    Variable first = register_parameter("first", {3, 5}, InitSpec::uniform(-1, 2));
    first.set_requires_grad(false);
    register_parameter("scale", {4}, InitSpec::ones(), other);
    register_parameter("second", {7}, InitSpec::truncated_normal(0.02), other);
    InitSpec still = InitSpec::truncated_normal(0);
    still.mean = 0.75;
    register_parameter("still", {5}, still);
    register_parameter("even", {3}, InitSpec::uniform(2, 2));
    register_parameter("none", {0, 4}, InitSpec::uniform(-1, 1));
    register_child("inner", std::make_shared<testing::ToyLayer>(testing::ToyConfig{.width = 3},
                                                                false, Variable()));
    register_parameter("shift", {2, 2}, InitSpec::zeros());
    register_parameter("third", {6}, InitSpec::truncated_normal(0.5, 2), other);
    register_buffer("table", {9});
    if (Context::current().device() != kMeta) Mixed::initialize_buffers();
  }
  void initialize_buffers() override {
    for (nn::Buffer& buffer : own_buffers()) {
      const AllocationScope scope(MemoryKind::buffer);
      buffer.tensor = Tensor::empty(buffer.tensor.shape());
      ops::fill(buffer.tensor, 0.25);
      buffer.is_initialized = true;
    }
  }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

/// A module within another: what belongs to it lies that much deeper in the tree.
class Around : public nn::Module {
 public:
  Around(const char* name, const std::shared_ptr<nn::Module>& inner) {
    register_child(name, inner);
  }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

/// One weight with three users, whose names do not sort in their order.
class Shared : public nn::Module {
 public:
  Shared() {
    const testing::ToyConfig config{.width = 4};
    Variable weight;
    for (const char* name : {"layers.10", "layers.9", "layers.2"}) {
      weight = register_child(name, std::make_shared<testing::ToyLayer>(config, false, weight))
                   ->weight();
    }
  }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

/// Parameters that no host has room for: more elements than a float can count, and more than 32
/// bits can.
class Vast : public nn::Module {
 public:
  Vast() {
    register_parameter("few", {5}, InitSpec::uniform(-1, 1));
    register_parameter("many", {4097, 8191}, InitSpec::truncated_normal(0.02));
    register_parameter("scale", {64}, InitSpec::ones());
    register_parameter("most", {(1 << 17) + 1, 1 << 16}, InitSpec::uniform(-1, 1));
    register_parameter("last", {7}, InitSpec::truncated_normal(0.5));
  }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

/// Whether the model of a case exists on meta only.
inline bool is_vast(const Case& asked) { return asked.options.value("model", "toy") == "vast"; }

/// Option "model": toy (layers, width, spare, tied), mixed (wide), deep (mixed, two levels down),
/// shared, vast, or transformer (tied).
inline std::shared_ptr<nn::Module> make_model(const Case& asked) {
  const Json& options = asked.options;
  const std::string kind = options.value("model", "toy");
  if (kind == "mixed") return std::make_shared<Mixed>(options.value("wide", false));
  if (kind == "deep") {
    return std::make_shared<Around>(
        "outer", std::make_shared<Around>("middle", std::make_shared<Mixed>(false)));
  }
  if (kind == "shared") return std::make_shared<Shared>();
  if (kind == "vast") return std::make_shared<Vast>();
  if (kind == "transformer") {
    nn::TransformerConfig config = nn::TransformerConfig::nano();
    config.tie_word_embeddings = options.value("tied", false);
    return std::make_shared<nn::TransformerLM>(config);
  }
  return std::make_shared<testing::Toy>(
      testing::ToyConfig{.width = options.value("width", 5),
                         .layers = options.value("layers", 2),
                         .tied = options.value("tied", false),
                         .unused = options.value("spare", false)});
}

/// What the failing half of a build is seeded with, above the case's own seed (option "retry").
inline constexpr std::uint64_t kSeedOfFirstHalf = 5;

/// Elements of each slice whose work is counted.
inline constexpr std::int64_t kCountedSlice = 10;

inline std::string path_of(const nn::Module& module, const nn::Buffer& buffer) {
  return module.path().empty() ? buffer.name : module.path() + "." + buffer.name;
}

/// Bytes that a few slices of a vast parameter never need.
inline constexpr std::int64_t kMuchForSlices = 4096;

/// What a case notes in place of the parameter whose record was found.
inline constexpr const char* kNotFound = "not found";
inline constexpr const char* kBeyondRecords = "beyond the last record";

/// Begin and length of the slices that a case looks at.
inline std::vector<std::pair<std::int64_t, std::int64_t>> slices_of(std::int64_t numel) {
  if (numel == 0) return {{0, 0}};
  if (numel <= 1 << 20) {
    return {{0, 0},         {0, 1},         {0, numel},
            {1, numel - 1}, {numel / 2, 1}, {numel / 2, numel - numel / 2},
            {numel - 1, 1}, {numel, 0}};
  }
  const std::int64_t million = 1 << 24, billion = std::int64_t{1} << 32;
  std::vector<std::pair<std::int64_t, std::int64_t>> slices = {
      {0, 5}, {million - 2, 6}, {million + 1, 6}, {numel / 2 + 1, 7}, {numel - 5, 5}, {numel, 0}};
  if (numel > billion + 6) slices.insert(slices.end() - 2, {{billion - 3, 6}, {billion + 1, 5}});
  return slices;
}

using testing::digits_of;
using testing::floats_of;

/// The input of the transformer.
inline Tensor some_tokens() {
  return Tensor::from(std::vector<std::int32_t>{0, 7, 14, 21, 28, 4, 11, 18}, {1, 8});
}

}  // namespace fsdp::graded
