/// @file
/// Trainings of a few steps, from words as on the command line.
#pragma once

#include "train/some_text.h"
#include "train/trainer.h"

#include <algorithm>
#include <string>
#include <vector>

namespace fsdp::train::short_training {

using Words = std::vector<std::string>;

/// Four steps of a nano model, each over twelve micro-batches of seven tokens. Later words count
/// more.
inline config::TrainConfig configure(const std::vector<Words>& parts) {
  Words words = {"--model.preset=nano",         "--model.vocab_size=127",
                 "--training.seq_len=7",        "--training.local_batch_size=1",
                 "--training.steps=4",          "--training.global_batch_size=12",
                 "--lr_scheduler.kind=constant"};
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return config::load_config(std::nullopt, words);
}

struct Trained {
  RunResult result;
  std::vector<std::string> notes;
};

inline Trained train(const config::TrainConfig& config) {
  Trained trained;
  RunOptions options;
  options.on_note = [&](const std::string& note) { trained.notes.push_back(note); };
  trained.result = run_training(config, some_text(), options);
  return trained;
}

/// The steps that were skipped because a gradient overflowed.
inline int skipped(const Trained& trained) {
  return static_cast<int>(std::ranges::count_if(trained.notes, [](const std::string& note) {
    return note.ends_with("the step was skipped");
  }));
}

inline Words placed(const std::string& strategy, int ranks, int replicas = 1) {
  Words words = {"--parallel.strategy=" + strategy, "--parallel.ranks=" + std::to_string(ranks)};
  if (replicas > 1) {
    words.push_back("--parallel.data_parallel_replicate_degree=" + std::to_string(replicas));
  }
  return words;
}

/// A mixed precision.
inline Words policy(const std::string& param, const std::string& reduce) {
  return {"--training.mixed_precision_param=" + param,
          "--training.mixed_precision_reduce=" + reduce};
}

struct Place {
  std::string strategy;
  int ranks;
  int replicas = 1;

  Words words() const { return placed(strategy, ranks, replicas); }
  std::string name() const {
    return strategy + " W=" + std::to_string(ranks) + " R=" + std::to_string(replicas);
  }
};

/// Every strategy on one to four ranks, and meshes unless this is a student kit without task 8.
/// Under a sanitizer, which sees the same code in each, on two and on three.
inline std::vector<Place> all_places() {
  std::vector<Place> all = {{"single", 1}};
  if (FSDP_SANITIZED != 0) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      for (const int ranks : {2, 3}) all.push_back({strategy, ranks});
    }
    if (FSDP_HAS_TASK8 != 0) all.push_back({"fsdp", 6, 2});
    return all;
  }
  for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    for (const int ranks : {1, 2, 3, 4}) all.push_back({strategy, ranks});
  }
  if (FSDP_HAS_TASK8 == 0) return all;
  for (const int replicas : {2, 4}) all.push_back({"fsdp", 4, replicas});
  for (const int ranks : {6, 8}) all.push_back({"fsdp", ranks, 2});
  all.push_back({"fsdp", 8, 4});
  return all;
}

}  // namespace fsdp::train::short_training
