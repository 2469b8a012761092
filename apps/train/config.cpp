#include "train/config.h"

#include "train/config_options.h"

#include <fmt/format.h>

namespace fsdp::train {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;
constexpr std::int64_t kMostRanks = 256;

const std::map<std::string, nn::TransformerConfig>& presets() {
  using Model = nn::TransformerConfig;
  static const std::map<std::string, Model> table = {{"nano", Model::nano()},
                                                     {"tiny", Model::tiny()},
                                                     {"small", Model::small()},
                                                     {"llama_124m", Model::llama_124m()},
                                                     {"llama_2b", Model::llama_2b()}};
  return table;
}

void add_model(ConfigOptions& to, TrainConfig& config) {
  nn::TransformerConfig& model = config.model;
  std::vector<std::string> names;
  for (const auto& [name, sizes] : presets()) names.push_back(name);
  to.add("model.preset", config.preset, one_of(names), "sizes to start from");
  to.add("model.vocab_size", model.vocab_size, whole(1, kMany), "V: number of different tokens");
  to.add("model.hidden_size", model.hidden_size, whole(1, kMany), "d: width");
  to.add("model.num_hidden_layers", model.num_hidden_layers, whole(1, 10000), "L");
  to.add("model.num_attention_heads", model.num_attention_heads, whole(1, 100000), "H: divides d");
  to.add("model.num_key_value_heads", model.num_key_value_heads, whole(0, 100000),
         "G: divides H; 0 = as many");
  to.add("model.intermediate_size", model.intermediate_size, whole(1, kMany),
         "F: width of the feed-forward layer");
  to.add("model.max_position_embeddings", model.max_position_embeddings, whole(1, kMany),
         "T: longest context, in tokens");
  to.add("model.rms_norm_eps", model.rms_norm_eps, real(1e-30, 1), "added to a mean square");
  to.add("model.rope_theta", model.rope_theta, real(1, 1e30), "base of the rotary positions");
  to.add("model.tie_word_embeddings", model.tie_word_embeddings, truth(),
         "one matrix for embedding and head");
  to.add("model.initializer_range", model.initializer_range, real(1e-30, 100),
         "standard deviation of the initial weights");
}

void add_training(ConfigOptions& to, TrainConfig& config) {
  DataConfig& data = config.data;
  to.add("data.path", data.path, any_text(), "text file, folder of sources, or token file (llm.c)");
  to.add("data.format", data.format, one_of({"auto", "text", "tokens"}),
         "auto: by its first bytes");
  TrainingConfig& training = config.training;
  to.add("training.steps", training.steps, whole(1, kMany), "optimizer steps in all");
  to.add("training.local_batch_size", training.local_batch_size, whole(1, kMany),
         "sequences of one micro-batch of one rank");
  to.add("training.global_batch_size", training.global_batch_size, whole(0, kMany),
         "sequences of a step: local_batch_size x ranks x micro-steps; 0 = one micro-step");
  to.add("training.seq_len", training.seq_len, whole(0, kMany),
         "tokens; 0 = model.max_position_embeddings");
  to.add("training.seed", training.seed, whole(0), "of initial weights and the order of the data");
  to.add("training.max_norm", training.max_norm, real(0, 1e30), "largest gradient norm; 0 = off");
  to.add("training.no_sync", training.no_sync, truth(), "reduce gradients once per step");
  to.add("metrics.log_freq", config.metrics.log_freq, whole(1, kMany), "steps per progress line");
}

void add_optimizer(ConfigOptions& to, TrainConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  optim::AdamW::Options& adamw = optimizer.adamw;
  optim::LrSchedule& schedule = config.schedule;
  to.add("optimizer.name", optimizer.name, one_of({"adamw", "sgd"}), "which one");
  to.add("optimizer.lr", schedule.lr, real(0, 1e6), "the highest learning rate");
  to.add("optimizer.beta1", adamw.beta1, real(0, 0.9999999), "adamw");
  to.add("optimizer.beta2", adamw.beta2, real(0, 0.9999999), "adamw");
  to.add("optimizer.eps", adamw.eps, real(1e-30, 1), "adamw");
  to.add("optimizer.weight_decay", adamw.weight_decay, real(0, 1), "of every parameter");
  to.add("optimizer.decay_norms", optimizer.decay_norms, truth(), "false: not of norm weights");
  to.add("optimizer.momentum", optimizer.momentum, real(0, 0.9999999), "sgd");
  std::string& kind = config.settings["lr_scheduler.kind"] = "constant";
  to.add("lr_scheduler.kind", kind,
         one_of({"constant", "warmup_linear", "warmup_cosine", "warmup_log"}), "of learning rate");
  to.add("lr_scheduler.min_lr", schedule.min_lr, real(0, 1e6),
         "where a warm-up starts or a cosine ends");
  to.add("lr_scheduler.warmup_steps", schedule.warmup_steps, whole(0, kMany), "of the warm-up");
  schedule.total_steps = config.training.steps;
  to.add("lr_scheduler.total_steps", schedule.total_steps, whole(1, kMany),
         "end of the cosine; default training.steps");
}

void add_parallel(ConfigOptions& to, TrainConfig& config) {
  ParallelConfig& parallel = config.parallel;
  to.add("parallel.strategy", parallel.strategy, one_of({"single", "ddp", "fsdp"}),
         "or --strategy");
  to.add("parallel.ranks", parallel.ranks, whole(1, kMostRanks), "W; or --ranks");
  to.add("parallel.threads_per_rank", parallel.threads_per_rank, whole(1, 256), "inside one rank");
  std::string& reshard = config.settings["parallel.reshard_after_forward"] = "true";
  to.add("parallel.reshard_after_forward", reshard, truth_or_whole(),
         "true, false, or s: within groups of s ranks");
  to.add("parallel.prefetch_depth", parallel.prefetch_depth, whole(0, 1000),
         "units gathered ahead");
  to.add("parallel.in_flight_limit", parallel.in_flight_limit, whole(0, 1000),
         "gathers at once; 0 = prefetch_depth");
  to.add("parallel.check_memory", parallel.check_memory, truth(),
         "refuse a training that the memory formula says cannot fit");
}

void add_outputs(ConfigOptions& to, CheckpointConfig& checkpoint, SampleConfig& sample) {
  to.add("checkpoint.folder", checkpoint.folder, any_text(), "where they go; empty = none");
  to.add("checkpoint.interval", checkpoint.interval, whole(0, kMany), "steps; 0 = after the last");
  to.add("checkpoint.resume", checkpoint.resume, truth(), "go on from the latest, if there is one");
  to.add("sample.max_new_tokens", sample.max_new_tokens, whole(0, 1'000'000),
         "after the last step");
  to.add("sample.prompt", sample.prompt, any_text(), "what the sample begins with");
  to.add("sample.temperature", sample.temperature, real(0, 100), "0 = always the likeliest");
  to.add("sample.top_k", sample.top_k, whole(0, kMany), "keep the k likeliest; 0 = all");
}

void add_all(ConfigOptions& options, TrainConfig& config) {
  add_model(options, config);
  add_training(options, config);
  add_optimizer(options, config);
  add_parallel(options, config);
  add_outputs(options, config.checkpoint, config.sample);
}

ReshardAfterForward reshard_of(const std::string& text) {
  if (text == "true") return ReshardAfterForward::always();
  if (text == "false") return ReshardAfterForward::never();
  std::int64_t ranks = 0;
  parse_number(text, ranks);
  // 0 and 1 would mean always and never: what cannot be a group is left for the check to refuse.
  const bool is_group = ranks >= 2 && ranks <= kMostRanks;
  return ReshardAfterForward::within(is_group ? static_cast<int>(ranks) : -1);
}

}  // namespace

TrainConfig load_config(const std::optional<std::filesystem::path>& file,
                        const std::vector<std::string>& overrides) {
  TrainConfig config;
  ConfigOptions options;
  add_all(options, config);
  if (file) config.source = file->string();
  const std::vector<FileValue> values = file ? values_of_file(*file) : std::vector<FileValue>{};
  // Twice: only then is the preset known, from which the other keys of the model start.
  for (int reading = 0; reading < 2; ++reading) {
    config.model = presets().at(config.preset);
    for (const FileValue& value : values) options.set(value);
    options.set(overrides, "command line");
  }
  config.origins = options.origins();
  config.schedule.kind = optim::lr_schedule_kind(config.settings.at("lr_scheduler.kind"));
  if (!config.origins.contains("lr_scheduler.total_steps")) {
    config.schedule.total_steps = config.training.steps;
  }
  config.parallel.reshard_after_forward =
      reshard_of(config.settings.at("parallel.reshard_after_forward"));
  for (const ConfigOptions::Key& key : options.keys()) config.settings[key.name] = key.value_of();
  config.check();
  return config;
}

std::vector<std::pair<std::string, std::string>> known_keys() {
  TrainConfig config;
  ConfigOptions options;
  add_all(options, config);
  std::vector<std::pair<std::string, std::string>> known;
  for (const auto& key : options.keys()) known.emplace_back(key.name, key.option->get_type_name());
  return known;
}

std::string describe_keys() {
  TrainConfig config;
  ConfigOptions options;
  add_all(options, config);
  std::string text;
  for (const auto& [name, option, is_text, value_of] : options.keys()) {
    text += fmt::format("  --{:32} {:12} {} ({})\n", name, option->get_default_str(),
                        option->get_description(), option->get_type_name());
  }
  return text;
}

std::int64_t TrainConfig::sequence_length() const {
  return training.seq_len == 0 ? model.max_position_embeddings : training.seq_len;
}

std::int64_t TrainConfig::micro_batches() const {
  return training.global_batch_size / training.local_batch_size;
}

std::string TrainConfig::origin(const std::string& key) const {
  const auto given = origins.find(key);
  return given != origins.end() ? fmt::format("{}: {}", given->second, key)
                                : fmt::format("{}: {} (its default)", source, key);
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
