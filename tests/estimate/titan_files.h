/// @file
/// torchtitan's files for tests.
#pragma once

#include "base/check.h"
#include "estimate/estimator_config.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <string>
#include <vector>

namespace fsdp::estimate {

inline const std::string kLlama = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";

/// What a file of this text makes of an estimate, with NGPU = 8 unless the environment is given.
inline EstimatorConfig load_titan(const std::string& text,
                                  const std::vector<std::string>& words = {},
                                  config::Environment environment = {}) {
  const testing::TemporaryFolder folder;
  io::write_text_atomically(folder / "llama.toml", text);
  return load_estimator_config(folder / "llama.toml", words, environment);
}

/// The message about it, or "".
inline std::string complaint_about_titan(const std::string& text,
                                         const std::vector<std::string>& words = {}) {
  try {
    load_titan(text, words);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// A file of 2025, with what most files have.
inline const std::string kWholeFile = R"(
[job]
dump_folder = "./outputs"
description = "our model"
[profiling]
enable_profiling = true
save_traces_folder = "profile_trace"
profile_freq = 100
[metrics]
log_freq = 10
enable_tensorboard = true
save_tb_folder = "tb"
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "./somewhere"
converters = []
[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 200
decay_ratio = 0.8
decay_type = "linear"
min_lr_factor = 0.1
[training]
local_batch_size = 1
seq_len = 8192
max_norm = 1.0
steps = 1000
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "default"
tensor_parallel_degree = 1
enable_async_tensor_parallel = false
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
enable = false
folder = "checkpoint"
interval = 500
last_save_model_only = true
export_dtype = "float32"
async_mode = "disabled"
[activation_checkpoint]
mode = "full"
selective_ac_option = "op"
[compile]
enable = false
components = ["model", "loss"]
[quantize.linear.float8]
enable_fsdp_float8_all_gather = false
filter_fqns = ["output"]
[validation]
enable = false
dataset = "c4_validation"
freq = 500
steps = 1200
)";

/// A file of 2024, with older places and names.
inline const std::string kOldFile = R"(
[job]
dump_folder = "./outputs"
description = "Llama 2 7B training"
[profiling]
run_profiler = true
save_traces_folder = "profiling/traces"
profile_every_x_iter = 100
[metrics]
enable_tensorboard = true
save_tb_folder = "tb"
log_freq = 10
[model]
name = "llama"
flavor = "7B"
norm_type = "rmsnorm"
tokenizer_path = "./tokenizer.model"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
batch_size = 8
seq_len = 2048
warmup_steps = 200
max_norm = 1.0
steps = 1000
data_parallel_degree = -1
tensor_parallel_degree = 1
pipeline_parallel_degree = 1
compile = false
fp8_linear = ""
checkpoint_interval = 3600
checkpoint_interval_type = "steps"
checkpoint_folder = ""
dataset = "alpaca"
[activation_checkpoint]
mode = "none"
)";

}  // namespace fsdp::estimate
