/// @file
/// The parameters that a case of task 2 is about: known to the scenario and to the judge.
#pragma once

#include "grader/case.h"
#include "support/toy_model.h"

#include <cstdint>
#include <vector>

namespace fsdp::graded {

/// Option "shapes" of a case: parameter i is called "p<i>".
inline std::vector<Shape> given_shapes(const Case& asked) {
  return asked.options.value("shapes", std::vector<Shape>{{3, 2}, {3}});
}

/// The values of parameter i before it became part of a flat vector.
inline Tensor given_values(const Case& asked, std::size_t i) {
  return testing::noise(given_shapes(asked).at(i), 64 * asked.seed + i);
}

}  // namespace fsdp::graded
