/// @file
/// What the flat parameters of task 5's cases are made of: read by the runner, which builds them,
/// and by the judge, which computes with them in one process. All numbers follow from the seed.
#pragma once

#include "graded/case.h"
#include "support/toy_model.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace fsdp::graded {

struct FlatSpec {
  std::string unit;
  std::vector<Shape> shapes;  ///< of its parameters
  bool trainable = true;
  bool decay = true;
  std::int64_t numel() const {
    std::int64_t total = 0;
    for (const Shape& shape : shapes) total += numel_of(shape);
    return total;
  }
};

/// The option "flats" of a case: a list of [unit, shapes, trainable, decay]. Without it: a unit
/// with three flat parameters, one of them frozen and one without decay, and another unit.
inline std::vector<FlatSpec> specs_of(const Case& asked) {
  if (!asked.options.contains("flats")) {
    return {{"a", {{4, 2}, {5}}, true, true},
            {"a", {{2, 3}}, false, true},
            {"a", {{3}}, true, false},
            {"b", {{11}, {2, 2}}, true, true}};
  }
  std::vector<FlatSpec> specs;
  for (const Json& each : asked.options.at("flats")) {
    specs.push_back({each.at(0).get<std::string>(), each.at(1).get<std::vector<Shape>>(),
                     each.at(2).get<bool>(), each.at(3).get<bool>()});
  }
  return specs;
}

/// "<unit>.<flat>.<index>".
inline std::string path_of(const FlatSpec& spec, std::size_t flat, std::size_t index) {
  return fmt::format("{}.{}.{}", spec.unit, flat, index);
}

/// The values that parameter `index` of flat parameter `flat` starts with.
inline Tensor start_of(const Case& asked, const FlatSpec& spec, std::size_t flat,
                       std::size_t index) {
  return testing::noise(spec.shapes[index], 1000 * asked.seed + 50 * flat + index);
}

/// The gradient of a whole flat parameter in step `step` (from 1), without padding: noise, times
/// the option "scale".
inline Tensor gradient_of(const Case& asked, const FlatSpec& spec, std::size_t flat, int step) {
  const std::uint64_t stream = 1000 * asked.seed + 500 + 20 * flat;
  std::vector<float> values =
      testing::noise({spec.numel()}, stream + static_cast<std::uint64_t>(step)).to_vector<float>();
  for (float& value : values) value *= asked.options.value("scale", 1.0F);
  return Tensor::from(values, {spec.numel()});
}

/// What a case has put into the padding before the step under test, with the option "poison": a
/// number as text, "nan" and "-inf" among them.
inline double poison_of(const Case& asked) {
  return std::strtod(asked.options.value("poison", "0").c_str(), nullptr);
}

/// Which element type a case asks for, with the option "double".
inline DType dtype_of(const Case& asked) {
  return asked.options.value("double", false) ? DType::float64 : DType::float32;
}
inline Tensor as(DType dtype, const Tensor& values) {
  if (values.dtype() == dtype) return values;
  Variable converted(values);
  converted.convert(dtype);
  return converted.data();
}

inline double learning_rate(int step) { return 0.1 / step; }

}  // namespace fsdp::graded
