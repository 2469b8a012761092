// The process of a policy: it plans one track, and hands the plan over as its only output. Whatever
// else the policy prints goes to the error stream.
#include "base/check.h"
#include "program/command_line/option_parser.h"
#include "program/program.h"
#include "race/plan_text.h"
#include "race/plan_walk.h"
#include "race/verdict_text.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

namespace fsdp::race {
namespace {

/// The policy's plan. What it throws is its author's to mend, and no fault of this program.
Plan planned(const Problem& problem) {
  try {
    return plan(problem);
  } catch (const std::bad_alloc&) {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    throw Error(
        fmt::format("the policy has no memory left: it may have {} MiB", limit.rlim_cur >> 20));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("the policy has thrown an exception: {}", error.what()));
  }
}

int run(int argc, char** argv) {
  int track = 1;
  bool estimates = false, lists = false;
  program::OptionParser parser("race_policy", "Plans a track of the race by one policy.");
  parser.add_number("--track", track, 1, static_cast<int>(tracks().size()), "which one");
  parser.add_flag("--estimate", estimates, "print what the plan would reach in place of the plan");
  parser.add_flag("--list", lists, "print what the tracks are");
  if (const auto code = parser.parse(argc, argv)) return *code;
  if (lists) {
    program::print_line(tracks_to_json());
    return 0;
  }
  const int output = dup(STDOUT_FILENO);
  FSDP_CHECK(output >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0,
             "the standard output cannot be set apart");
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // what it prints is seen however it ends
  const PaperTrack paper(track_of(track));
  const Plan made = planned(paper.problem());
  std::string text = to_json(made) + "\n";
  if (estimates) {
    const Estimate estimate = paper.estimate(made);
    text = verdict_to_json(paper.track(), estimate, paper.plain_fsdp(), bound_of(paper),
                           refused_for_memory(estimate.peak_bytes, paper.track())) +
           "\n";
  }
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = write(output, rest.data(), rest.size());
    FSDP_CHECK(written > 0, "the plan cannot be written");
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace
}  // namespace fsdp::race

int main(int argc, char** argv) {
  return fsdp::program::run("race_policy", [&] { return fsdp::race::run(argc, argv); });
}
