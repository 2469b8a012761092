// Drives the planner until unshard-estimate does: unshard-plan-dev --plan --memory 80GB
// [--model.preset=tiny --section.key=value …]
#include "planner/planner.h"
#include "program/program.h"
#include "train/bound.h"

namespace fsdp::planner {
namespace {

int run(int argc, char** argv) {
  program::OptionParser parser("unshard-plan-dev", "Plans a training.");
  PlannerLine line;
  line.declare(parser);
  parser.add_text("--memory", line.memory, "bytes of a device: 80GB");
  parser.add_choice("--format", line.format, {"text", "json"}, "text or json");
  parser.keep_unknown_words();
  if (const auto code = parser.parse(argc, argv)) return *code;
  const train::TrainConfig config = train::load_config({}, parser.unknown_words());
  program::print_line(
      run_mode(line, config.model, config.model_name(), train::memory_options(config)));
  return 0;
}

}  // namespace
}  // namespace fsdp::planner

int main(int argc, char** argv) {
  return fsdp::program::run("unshard-plan-dev", [&] { return fsdp::planner::run(argc, argv); });
}
