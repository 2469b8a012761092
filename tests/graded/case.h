/// @file
/// What a judge asks a runner to do.
#pragma once

#include "base/types.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace fsdp::graded {

using Json = nlohmann::json;

/// `options`, of which `more` replaces some and adds others.
Json with(Json options, const Json& more);

/// How the bytes of a collective travel. A forgotten wait must show every time, not when a race is
/// lost.
///   plain  as the backend does it: some time between issue and wait
///   lazy   only in wait(); until then the output reads NaN
///   eager  at issue; until wait() the input of a reduction reads NaN
///   fails  at issue; wait() for the last one issued throws, as if another rank had failed since
enum class Delivery { plain, lazy, eager, fails };

/// One case: a scenario by name, on so many ranks, with numbers that follow from the seed.
struct Case {
  std::string scenario;
  int world_size = 1;
  std::uint64_t seed = 1;
  Delivery delivery = Delivery::plain;
  Device device = kCpu;           ///< of all ranks
  bool traced = true;             ///< the trace records; the order of events is seen in any case
  Json options = Json::object();  ///< what the scenario reads with Recorder::option()
  std::string nonce;              ///< comes back with the observations: they are of this run
};

Json to_json(const Case& asked);
/// @throws Error naming a field that is missing or wrong
Case case_from_json(const Json& json);

}  // namespace fsdp::graded
