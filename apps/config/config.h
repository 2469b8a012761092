/// @file
/// @ingroup config
/// Everything a training can be told, and how it is checked.
#pragma once

#include "base/printable.h"
#include "config/deepspeed/deepspeed.h"
#include "config/keys.h"
#include "config/titan_keys.h"
#include "io/hf_folder.h"
#include "nn/transformer.h"
#include "optim/loss_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/recipe.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::config {

struct DataConfig {
  std::string path;             ///< a text file, a folder of sources, or a file of tokens
  std::string format = "auto";  ///< auto, text, tokens, uint16, uint32, bytes; of both
  std::string validation = {};  ///< what is evaluated on, like path; empty = nothing
  std::string field = {};       ///< of .jsonl: where each line's text is

  /// The file is kept in memory as it is; of text there are two bytes for each of its own.
  bool is_tokens() const { return format == "tokens" || format.starts_with("uint"); }
};

struct TrainingConfig {
  std::int64_t steps = 100;
  std::int64_t local_batch_size = 8;   ///< sequences of one micro-batch of one rank
  std::int64_t global_batch_size = 0;  ///< sequences of a step; 0 = local_batch_size · ranks
  std::int64_t seq_len = 0;            ///< 0 = model.max_position_embeddings
  std::int64_t seed = 1;               ///< of initialization and of the order of the data
  std::string device = "cpu";          ///< where the ranks compute: cpu, cuda
  bool no_sync = false;                ///< reduce once per step, not once per micro-batch
  bool fp32_reduce_scatter = false;    ///< FairScale's name for sums in float32
  std::int64_t eval_every = 0;         ///< steps between two evaluations; 0 = none
};

/// Of the ranks, what is no part of the recipe, or is told in other units there.
struct ParallelConfig {
  std::int64_t threads_per_rank = 1;
  std::int64_t reduce_bucket_size = 0;     ///< elements reduced together; 0 = 25 MiB, or (zero2)
                                           ///< what reduce_buffer_size says
  std::int64_t allgather_bucket_size = 0;  ///< elements broadcast together; 0 = 25 MiB
  std::int64_t reduce_buffer_size = 0;     ///< bytes reduced together; 0 = each by itself
  std::string device_collectives = "canonical";  ///< on cuda: canonical, nccl (DeviceData)
  bool check_memory = true;                      ///< refuse what the memory formula says cannot fit
};

struct CheckpointConfig {
  std::string folder;         ///< empty = no checkpoints
  std::int64_t interval = 0;  ///< steps between two; 0 = only after the last
  bool resume = true;         ///< go on from the latest, if there is one
  std::string from = {};      ///< what a new training begins with; empty = nothing
};

struct SampleConfig {
  std::int64_t max_new_tokens = 0;  ///< generated after the last step
  std::string prompt = "The ";
  double temperature = 0.8;
  std::int64_t top_k = 40;
};

struct ExportConfig {
  std::string dtype = "float32";    ///< of the weights: float32, bfloat16, float16
  std::int64_t max_shard_size = 0;  ///< bytes of the weights in one file; 0 = all in one file
  bool optimizer = false;           ///< masters and optimizer state too, in one file
};

/// A whole configuration. Everything in it has been checked.
struct TrainConfig {
  std::string source = "(defaults)";  ///< the file or both files, named in messages
  TitanKeys titan;                    ///< what was said in torchtitan's keys
  DeepSpeedKeys deepspeed;            ///< what was said in DeepSpeed's
  std::string preset = "tiny";
  std::string from;  ///< model.from: the Hugging Face folder to start from; empty = random weights
  bool is_modeled = false;  ///< as in ConfigUse
  /// False if the machine is modeled: no rank computes anything.
  bool has_ranks() const { return !is_modeled || titan.disable_fake_mode; }
  std::string framework;  ///< whose engine an estimate is true of; empty = the file's own
  io::HfExtras extras;    ///< what an export takes over from there
  nn::TransformerConfig model = nn::TransformerConfig::tiny();
  DataConfig data;
  TrainingConfig training;
  optim::LossScaler::Options fp16;  ///< only a model in float16 needs it
  optim::Recipe recipe = {
      .precision = {.param_dtype = DType::float32, .reduce_dtype = DType::float32}, .clip = 1.0};
  std::string schedule_kind = "constant";  ///< lr_scheduler.kind
  optim::LrSchedule schedule;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  std::int64_t log_freq = 1;          ///< metrics.log_freq: steps between two progress lines
  bool wall_clock_breakdown = false;  ///< metrics.wall_clock_breakdown: with each, PhaseSeconds
  std::string tensorboard;            ///< metrics.tensorboard: a folder; empty = no event file
  std::string metrics_file;           ///< metrics.file: .jsonl or .csv; empty = none
  SampleConfig sample;
  ExportConfig exported;  ///< export.*: how --export writes
  /// Every key there is, with its value as text; what a checkpoint records is made of it.
  std::map<std::string, std::string> settings;
  /// Every key that was given, with the place: "tiny.toml:12", "command line".
  std::map<std::string, std::string> origins;
  /// Settings that were given and change nothing, one sentence each.
  std::vector<std::string> remarks;

  /// What the model is called: its preset, or the folder it starts from.
  std::string model_name() const { return from.empty() ? preset : printable(from); }
  std::int64_t sequence_length() const {
    return training.seq_len == 0 ? model.max_position_embeddings : training.seq_len;
  }
  std::int64_t lora_widths() const;  ///< inputs and outputs of a block's linears with an adapter
  std::int64_t lora_parameters() const;  ///< elements of all adapters
  /// Something is in float16, whose range is small.
  bool has_float16() const {
    return scales_loss() || recipe.precision.reduce_dtype == DType::float16 ||
           recipe.zero.reductions.compression == DType::float16;
  }
  bool scales_loss() const { return recipe.precision.param_dtype == DType::float16; }
  optim::LossScaler loss_scaler() const;
  /// J, the micro-batches a step is cut into.
  std::int64_t micro_batches() const {
    return training.global_batch_size / training.local_batch_size;
  }
  /// Whether an evaluation follows after so many steps: every so often, and after the last.
  bool evaluates_after(std::int64_t steps_done) const {
    const std::int64_t every = training.eval_every;
    return every > 0 && (steps_done % every == 0 || steps_done == training.steps);
  }
  /// Place and key as a message begins: "tiny.toml:12: training.steps".
  std::string origin(const std::string& key) const;
  /// Fills in training.global_batch_size, and what of the recipe follows from several keys. After a
  /// change of any of them by hand, it has to be called again.
  void settle();
  /// @throws InputError for values that contradict each other, or would silently do something other
  /// than what was asked. Settles first, and fills in the remarks.
  void check();
};

/// What a program does with a configuration, if it is not training here.
struct ConfigUse {
  /// The ranks are modeled: there may be a million, they have a host beside the device (so offload
  /// is allowed), and model.from may name a config.json alone.
  bool is_modeled = false;
  Environment environment = {};
  /// Gets each key of the files with its decision, also if there are problems.
  foreign::Report* report = nullptr;
};

/// Reads `file` (none: that of --job.config_file or of the environment, or defaults only), then
/// applies the overrides, each "--section.key=value" or "--section.key", "value". A DeepSpeed
/// configuration counts like `file`, and before it. The file and the overrides may be torchtitan's.
/// @throws InputError with one problem per line, each naming file and line (or the command line),
/// key and remedy: unknown keys, wrong types, and values out of range. If there is none, a value
/// that does not fit to others, such as those of two files.
TrainConfig load_config(const std::optional<std::filesystem::path>& file,
                        const std::vector<std::string>& overrides,
                        const std::optional<std::filesystem::path>& deepspeed = {},
                        const ConfigUse& use = {});

/// Every key with its default, its meaning and its values, one per line.
std::string describe_keys();

}  // namespace fsdp::config
