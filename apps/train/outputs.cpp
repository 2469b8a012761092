#include "train/outputs.h"

#include "base/check.h"
#include "io/output_file.h"
#include "train/run_state.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;

// Whatever fails in `body`, the user learns which option or key it comes from.
template <class Body>
void under(const std::string& option, Body&& body) {
  try {
    body();
  } catch (const InputError& error) {  // says what to do
    throw InputError(fmt::format("{}: {}", option, error.what()));
  } catch (const Error& error) {
    throw InputError(fmt::format("{}: {}; give another place", option, error.what()));
  } catch (const fs::filesystem_error& error) {
    throw InputError(fmt::format("{}: {}: {}; give another place", option, error.path1().string(),
                                 error.code().message()));
  }
}

// A checkpoint that will be written must not find anything else under its name.
void check_checkpoints(const config::TrainConfig& config, const TokenData& data) {
  const config::CheckpointConfig& checkpoint = config.checkpoint;
  const io::CheckpointFolder folder(checkpoint.folder);
  const auto latest = folder.latest();
  if (latest && !checkpoint.resume) {
    throw InputError(
        fmt::format("{} holds a training already ({}); use another folder, remove it, or go on "
                    "with --checkpoint.resume true",
                    checkpoint.folder, latest->filename().string()));
  }
  const std::int64_t done = latest ? check_same_run(*latest, config, data) : 0;
  io::check_file_is_ours(folder.root() / "latest.tmp", "step_");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.root())) {
    const std::int64_t step = io::step_in(entry.path().filename().string());
    const bool is_due = step == config.training.steps ||
                        (checkpoint.interval > 0 && step > 0 && step % checkpoint.interval == 0);
    if (step > done && step <= config.training.steps && is_due)
      io::check_folder_is_ours(folder.final(step));
  }
}

// An export replaces its folder as a whole, with all that lies in it.
void check_nothing_inside(const RunOptions& options, const config::TrainConfig& config) {
  const fs::path folder = io::resolved(options.export_folder);
  std::vector<PlannedFile> others = options.planned_files;
  others.push_back({"checkpoint.folder", config.checkpoint.folder});
  for (const auto& [option, path, probe] : others) {
    if (path.empty()) continue;
    const fs::path inside = io::resolved(path).lexically_relative(folder);
    if (inside.empty() || *inside.begin() == "..") continue;
    throw InputError(fmt::format(
        "--export: {} is replaced as a whole, and {} {} lies in it; give another place to one",
        options.export_folder, option, path.string()));
  }
}

}  // namespace

OutputClaims claim_outputs(const config::TrainConfig& config, const TokenData& data,
                           const RunOptions& options) {
  OutputClaims claims;
  if (!config.checkpoint.folder.empty()) {
    under("checkpoint.folder", [&] {
      claims.checkpoints = std::make_unique<io::FolderLock>(config.checkpoint.folder);
      check_checkpoints(config, data);
    });
  }
  if (!options.export_folder.empty()) {
    check_nothing_inside(options, config);
    under("--export",
          [&] { claims.export_folder = std::make_unique<io::FolderClaim>(options.export_folder); });
  }
  probe_files(options.planned_files);
  return claims;
}

void probe_files(const std::vector<PlannedFile>& files) {
  for (const PlannedFile& each : files) under(each.option, [&] { each.probe(each.path); });
}

}  // namespace fsdp::train
