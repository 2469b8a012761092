// race_judge: judges a plan on one track of the race.
#include "io/file_io.h"
#include "io/output_file.h"
#include "program/command_line/option_parser.h"
#include "program/program.h"
#include "race/judge.h"
#include "race/verdict_text.h"
#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace fsdp::race {
namespace {

Estimate summary(const Measured& measured) { return {measured.step_ps, measured.peak_bytes}; }

/// The plan's step and that of plain FSDP, on one axis of time.
void draw(const Verdict& verdict, const std::filesystem::path& folder) {
  const std::int64_t length = std::max(verdict.plan.step_ps, verdict.fsdp.step_ps);
  for (const auto& [name, measured] :
       {std::pair("plan", &verdict.plan), std::pair("fsdp", &verdict.fsdp)}) {
    report::FigureOptions options;
    options.title = fmt::format("Track {}, {}: {}", verdict.track->number, verdict.track->name,
                                measured == &verdict.fsdp ? "plain FSDP" : "the plan");
    options.length = length;
    io::write_output_file(folder / fmt::format("track{}_{}.svg", verdict.track->number, name),
                          report::timeline_svg(measured->record, options));
  }
}

int run(int argc, char** argv) {
  int track = 1;
  bool lists = false;
  std::optional<std::string> plan, pictures;
  program::OptionParser parser("race_judge",
                               "Judges a plan on a track of the race; the result is JSON.");
  parser.add_number("--track", track, 1, static_cast<int>(tracks().size()), "which one");
  parser.add_flag("--list", lists, "print what the tracks are");
  parser.add_text("--plan", plan, "file: what the policy's process printed");
  parser.add_text("--pictures", pictures, "folder: for the plan's step, and plain FSDP's (SVG)");
  if (const auto code = parser.parse(argc, argv)) return *code;
  if (lists) {
    program::print_line(tracks_to_json());
    return 0;
  }
  if (!plan) throw InputError("--plan: name the file that the policy's process has printed");
  const Verdict verdict = judge(track_of(track), io::read_text(*plan));
  if (pictures && verdict.refused.empty()) draw(verdict, *pictures);
  program::print_line(verdict_to_json(*verdict.track, summary(verdict.plan), summary(verdict.fsdp),
                                      verdict.bound, verdict.refused, verdict.planner));
  return 0;
}

}  // namespace
}  // namespace fsdp::race

int main(int argc, char** argv) {
  return fsdp::program::run("race_judge", [&] { return fsdp::race::run(argc, argv); });
}
