/// @file
/// The blocks of task 8's models, which are checkpointed, and their input: what runner and judge
/// must agree on.
#pragma once

#include "nn/transformer.h"
#include "task7/models.h"

#include <memory>
#include <vector>

namespace fsdp::graded {

/// The blocks of a transformer, or the layers of a toy.
inline std::vector<nn::Module*> blocks_of(nn::Module& root) {
  std::vector<nn::Module*> blocks;
  if (auto* transformer = dynamic_cast<nn::TransformerLM*>(&root)) {
    for (const auto& block : transformer->blocks()) blocks.push_back(block.get());
  } else if (auto* toy = dynamic_cast<testing::Toy*>(&root)) {
    for (const auto& layer : toy->layers()) blocks.push_back(layer.get());
  }
  return blocks;
}

/// What runs first in a block of a transformer.
inline nn::Module& first_child_of(nn::Module& block) {
  for (const auto& child : block.children()) {
    if (child->name() == "input_layernorm") return *child;
  }
  return block;
}

/// The input of a toy: rows · width numbers.
inline Tensor input_of(const Case& asked) {
  const auto rows = asked.options.value("rows", std::int64_t{7});
  const auto width = asked.options.value("width", std::int64_t{5});
  return testing::noise({rows, width}, asked.seed * 100);
}

}  // namespace fsdp::graded
