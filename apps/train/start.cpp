#include "train/start.h"

#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "io/sharded_checkpoint.h"
#include "train/ranks.h"
#include "train/run_state.h"

#include <fmt/format.h>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;
using Note = std::function<void(const std::string&)>;

std::optional<fs::path> own_checkpoint(const config::CheckpointConfig& checkpoint) {
  if (checkpoint.folder.empty() || !checkpoint.resume) return std::nullopt;
  return io::CheckpointFolder(checkpoint.folder).latest();
}

Start resume(const config::TrainConfig& config, TrainedModel& trained, const fs::path& latest,
             const Note& note) {
  Start start{.resumed = latest, .metadata = load_checkpoint(trained, latest)};
  start.steps_done = step_of(start.metadata, latest);
  start.order = order_of(start.metadata, latest);
  const std::int64_t steps = config.training.steps;
  if (start.steps_done > steps) {
    throw InputError(
        fmt::format("training.steps: is {}, but {} was saved after step {}; use more "
                    "steps, or another checkpoint.folder",
                    steps, latest.string(), start.steps_done));
  }
  note(fmt::format("resumed from {} after step {}{}", latest.string(), start.steps_done,
                   start.steps_done < steps ? ""
                                            : ": all steps are done, more take a larger "
                                              "training.steps"));
  return start;
}

// A training may go on in that folder meanwhile, so the first rank chooses for all, and says what
// does not fit.
fs::path choose(const config::TrainConfig& config, const TrainedModel& trained, const Note& note) {
  const fs::path from = config.checkpoint.from;
  std::int64_t step = -1;  // `from` itself
  if (trained.is_first()) {
    const io::WholeCheckpoint whole = io::whole_checkpoint(from);
    if (!whole.passed_over.empty()) note("note: " + whole.passed_over);
    check_begins_with(whole.folder, config);
    io::SliceReader(whole.folder).check_shapes(trained.parameters());
    if (whole.folder != from) step = io::step_in(whole.folder.filename().string());
  }
  step = gather<std::int64_t>(trained.group(), {step}, {"start", Phase::checkpoint}).front();
  return step < 0 ? from : io::existing_folder(io::CheckpointFolder(from).final(step));
}

void begin(const config::TrainConfig& config, TrainedModel& trained, const Note& note) {
  try {
    const fs::path folder = choose(config, trained, note);
    load_checkpoint(trained, folder);
    note(fmt::format("began with the weights and the optimizer's state in {}, updates so far: {}",
                     folder.string(), trained.optimizer_steps()));
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", config.origin("checkpoint.from"), error.what()));
  }
}

}  // namespace

Start load_start(const config::TrainConfig& config, TrainedModel& trained, const Note& note) {
  if (const auto latest = own_checkpoint(config.checkpoint)) {
    return resume(config, trained, *latest, note);
  }
  if (!config.checkpoint.from.empty()) {
    begin(config, trained, note);
  } else if (!config.from.empty()) {
    load_full(trained, config.from);
    note(fmt::format("started from the weights in {}", config.from));
  }
  return {};
}

}  // namespace fsdp::train
