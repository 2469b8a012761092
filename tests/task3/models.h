/// @file
/// The model that a case of task 3 is about: known to the scenarios and to the judge.
#pragma once

#include "graded/case.h"
#include "support/toy_model.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace fsdp::graded {

/// In what order a layer's flat parameters are: trainable ones first, or with option
/// "frozen_first" last.
inline std::vector<bool> trainable_or_not(const Case& asked) {
  const bool frozen_first = asked.options.value("frozen_first", false);
  return {!frozen_first, frozen_first};
}

/// The name of a unit. It is not its module's path, "layers.0".
inline std::string name_of_unit(std::size_t index) { return "unit." + std::to_string(index); }

/// Options width, layers, spare (each layer has an unused parameter), frozen (path prefixes).
inline testing::ToyConfig config_of(const Case& asked) {
  const Json& options = asked.options;
  return {.width = options.value("width", 5),
          .layers = options.value("layers", 1),
          .unused = options.value("spare", false),
          .frozen = options.value("frozen", std::vector<std::string>{})};
}

/// Option "wide": float64, with more digits than a float32 can hold.
inline bool is_wide(const Case& asked) { return asked.options.value("wide", false); }
inline void widen(nn::Module& model, const Case& asked) {
  if (!is_wide(asked)) return;
  model.convert(DType::float64);
  for (const nn::NamedParameter& each : model.named_parameters()) {
    ops::scale(each.variable.data(), 1.0 / 3);
  }
}

/// The model's input, `more` columns too wide.
inline Variable input_of(const Case& asked, int more = 0) {
  Variable x(testing::noise({3, asked.options.value("width", 5) + more}, asked.seed));
  if (is_wide(asked)) x.convert(DType::float64);
  return x;
}

/// What task 2 has made of a flat parameter, in words.
inline std::string format_of(const Tensor& full, DType shard) {
  return fmt::format("full() is {} over {} bytes, shard() is {}", name_of(full.dtype()),
                     full.storage()->nbytes(), name_of(shard));
}

}  // namespace fsdp::graded
