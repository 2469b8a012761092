// oracle_numbers MODEL BATCHES OUT [LR [--section.key=VALUE ...]]: loads a Hugging Face folder,
// computes what the oracle does on the batches of a safetensors file (tokens and, unless only the
// logits are wanted, targets: (steps, B, T) int32), and writes it down. The settings are those of
// unshard-train: which strategy, how many ranks, and in which formats. If the file has the oracle's
// own gradients too ("step/3/<path>"), AdamW is also run on those ("same/<path>"). The scripts
// beside this file compare.
#include "base/check.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "oracle/oracle_run.h"
#include "strategies/model_files.h"
#include "train/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace fsdp;
using Metadata = std::map<std::string, std::string>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

Tensor read_all(const io::SafetensorsReader& reader, const std::string& name) {
  const io::SafetensorsEntry& entry = reader.entries().at(name);
  const Tensor out = Tensor::empty(entry.shape, entry.dtype);
  reader.read(name, out);
  return out;
}

std::map<std::string, std::vector<Tensor>> read_gradients(nn::TransformerLM& model,
                                                          const io::SafetensorsReader& reader) {
  std::map<std::string, std::vector<Tensor>> gradients;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    for (int step = 0;; ++step) {
      const std::string name = fmt::format("step/{}/{}", step, each.path);
      if (!reader.contains(name)) break;
      gradients[each.path].push_back(read_all(reader, name));
    }
  }
  return gradients;
}

// Loads the weights, and returns what the rank that held most held at its peak, and how much of it
// were shards.
Metadata load(strategies::TrainedModel& trained, const std::string& folder, ProcessGroup* group) {
  const MemoryTracker& tracker = Context::current().tracker();
  load_full(trained, folder);
  const auto most = [&](std::int64_t mine) {
    return std::to_string(std::ranges::max(train::gather<std::int64_t>(group, {mine}, {})));
  };
  const Breakdown peak = tracker.peak();
  return {{"loading_peak", most(peak.total())},
          {"loading_shards", most(peak[MemoryKind::sharded_param])}};
}

void write(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<io::SafetensorsWriter::Item> items;
  for (const auto& [name, tensor] : tensors)
    items.push_back({name, tensor.dtype(), tensor.shape()});
  io::SafetensorsWriter writer(path, items, metadata);
  for (const auto& [name, tensor] : tensors) writer.write(tensor);
  writer.finish();
}

void run(const std::string& batches, const std::string& out, double lr,
         const config::TrainConfig& config, const train::Rank& rank) {
  const io::SafetensorsReader reader(batches);
  const auto trained = strategies::make_trained_model(config, rank.group);
  const Metadata loading = load(*trained, config.from, rank.group.get());
  std::map<std::string, Tensor> same;
  if (rank.group == nullptr) {
    const auto gradients = read_gradients(trained->model(), reader);
    if (!gradients.empty()) {
      same = testing::step_on_gradients(trained->model(), gradients, lr,
                                        config.recipe.optimizer.options);
    }
  }
  const Tensor targets = reader.contains("targets") ? read_all(reader, "targets") : Tensor();
  const testing::OracleNumbers numbers = testing::run_like_the_oracle(
      *trained, rank.group.get(), read_all(reader, "tokens"), targets, lr);
  if (rank.number() != 0) return;
  NamedTensors tensors = {{"logits", numbers.logits}};
  if (!numbers.losses.empty())
    tensors.emplace_back("losses", Tensor::from(numbers.losses, {std::ssize(numbers.losses)}));
  for (const auto& [path, tensor] : numbers.gradients) tensors.emplace_back("grad/" + path, tensor);
  for (const auto& [path, tensor] : numbers.parameters) {
    tensors.emplace_back("param/" + path, tensor);
  }
  for (const auto& [path, tensor] : same) tensors.emplace_back("same/" + path, tensor);
  write(out, tensors, loading);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr,
               "usage: oracle_numbers MODEL_FOLDER BATCHES.safetensors OUT.safetensors "
               "[LR [--section.key=VALUE ...]]\n");
    return 2;
  }
  try {
    std::vector<std::string> words(argv + std::min(argc, 5), argv + argc);
    words.push_back(fmt::format("--model.from={}", argv[1]));
    const config::TrainConfig config = config::load_config(std::nullopt, words);
    const double lr = argc > 4 ? std::stod(argv[4]) : 1e-3;
    train::run_on_ranks(config, false,
                        [&](const train::Rank& rank) { run(argv[2], argv[3], lr, config, rank); });
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "oracle_numbers: {}\n", error.what());
    return 1;
  }
}
