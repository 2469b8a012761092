#include "train/evaluation.h"

#include "base/check.h"
#include "comm/world.h"
#include "io/checkpoint_folder.h"
#include "strategies/model_files.h"
#include "strategies/trained_model.h"
#include "train/evaluator.h"
#include "train/ranks.h"
#include "train/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace fsdp::train {
namespace {

using Checkpoint = std::optional<std::filesystem::path>;

// None: the model is that of model.from.
Checkpoint checkpoint_to_evaluate(const config::TrainConfig& config) {
  const config::CheckpointConfig& where = config.checkpoint;
  Checkpoint latest;
  if (!where.folder.empty() && where.resume) latest = io::CheckpointFolder(where.folder).latest();
  if (latest) {
    check_same_model(*latest, config);
  } else if (config.from.empty()) {
    throw InputError(fmt::format(
        "--eval: there is no model to evaluate{}; give the --checkpoint.folder of a training, or "
        "--model.from",
        where.folder.empty() ? "" : fmt::format(": {} holds no checkpoint", where.folder)));
  }
  return latest;
}

EvaluationResult evaluate(const config::TrainConfig& config, const TokenData& data,
                          const Checkpoint& checkpoint, const Rank& rank) {
  EvaluationResult result;
  const auto trained = strategies::make_trained_model(config, rank.group);
  const Evaluator evaluator(data, config.training.local_batch_size, config.sequence_length(),
                            rank.group.get());
  if (checkpoint) {
    result.steps_done = step_of(load_parameters(*trained, *checkpoint), *checkpoint);
  } else {
    load_full(*trained, config.from);
  }
  Context::current().tracker().reset_peak();
  result.windows = evaluator.windows();
  result.loss = evaluator.mean_loss(trained->model());
  const std::vector<std::int64_t> peaks = gather<std::int64_t>(
      rank.group.get(), {Context::current().tracker().peak_total()}, {"usage", Phase::none});
  result.peak_bytes = *std::ranges::max_element(peaks);
  return result;
}

}  // namespace

EvaluationResult run_evaluation(const config::TrainConfig& config, const TokenData& data,
                                const std::function<void(const std::string&)>& on_note) {
  Checkpoint checkpoint;
  in_every_process([&] {
    checkpoint = checkpoint_to_evaluate(config);
    check_tokenizer(config, "--eval", data);
    check_length("--eval", data, config.sequence_length());
  });
  if (on_note && process_rank() == 0) {
    on_note(fmt::format("evaluating {}", checkpoint ? checkpoint->string() : config.from));
  }
  EvaluationResult result;
  run_on_ranks(config, false, [&](const Rank& rank) {
    const EvaluationResult mine = evaluate(config, data, checkpoint, rank);
    if (rank.number() == process_rank()) result = mine;
  });
  return result;
}

}  // namespace fsdp::train
