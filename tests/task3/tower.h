/// @file
/// What the judge of task 3 knows about the towers of its scenarios.
#pragma once

#include "grader/expect.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::graded {

/// The flat vectors of one layer as a single process holds them, padded to a multiple of W.
struct Layer {
  std::vector<std::vector<float>> flats;  ///< trainable parameters, then frozen ones
  std::vector<std::int64_t> valid;        ///< elements that are not padding
  std::int64_t bytes() const;             ///< of all of them
};

/// The layer `index` of the model a case is about.
Layer layer_of(const Case& asked, std::size_t index = 0);
/// "layers.0", as the runner names that unit.
std::string unit_name(std::size_t index = 0);
/// The output of the model of a case for its input.
std::vector<float> output_of(const Case& asked);

/// Checks the vectors noted as "<key>.0", … against `layer`, times `factor`.
void check_values(Lesson& lesson, const Seen& seen, int rank, const std::string& key,
                  const Layer& layer, float factor = 1);

}  // namespace fsdp::graded
