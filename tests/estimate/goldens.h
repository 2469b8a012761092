/// @file
/// What PyTorch counted of small Llamas (tests/oracle/): files of shapes and runs.
#pragma once

#include "nn/transformer.h"

#include <nlohmann/json.hpp>

#include <string>

namespace fsdp::estimate {

/// The file `name` of tests/estimate/data.
nlohmann::json goldens(const std::string& name);

/// The model of one of their runs.
nn::TransformerConfig model_of(const nlohmann::json& all, const nlohmann::json& run);

}  // namespace fsdp::estimate
