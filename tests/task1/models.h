/// @file
/// The models that the cases of task 1 are about: known to the scenarios and to the judge.
#pragma once

#include "grader/case.h"
#include "nn/transformer.h"
#include "support/toy_model.h"

#include <memory>
#include <utility>
#include <vector>

namespace fsdp::graded {

/// Random parameters between constants, a buffer, and a child that is made before the parent's last
/// parameter: so the order of the tree is not the order in which words are drawn.
class Mixed : public nn::Module {
 public:
  Mixed() {
    register_parameter("first", {3, 5}, InitSpec::uniform(-1, 2));
    register_parameter("scale", {4}, InitSpec::ones());
    register_parameter("second", {7}, InitSpec::truncated_normal(0.02));
    register_child("inner", std::make_shared<testing::ToyLayer>(testing::ToyConfig{.width = 3},
                                                                false, Variable()));
    register_parameter("shift", {2, 2}, InitSpec::zeros());
    register_parameter("third", {6}, InitSpec::truncated_normal(0.5, 2));
    register_buffer("table", {9});
    if (Context::current().device() != kMeta) Mixed::initialise_buffers();
  }
  void initialise_buffers() override {
    for (nn::Buffer& buffer : own_buffers()) {
      const AllocationScope scope(MemoryKind::buffer);
      buffer.tensor = Tensor::empty(buffer.tensor.shape());
      ops::fill(buffer.tensor, 0.25);
      buffer.is_initialised = true;
    }
  }

 protected:
  Variable forward(const Variable& x) override { return x; }
};

/// Option "model": toy (layers, width, spare, tied), mixed, or transformer (tied).
inline std::shared_ptr<nn::Module> make_model(const Case& asked) {
  const Json& options = asked.options;
  const std::string kind = options.value("model", "toy");
  if (kind == "mixed") return std::make_shared<Mixed>();
  if (kind == "transformer") {
    nn::TransformerConfig config = nn::TransformerConfig::nano();
    config.tie_embeddings = options.value("tied", false);
    return std::make_shared<nn::TransformerLM>(config);
  }
  return std::make_shared<testing::Toy>(
      testing::ToyConfig{.width = options.value("width", 5),
                         .layers = options.value("layers", 2),
                         .tied = options.value("tied", false),
                         .unused = options.value("spare", false)});
}

/// Begin and length of the slices that a case looks at.
inline std::vector<std::pair<std::int64_t, std::int64_t>> slices_of(std::int64_t numel) {
  return {{0, 0},         {0, 1},         {0, numel},
          {1, numel - 1}, {numel / 2, 1}, {numel / 2, numel - numel / 2},
          {numel - 1, 1}, {numel, 0}};
}

/// The input of the transformer.
inline Tensor some_tokens() {
  return Tensor::from(std::vector<std::int32_t>{0, 7, 14, 21, 28, 4, 11, 18}, {1, 8});
}

}  // namespace fsdp::graded
