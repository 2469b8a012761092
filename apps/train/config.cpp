#include "train/config.h"

#include "train/config_checks.h"
#include "train/config_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>

namespace fsdp::train {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr std::int64_t kMostRanks = 256;

const std::map<std::string, std::function<nn::TransformerConfig()>>& presets() {
  static const std::map<std::string, std::function<nn::TransformerConfig()>> table = {
      {"nano", nn::TransformerConfig::nano},
      {"tiny", nn::TransformerConfig::tiny},
      {"small", nn::TransformerConfig::small},
      {"llama_124m", nn::TransformerConfig::llama_124m},
      {"llama_2b", nn::TransformerConfig::llama_2b},
  };
  return table;
}

void read_model(ConfigReader& in, TrainConfig& config) {
  std::vector<std::string> names;
  for (const auto& [name, make] : presets()) names.push_back(name);
  in.read("model.preset", config.preset, names,
          "sizes to start from; the fields below change them");
  nn::TransformerConfig& model = config.model;
  model = presets().at(config.preset)();
  in.read("model.vocabulary", model.vocabulary, {1, kMany}, "V: number of different tokens");
  in.read("model.width", model.width, {1, kMany}, "d");
  in.read("model.layers", model.layers, {1, 10000}, "L");
  in.read("model.heads", model.heads, {1, 100000}, "H: divides the width");
  in.read("model.kv_heads", model.kv_heads, {0, 100000}, "G: divides the heads; 0 = as many");
  in.read("model.ffn_width", model.ffn_width, {1, kMany}, "F: width of the feed-forward layer");
  in.read("model.max_sequence", model.max_sequence, {1, kMany}, "T: longest context");
  in.read("model.norm_eps", model.norm_eps, {1e-30, 1}, "added to a mean square");
  in.read("model.rope_theta", model.rope_theta, {1, 1e30}, "base of the rotary positions");
  in.read("model.tie_embeddings", model.tie_embeddings, "one matrix for embedding and head");
  in.read("model.init_std", model.init_std, {1e-30, 100}, "spread of the first weights");
}

void read_training(ConfigReader& in, TrainConfig& config) {
  in.read("data.path", config.data.path, "text file, folder of sources, or token file (llm.c)");
  in.read("data.format", config.data.format, {"auto", "text", "tokens"},
          "auto: by the first bytes");
  TrainingConfig& training = config.training;
  in.read("training.steps", training.steps, {1, kMany}, "optimizer steps in all");
  in.read("training.local_batch_size", training.local_batch_size, {1, kMany},
          "sequences of one micro-batch of one rank");
  in.read("training.global_batch_size", training.global_batch_size, {0, kMany},
          "sequences of a step: local_batch_size x ranks x micro-steps; 0 = one micro-step");
  in.read("training.seq_len", training.seq_len, {0, kMany}, "tokens; 0 = model.max_sequence");
  in.read("training.seed", training.seed, {0}, "of the first weights and the order of the data");
  in.read("training.clip", training.clip, {0, 1e30}, "largest gradient norm; 0 = off");
  in.read("training.no_sync", training.no_sync, "reduce gradients once a step");
  in.read("training.log_every", training.log_every, {1, kMany}, "steps between progress lines");

  OptimizerConfig& optimizer = config.optimizer;
  in.read("optimizer.name", optimizer.name, {"adamw", "sgd"}, "which one");
  in.read("optimizer.beta1", optimizer.adamw.beta1, {0, 0.9999999}, "adamw");
  in.read("optimizer.beta2", optimizer.adamw.beta2, {0, 0.9999999}, "adamw");
  in.read("optimizer.eps", optimizer.adamw.eps, {1e-30, 1}, "adamw");
  in.read("optimizer.weight_decay", optimizer.adamw.weight_decay, {0, 1}, "of every parameter");
  in.read("optimizer.decay_norms", optimizer.decay_norms, "false: not of the norms' weights");
  in.read("optimizer.momentum", optimizer.momentum, {0, 0.9999999}, "sgd");
}

void read_schedule(ConfigReader& in, TrainConfig& config) {
  optim::Schedule& schedule = config.schedule;
  std::string kind = "constant";
  in.read("schedule.kind", kind, {"constant", "warmup_linear", "warmup_cosine", "warmup_log"},
          "the learning rate over the steps");
  schedule.kind = optim::schedule_kind(kind);
  in.read("schedule.lr", schedule.lr, {0, 1e6}, "the highest rate");
  in.read("schedule.lr_min", schedule.lr_min, {0, 1e6}, "where a warm-up starts or a cosine ends");
  in.read("schedule.warmup", schedule.warmup, {0, kMany}, "steps");
  schedule.total = config.training.steps;
  in.read("schedule.total", schedule.total, {1, kMany},
          "end of the cosine; default training.steps");
}

ReshardAfterForward read_reshard(ConfigReader& in) {
  std::string text = "true";
  in.read_switch_or_number("parallel.reshard_after_forward", text,
                           "true, false, or s: within groups of s ranks");
  if (text == "true") return ReshardAfterForward::always();
  if (text == "false") return ReshardAfterForward::never();
  std::int64_t ranks = 0;
  std::from_chars(text.data(), text.data() + text.size(), ranks);
  // 0 and 1 would mean always and never: what cannot be a group is left for the check to refuse.
  return ReshardAfterForward::within(ranks < 2 || ranks > kMostRanks ? -1
                                                                     : static_cast<int>(ranks));
}

void read_rest(ConfigReader& in, TrainConfig& config) {
  ParallelConfig& parallel = config.parallel;
  in.read("parallel.strategy", parallel.strategy, {"single", "ddp", "fsdp"},
          "--strategy for short");
  in.read("parallel.ranks", parallel.ranks, {1, kMostRanks}, "W; --ranks for short");
  in.read("parallel.threads_per_rank", parallel.threads_per_rank, {1, 256}, "inside one rank");
  parallel.reshard_after_forward = read_reshard(in);
  in.read("parallel.prefetch_depth", parallel.prefetch_depth, {0, 1000}, "units gathered ahead");
  in.read("parallel.in_flight_limit", parallel.in_flight_limit, {0, 1000},
          "gathers at once; 0 = prefetch_depth");
  in.read("parallel.check_memory", parallel.check_memory,
          "refuse a training that the memory formula says cannot fit");

  CheckpointConfig& checkpoint = config.checkpoint;
  in.read("checkpoint.folder", checkpoint.folder, "where checkpoints go; empty = none");
  in.read("checkpoint.every", checkpoint.every, {0, kMany}, "steps; 0 = only after the last");
  in.read("checkpoint.resume", checkpoint.resume, "go on from the latest, if there is one");

  SampleConfig& sample = config.sample;
  in.read("sample.tokens", sample.tokens, {0, 1'000'000}, "generated at the end");
  in.read("sample.prompt", sample.prompt, "what the sample begins with");
  in.read("sample.temperature", sample.temperature, {0, 100}, "0 = always the likeliest");
  in.read("sample.top_k", sample.top_k, {0, kMany}, "keep the k likeliest; 0 = all");
}

TrainConfig read_all(ConfigReader& in) {
  TrainConfig config;
  read_model(in, config);
  read_training(in, config);
  read_schedule(in, config);
  read_rest(in, config);
  return config;
}

}  // namespace

TrainConfig load_config(const std::optional<std::filesystem::path>& file,
                        const std::vector<std::string>& overrides) {
  ConfigReader in(file, overrides);
  TrainConfig config = read_all(in);
  if (file) config.source = file->string();
  in.complain_about_unknown();
  in.check();  // before any of these is right, it makes no sense to ask whether they fit together
  for (const KeyDescription& known : in.known()) {
    config.settings[known.key] = known.value;
    if (in.is_given(known.key)) config.given.push_back(known.key);
  }
  check_together(in, config);
  in.check();
  return config;
}

std::vector<KeyDescription> known_keys() {
  ConfigReader in(std::nullopt, {});
  read_all(in);
  return in.known();
}

std::string describe_keys() {
  std::string text;
  for (const KeyDescription& known : known_keys()) {
    text += fmt::format("  --{:32} {:12} {} ({})\n", known.key, known.fallback, known.meaning,
                        known.values);
  }
  return text;
}

std::int64_t TrainConfig::sequence_length() const {
  return training.seq_len == 0 ? model.max_sequence : training.seq_len;
}

std::int64_t TrainConfig::micro_batches() const {
  return training.global_batch_size / training.local_batch_size;
}

optim::StepPlan TrainConfig::plan() const {
  const auto micro_steps = static_cast<int>(micro_batches() / parallel.ranks);
  return {micro_steps, training.no_sync ? micro_steps : 1};
}

std::shared_ptr<optim::Optimizer> TrainConfig::make_optimizer() const {
  if (optimizer.name == "sgd") {
    return std::make_shared<optim::Sgd>(
        optim::Sgd::Options{optimizer.momentum, optimizer.adamw.weight_decay});
  }
  return std::make_shared<optim::AdamW>(optimizer.adamw);
}

bool TrainConfig::decays(const std::string& path) const {
  return optimizer.decay_norms || !path.ends_with("norm.weight");
}

}  // namespace fsdp::train
