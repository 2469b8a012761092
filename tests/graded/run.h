/// @file
/// Judge: runs a case in the student's runner, under limits.
#pragma once

#include "graded/observations.h"

#include <cstdint>
#include <string>

namespace fsdp::graded {

/// How a case is to be run; the scenario apart.
struct Setup {
  int world_size = 1;
  std::uint64_t seed = 1;
  Delivery delivery = Delivery::plain;
  Json options = Json::object();
};

/// The seed that a run gets for that of a Setup: FSDP_SALT is added. A grader derives it from what
/// was submitted, so that observations which were recorded elsewhere answer another question.
std::uint64_t salted(std::uint64_t seed);

/// Runs `scenario` in the program FSDP_RUNNER names, or returns what an equal call of this judge
/// got before. FSDP_JAIL, if set: words before it, a line each; FSDP_RESIDENT_JAIL: those of a
/// ResidentJail. Its ranks are threads; or, if FSDP_LAUNCHER names an mpirun, processes that the
/// script FSDP_RUN_CASE starts. They compute on the device that FSDP_DEVICE names, cpu or cuda; in
/// float64 always on the cpu.
/// Fails the test case, with the runner's own words, if the run reached an unsolved step, threw,
/// crashed, hung (FSDP_SECONDS of processor time, default 20; six times that by the clock), or
/// ended without observations, or with another exit code than 0 after them. FSDP_MOST_HANGS: after
/// so many that hung, no further run is started.
const Observations& run(const std::string& scenario, const Setup& setup);

}  // namespace fsdp::graded
