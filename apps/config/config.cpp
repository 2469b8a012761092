#include "config/config.h"

#include "base/check.h"
#include "config/hugging_face/folder.h"
#include "config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdp::config {
namespace {

constexpr double kMostRanks = 256;
constexpr double kMostModeledRanks = 1e6;

Allowed within(const nn::Limits& limits) { return range(limits.least, limits.most); }
Allowed zero_or(const nn::Limits& limits) { return range(0, limits.most); }

// Those of the optimizers' table.
std::vector<Key> option_keys(optim::OptimizerChoice& c) {
  std::vector<Key> keys;
  for (const ops::OptimizerOption& each : ops::optimizer_options()) {
    const bool is_decay = each.member == &ops::OptimizerOptions::weight_decay;
    keys.push_back({std::string("optimizer.") + each.name, &(c.options.*each.member),
                    is_decay ? "of all parameters" : each.users(), range(each.least, each.most)});
    if (!is_decay) continue;
    keys.push_back({"optimizer.decay_norms", &c.decay_norms, "false: not of norm weights"});
  }
  return keys;
}

// Every key, in the order of --help.
std::vector<Key> keys_of(TrainConfig& c, double most_ranks) {
  std::vector<std::string> preset_names;
  for (const auto& [name, sizes] : nn::model_presets()) preset_names.push_back(name);
  const std::vector<std::string> formats = model_formats();
  const nn::TransformerLimits& limits = nn::kLimits;
  optim::Offload& offload = c.recipe.sharding.offload;
  std::vector<Key> keys = {
      {"model.preset", &c.preset, "sizes to start from", one_of(preset_names)},
      {"model.from", &c.from, "Hugging Face folder to start from; it sets all other model keys"},
      {"model.vocab_size", &c.model.vocab_size, "V: number of different tokens",
       within(limits.size)},
      {"model.hidden_size", &c.model.hidden_size, "d: width", within(limits.size)},
      {"model.num_hidden_layers", &c.model.num_hidden_layers, "L", within(limits.layers)},
      {"model.num_attention_heads", &c.model.num_attention_heads, "H: divides d",
       within(limits.heads)},
      {"model.num_key_value_heads", &c.model.num_key_value_heads, "G: divides H; 0 = as many",
       zero_or(limits.heads)},
      {"model.head_dim", &c.model.explicit_head_dim, "D: width of a head, even; 0 = d / H",
       zero_or(limits.head_dim)},
      {"model.intermediate_size", &c.model.intermediate_size, "F: width inside the MLP",
       within(limits.size)},
      {"model.max_position_embeddings", &c.model.max_position_embeddings, "T: longest context",
       within(limits.size)},
      {"model.rms_norm_eps", &c.model.rms_norm_eps, "added to a mean square", within(limits.eps)},
      {"model.rope_theta", &c.model.rope_theta, "base of the rotary positions",
       within(limits.theta)},
      {"model.rope_factor", &c.model.rope_scaling.factor,
       "lowers rotary frequencies as Llama 3.1 does; 0 = none", zero_or(limits.rope_factor)},
      {"model.rope_low_freq_factor", &c.model.rope_scaling.low_freq_factor,
       "fewer turns in the original context: divided by the factor", within(limits.turns)},
      {"model.rope_high_freq_factor", &c.model.rope_scaling.high_freq_factor,
       "more turns: unchanged", within(limits.turns)},
      {"model.rope_original_context", &c.model.rope_scaling.original_max_position_embeddings,
       "length of the original context", within(limits.size)},
      {"model.tie_word_embeddings", &c.model.tie_word_embeddings, "embedding and head share one"},
      {"model.initializer_range", &c.model.initializer_range,
       "standard deviation of the initial weights", within(limits.deviation)},
      {"model.pad_token_id", &c.model.pad_token_id,
       "token whose row begins with zeros, without a gradient from the embedding; -1 = none",
       range(-1, 1e9)},
      {"data.path", &c.data.path, "text file, folder of sources, or token file (llm.c)"},
      {"data.format", &c.data.format, "auto: by first bytes",
       one_of({"auto", "text", "tokens", "uint16", "uint32", "bytes"})},
      {"data.field", &c.data.field, "of a .jsonl file: the field of each line that is its text"},
      {"data.validation", &c.data.validation, "what is evaluated on, like data.path; empty = none"},
      {"training.steps", &c.training.steps, "optimizer steps in all", range(1, 1e9)},
      {"training.local_batch_size", &c.training.local_batch_size,
       "sequences of one micro-batch of one rank", range(1, 1e9)},
      {"training.global_batch_size", &c.training.global_batch_size,
       "sequences of a step: local_batch_size x ranks x micro-steps; 0 = one micro-step",
       range(0, 1e9)},
      {"training.seq_len", &c.training.seq_len, "0 = model.max_position_embeddings", range(0, 1e9)},
      {"training.seed", &c.training.seed, "of weights and order of the data", range(0, 0x1p63)},
      {"training.device", &c.training.device,
       "--device; cuda: of a program that is built with it (docs/gpu.md)", one_of({"cpu", "cuda"})},
      {"training.max_norm", &c.recipe.clip, "largest gradient norm; 0 = off", range(0, 1e30)},
      {"training.no_sync", &c.training.no_sync, "reduce gradients once per step"},
      {"training.prescale_gradients", &c.recipe.prescale,
       "scale gradients before they are summed, not after"},
      {"training.mixed_precision_param", &c.recipe.precision.param_dtype,
       "what the model computes in, beside masters in float32", one_of(formats)},
      {"training.mixed_precision_reduce", &c.recipe.precision.reduce_dtype,
       "what gradients are summed in", one_of(formats)},
      {"training.fp32_reduce_scatter", &c.training.fp32_reduce_scatter,
       "FairScale's name for mixed_precision_reduce float32; needs mixed_precision_param"},
      {"training.activation_checkpoint", &c.recipe.checkpointing,
       "block: keep only a block's input, and compute it again in backward; operations: and the "
       "results of those in kept_operations",
       one_of({"none", "block", "operations"})},
      {"training.checkpoint_every", &c.recipe.checkpoint_every,
       "n: of n blocks, activation_checkpoint counts for the last", range(1, 1e6)},
      {"training.kept_operations", &c.recipe.kept_operations,
       "products of a block, and its attention, separated by commas"},
      {"fp16.loss_scale", &c.fp16.fixed, "a power of two that stays; 0 = dynamic",
       range(0, 0x1p100)},
      {"fp16.initial_scale_power", &c.fp16.initial_power, "dynamic: begins at 2 to this power",
       range(0, 100)},
      {"fp16.loss_scale_window", &c.fp16.window,
       "dynamic: doubled after so many steps without overflow", range(1, 1e9)},
      {"fp16.hysteresis", &c.fp16.hysteresis, "dynamic: halved at this overflow", range(1, 1e9)},
      {"fp16.consecutive_hysteresis", &c.fp16.consecutive_hysteresis,
       "count overflows anew after a step without one"},
      {"fp16.min_loss_scale", &c.fp16.least, "a power of two", range(0x1p-20, 0x1p100)},
      {"lora.rank", &c.recipe.lora.rank, "of the adapters, which alone are trained; 0 = no LoRA",
       range(0, 1e6)},
      {"lora.alpha", &c.recipe.lora.alpha, "adapters count alpha / rank times", range(1e-6, 1e6)},
      {"lora.targets", &c.recipe.lora.targets, "linears with an adapter, separated by commas"},
      {"training.eval_every", &c.training.eval_every,
       "steps between evaluations, and after the last; 0 = never", range(0, 1e9)},
      {"metrics.log_freq", &c.log_freq, "steps per progress line", range(1, 1e9)},
      {"metrics.wall_clock_breakdown", &c.wall_clock_breakdown,
       "with a progress line, how long the phases of its step took"},
      {"metrics.tensorboard", &c.tensorboard, "folder for TensorBoard's event files; empty: none"},
      {"metrics.file", &c.metrics_file, "a line per step; .jsonl or .csv; empty: none"},
      {"optimizer.name", &c.recipe.optimizer.name, "which one", one_of(ops::optimizer_names())},
      {"optimizer.lr", &c.schedule.lr, "the highest learning rate", range(0, 1e6)},
      {"lr_scheduler.kind", &c.schedule_kind, "of learning rate",
       one_of({"constant", "warmup_linear", "warmup_cosine", "warmup_log", "warmup_from_min",
               "warmup_log_decay", "warmup_from_min_decay", "warmup_stable_linear",
               "warmup_stable_sqrt", "warmup_stable_cosine"})},
      {"lr_scheduler.min_lr", &c.schedule.min_lr, "start of warm-up, end of decay", range(0, 1e6)},
      {"lr_scheduler.warmup_steps", &c.schedule.warmup_steps, "of the warm-up", range(0, 1e9)},
      {"lr_scheduler.total_steps", &c.schedule.total_steps, "end of the decay; 0 = training.steps",
       range(0, 1e9)},
      {"lr_scheduler.decay_steps", &c.schedule.decay_steps,
       "of warmup_stable_*: the last so many; 0 = all after the warm-up", range(0, 1e9)},
      {"parallel.strategy", &c.recipe.strategy, "--strategy",
       one_of({"single", "ddp", "zero1", "zero2", "fsdp"})},
      {"parallel.ranks", &c.recipe.ranks, "W; --ranks", range(1, most_ranks)},
      {"parallel.data_parallel_replicate_degree", &c.recipe.replicas,
       "R: replicas of ranks / R shards each", range(1, most_ranks)},
      {"parallel.threads_per_rank", &c.parallel.threads_per_rank, "inside one rank", range(1, 256)},
      {"parallel.reshard_after_forward", &c.recipe.sharding.reshard_after_forward,
       "a number s: within groups of s ranks", range(2, most_ranks)},
      {"parallel.prefetch_depth", &c.recipe.sharding.prefetch_depth, "units gathered early",
       range(0, 1000)},
      {"parallel.in_flight_limit", &c.recipe.sharding.in_flight_limit,
       "gathers at once; 0 = prefetch_depth", range(0, 1000)},
      {"parallel.offload_params", &offload.params, "fsdp: shards in host memory; not on a CPU"},
      {"parallel.offload_optimizer", &offload.optimizer, "zero1, zero2: masters and state there"},
      {"parallel.offload_grads", &offload.grads, "fsdp, zero2: gradients of these there too"},
      {"parallel.zero_partition", &c.recipe.zero.partition,
       "zero1, zero2: parameters to the least loaded rank, or one cut through all",
       one_of({"greedy", "flat", "round_robin"})},
      {"parallel.reduce_buffer_size", &c.parallel.reduce_buffer_size,
       "zero2: bytes of small gradients reduced together; 0 = each by itself", range(0, 1e18)},
      {"parallel.gradient_compression", &c.recipe.zero.reductions.compression,
       "not fsdp: gradients travel, and are rounded, in 16 bits",
       one_of({"none", "float16", "bfloat16"})},
      {"parallel.overlap_comm", &c.recipe.zero.reductions.overlap,
       "ddp, zero1, zero2: gradients are reduced while backward goes on"},
      {"parallel.reduce_bucket_size", &c.parallel.reduce_bucket_size,
       "ddp, zero1, zero2: elements of gradients reduced together; 0 = 25 MiB, with zero2 "
       "reduce_buffer_size",
       range(0, 1e17)},
      {"parallel.allgather_bucket_size", &c.parallel.allgather_bucket_size,
       "zero1, zero2: elements of updated parameters broadcast together; 0 = 25 MiB",
       range(0, 1e17)},
      {"parallel.contiguous_gradients", &c.recipe.zero.contiguous_gradients,
       "zero2: gradients are copied into the buffer that they travel in as they appear"},
      {"parallel.reduce_scatter", &c.recipe.zero.reduce_scatter,
       "zero2: gradients are reduced to their owner; false: all-reduced"},
      {"parallel.broadcast_fp16", &c.recipe.zero.broadcast_fp16,
       "zero1, zero2: updated parameters travel, and are rounded, as float16"},
      {"parallel.device_collectives", &c.parallel.device_collectives,
       "of ranks on cuda: canonical adds as a CPU does, to the last bit; nccl is faster, needs a "
       "card for each rank, and is the only way between processes",
       one_of({"canonical", "nccl"})},
      {"parallel.check_memory", &c.parallel.check_memory,
       "refuse a training that the memory formula says cannot fit"},
      {"checkpoint.folder", &c.checkpoint.folder, "where they go; empty = none"},
      {"checkpoint.interval", &c.checkpoint.interval, "steps; 0 = after the last", range(0, 1e9)},
      {"checkpoint.resume", &c.checkpoint.resume, "go on from the latest, if there is one"},
      {"checkpoint.from", &c.checkpoint.from,
       "folder of a checkpoint or of a training, whose weights and optimizer state a new training "
       "begins with; empty = none"},
      {"sample.max_new_tokens", &c.sample.max_new_tokens, "after the last step", range(0, 1e6)},
      {"sample.prompt", &c.sample.prompt, "what the sample begins with"},
      {"sample.temperature", &c.sample.temperature, "0 = always the likeliest", range(0, 100)},
      {"sample.top_k", &c.sample.top_k, "keep the k likeliest; 0 = all", range(0, 1e9)},
      {"export.dtype", &c.exported.dtype, "of the weights that --export writes", one_of(formats)},
      {"export.max_shard_size", &c.exported.max_shard_size,
       "bytes of weights in one file of --export; 0 = one file for all", range(0, 1e18)},
      {"export.optimizer", &c.exported.optimizer,
       "--export also writes the state of a checkpoint, in one file"},
      {"memory_estimation.framework", &c.framework,
       "whose engine unshard-estimate is true of, as --framework; empty = the file's own"},
  };
  const std::vector<Key> options = option_keys(c.recipe.optimizer);
  keys.insert(std::ranges::find(keys, "optimizer.lr", &Key::name) + 1, options.begin(),
              options.end());
  return keys;
}

// The folder of model.from sets the whole model.
void read_model(TrainConfig& config, foreign::Report& report) {
  for (const auto& [key, origin] : config.origins) {
    if (!key.starts_with("model.") || key == "model.from") continue;
    throw InputError(
        fmt::format("{}: {}: contradicts model.from: the config.json of {} sets all of the model; "
                    "leave one of the two out",
                    origin, key, config.from));
  }
  try {
    hugging_face::Folder read = hugging_face::read_folder(config.from, config.is_modeled, report);
    config.model = read.model;
    config.extras = std::move(read.extras);
    std::ranges::move(read.remarks, std::back_inserter(config.remarks));
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", config.origin("model.from"), error.what()));
  }
}

// torchtitan's way to name the file is an option among the others.
std::optional<std::filesystem::path> find_file(const std::optional<std::filesystem::path>& file,
                                               std::vector<Setting>& words,
                                               const Environment& environment) {
  std::optional<std::filesystem::path> found = file;
  for (const Setting& each : words) {
    if (each.key != "job.config_file") continue;
    if (!each.value || each.value->empty()) {
      throw InputError("command line: job.config_file: is empty; give a path");
    }
    if (found && *found != *each.value) {
      throw InputError(fmt::format(
          "command line: job.config_file: is {}, but there is a configuration file already, {}; "
          "give one",
          printable(*each.value), found->string()));
    }
    found = *each.value;
  }
  std::erase_if(words, [](const Setting& each) { return each.key == "job.config_file"; });
  if (!found && environment.config_file) return *environment.config_file;
  return found;
}

// torchtitan gives its models room for the sequences that it trains on.
void fit_to_sequence(TrainConfig& config) {
  std::int64_t& most = config.model.max_position_embeddings;
  const std::int64_t length = config.training.seq_len;
  if (!config.titan.is_file || length <= most) return;
  config.remarks.push_back(
      fmt::format("{}: is {}, and so is model.max_position_embeddings, which is {} in {}",
                  config.origin("training.seq_len"), length, most, config.preset));
  most = length;
}

}  // namespace

TrainConfig load_config(const std::optional<std::filesystem::path>& given_file,
                        const std::vector<std::string>& overrides,
                        const std::optional<std::filesystem::path>& deepspeed,
                        const ConfigUse& use) {
  TrainConfig config;
  config.is_modeled = use.is_modeled;
  const std::vector<Key> keys = keys_of(config, use.is_modeled ? kMostModeledRanks : kMostRanks);
  foreign::Report own_report;
  foreign::Report& report = use.report == nullptr ? own_report : *use.report;
  std::vector<Setting> words = settings_of_words(with_values(overrides));
  const auto file = find_file(given_file, words, use.environment);
  std::vector<Setting> settings;
  if (file) settings = settings_of_file(*file, keys);
  for (Setting& each : words) settings.push_back(std::move(each));
  if (file) config.source = file->string();
  TitanSurroundings around{.keys = keys,
                           .file = file ? file->string() : "",
                           .environment = use.environment,
                           .is_modeled = use.is_modeled,
                           .report = report,
                           .warnings = config.remarks};
  around.environment.is_deepspeed = deepspeed.has_value();
  config.titan = config::translate(settings, around);

  // The sizes of the preset first, wherever it is named. A wrong name is refused in its turn.
  for (const Setting& each : settings) {
    const auto preset = nn::model_presets().find(each.value.value_or(""));
    if (each.key == "model.preset" && preset != nn::model_presets().end())
      config.model = preset->second;
  }
  std::optional<DeepSpeedBase> base;
  if (deepspeed) {
    config.source = (file ? config.source + " and " : "") + deepspeed->string();
    base.emplace(*deepspeed, config, keys, settings, report);
  }
  for (const Setting& each : settings) {
    report.collect([&] {
      each.apply(keys);
      config.origins[each.key] = each.origin;
      if (base) base->check_agreement(each);
    });
  }
  report.check();
  if (!config.from.empty()) read_model(config, report);
  fit_to_sequence(config);
  config.schedule.kind = optim::lr_schedule_kind(config.schedule_kind);
  if (config.schedule.total_steps == 0) config.schedule.total_steps = config.training.steps;
  for (const Key& key : keys) config.settings[key.name] = key.get();
  config.check();
  return config;
}

std::string describe_keys() {
  TrainConfig config;
  std::string all;
  for (const Key& key : keys_of(config, kMostRanks)) {
    const std::string fallback = key.is_text() ? fmt::format("\"{}\"", key.get()) : key.get();
    all += fmt::format("  --{:32} {:12} {} ({})\n", key.name, fallback, key.meaning, key.values());
  }
  return all;
}

std::int64_t TrainConfig::lora_widths() const {
  const std::int64_t d = model.hidden_size, f = model.intermediate_size;
  std::int64_t widths = 0;
  for (const std::string& target : recipe.lora.targets) {
    if (target == "q_proj" || target == "o_proj") widths += d + model.query_width();
    if (target == "k_proj" || target == "v_proj") widths += d + model.kv_width();
    if (target == "gate_proj" || target == "up_proj" || target == "down_proj") widths += d + f;
  }
  return widths;
}

std::int64_t TrainConfig::lora_parameters() const {
  return model.num_hidden_layers * recipe.lora.rank * lora_widths();
}

optim::LossScaler TrainConfig::loss_scaler() const {
  return scales_loss() ? optim::LossScaler(fp16) : optim::LossScaler();
}

std::string TrainConfig::origin(const std::string& key) const {
  const auto given = origins.find(key);
  return given != origins.end() ? fmt::format("{}: {}", given->second, key)
                                : fmt::format("{}: {} (its default)", source, key);
}

}  // namespace fsdp::config
