/// @file
/// Judge: runs a case in the student's runner, under limits.
#pragma once

#include "graded/observations.h"

#include <string>

namespace fsdp::graded {

/// How a case is to be run; the scenario apart.
struct Setup {
  int world_size = 1;
  std::uint64_t seed = 1;
  Delivery delivery = Delivery::plain;
  Json options = Json::object();
};

/// Runs `scenario` in the program FSDP_RUNNER names (after the words of FSDP_JAIL, if set), or
/// returns what an equal call of this judge got before. Its ranks are threads; or, if FSDP_LAUNCHER
/// names an mpirun, processes that the script FSDP_RUN_CASE starts. They compute on the device that
/// FSDP_DEVICE names, cpu or cuda; in float64 always on the cpu.
/// Fails the test case, with the runner's own words, if the run reached an unsolved step, threw,
/// crashed, hung (FSDP_SECONDS of processor time, default 20; six times that by the clock), or
/// ended without observations. FSDP_MOST_HANGS: after so many that hung, no further run is started.
const Observations& run(const std::string& scenario, const Setup& setup);

}  // namespace fsdp::graded
