// Whether the values of a configuration, each right by itself, fit together.
#include "base/check.h"
#include "base/printable.h"
#include "comm/processes/launch.h"
#include "config/config.h"
#include "config/keys.h"
#include "device/accelerator.h"
#include "io/output_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::config {
namespace {

template <class... Args>
void refuse_if(bool is_wrong, const TrainConfig& config, const std::string& key,
               fmt::format_string<Args...> why, Args&&... args) {
  if (!is_wrong) return;
  throw InputError(config.origin(key) + ": " + fmt::format(why, std::forward<Args>(args)...));
}

void check_model(const TrainConfig& config) {
  try {
    config.model.validate();
  } catch (const InputError& error) {  // its sentence begins with the key
    const std::string what = error.what();
    const std::size_t colon = what.find(':');
    throw InputError(config.origin(what.substr(0, colon)) + what.substr(colon));
  }
  const std::int64_t most = config.model.max_position_embeddings;
  refuse_if(config.sequence_length() > most, config, "training.seq_len",
            "is {}, at most model.max_position_embeddings = {}", config.sequence_length(), most);
}

void check_recipe(const TrainConfig& config) {
  try {
    config.recipe.validate();
  } catch (const optim::RecipeError& error) {
    throw InputError(config.origin(error.key()) + ": " + error.why());
  }
}

void check_buckets(const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  refuse_if(config.recipe.strategy == optim::Strategy::zero2 && parallel.reduce_bucket_size > 0 &&
                parallel.reduce_buffer_size > 0,
            config, "parallel.reduce_bucket_size",
            "is {} elements, but parallel.reduce_buffer_size is {} bytes, and both say what is "
            "reduced together; leave one of them out",
            parallel.reduce_bucket_size, parallel.reduce_buffer_size);
}

// A program has CUDA if it is linked with it, and a machine if it has a card.
void check_device(TrainConfig& config) {
  const bool is_single = config.recipe.strategy == optim::Strategy::single;
  const bool is_nccl = config.parallel.device_collectives == "nccl" && !is_single;
  if (!config.has_ranks()) config.training.device = "cpu";  // a remark says so
  if (config.training.device == "cpu") return;
  refuse_if(accelerator() == nullptr, config, "training.device",
            "is cuda, but this program was built without CUDA; use one that was built with the "
            "preset cuda (see docs/gpu.md), or cpu");
  int count = 0;
  try {
    count = accelerator()->count();
  } catch (const Error& error) {
    throw InputError(config.origin("training.device") + ": is cuda: " + error.what());
  }
  if (const auto launch = processes::launched(); launch && !is_single) {
    refuse_if(!is_nccl, config, "parallel.device_collectives",
              "is canonical, which adds between ranks that are threads, but {} has started this "
              "program; set it to nccl, or start the program alone",
              launch->by());
    // A launcher may show each process one card of its own. If it is the same, NCCL says so.
    refuse_if(count > 1 && count < launch->size_here, config, "parallel.device_collectives",
              "is nccl, which needs a card for each of the {} processes on this machine, and it "
              "has {}; start fewer processes here",
              launch->size_here, count);
  }
  refuse_if(is_nccl && !processes::launched() && count < config.recipe.ranks, config,
            "parallel.device_collectives",
            "is nccl, which needs a card for each of the {} ranks, and this machine has {}; use "
            "canonical, with which ranks share cards",
            config.recipe.ranks, count);
}

// Only a card, and a modeled machine, has a memory beside the host's.
void check_offload(const TrainConfig& config) {
  const optim::Offload& offload = config.recipe.sharding.offload;
  refuse_if(
      offload.is_on() && !config.is_modeled && config.training.device == "cpu", config,
      offload.params ? "parallel.offload_params" : "parallel.offload_optimizer",
      "is true, but ranks compute on the CPU: device and host are one memory there, so "
      "offload would copy what a rank owns and save no byte; leave it out, or see what it does to "
      "a machine with two memories: unshard-report --fake --offload all --out FOLDER");
}

// The product rule: global = local x ranks x micro-steps.
void check_batch(const TrainConfig& config) {
  const std::int64_t micro_step = config.training.local_batch_size * config.recipe.ranks;
  const std::int64_t global = config.training.global_batch_size;
  const std::int64_t below = std::max(global / micro_step, std::int64_t{1}) * micro_step;
  refuse_if(global % micro_step != 0, config, "training.global_batch_size",
            "is {}, must be a multiple of training.local_batch_size {} x parallel.ranks {} = {}, "
            "such as {} or {}",
            global, config.training.local_batch_size, config.recipe.ranks, micro_step, below,
            below + micro_step);
}

void check_fp32_sums(const TrainConfig& config) {
  const optim::MixedPrecision& precision = config.recipe.precision;
  if (!config.training.fp32_reduce_scatter) return;
  const char* key = "training.fp32_reduce_scatter";
  refuse_if(precision.param_dtype_for(DType::float32) == DType::float32, config, key,
            "is true, but without mixed precision gradients are float32, and so are their sums; "
            "set training.mixed_precision_param to bfloat16 or float16, or leave it out");
  const DType sums = precision.reduce_dtype_for(DType::float32);
  refuse_if(sums != DType::float32, config, key,
            "is true, but training.mixed_precision_reduce is {}; leave one of them out",
            name_of(sums));
}

void check_schedule(TrainConfig& config) {
  const auto& [kind, lr, min_lr, warmup_steps, total_steps, decay_steps] = config.schedule;
  if (kind == optim::LrSchedule::Kind::constant) return;
  refuse_if(warmup_steps > total_steps, config, "lr_scheduler.warmup_steps",
            "is {}, but lr_scheduler.total_steps is {}: the rate would never reach optimizer.lr; "
            "use a shorter warm-up, or set lr_scheduler.total_steps to the length of the whole "
            "training",
            warmup_steps, total_steps);
  refuse_if(config.schedule.is_stable() && warmup_steps + decay_steps > total_steps, config,
            "lr_scheduler.decay_steps",
            "is {}, and with a warm-up of {} more than lr_scheduler.total_steps {}; use at most {}",
            decay_steps, warmup_steps, total_steps, total_steps - warmup_steps);
  refuse_if(min_lr > lr, config, "lr_scheduler.min_lr",
            "is {}, more than optimizer.lr {}; use at most that", min_lr, lr);
  if (config.schedule.decays() && config.training.steps > total_steps) {
    config.remarks.push_back(
        fmt::format("{}: after step {} the rate stays at lr_scheduler.min_lr = {}",
                    config.origin("lr_scheduler.total_steps"), total_steps, min_lr));
  }
}

// The weights that a training begins with are those of one folder, and its own are not touched.
void check_from(const TrainConfig& config) {
  const auto& [folder, interval, resume, from] = config.checkpoint;
  if (from.empty()) return;
  std::string sizes;
  for (const auto& [key, value] : config.settings) {
    if (!key.starts_with("model.") || key == "model.preset" || key == "model.from") continue;
    sizes += fmt::format(" --{} {}", key, value);
  }
  refuse_if(!config.from.empty(), config, "checkpoint.from",
            "contradicts model.from: both say which weights a training begins with; leave one of "
            "them out, and without model.from give the sizes of its model:{}",
            sizes);
  if (folder.empty()) return;
  const std::filesystem::path own = io::resolved(folder), begun = io::resolved(from);
  refuse_if(begun == own || begun.parent_path() == own, config, "checkpoint.from",
            "lies in checkpoint.folder {}, where the new training saves its own checkpoints; give "
            "it another checkpoint.folder",
            folder);
}

void check_checkpoint(const TrainConfig& config) {
  const auto& [folder, interval, resume, from] = config.checkpoint;
  if (!folder.empty()) return;
  refuse_if(interval > 0, config, "checkpoint.interval",
            "is {}, but without a checkpoint.folder nothing is saved; set one", interval);
  refuse_if(resume && config.origins.contains("checkpoint.resume"), config, "checkpoint.resume",
            "is true, but without a checkpoint.folder there is nothing to resume; set one");
}

void check_metrics(const TrainConfig& config) {
  const std::string& file = config.metrics_file;
  refuse_if(!file.empty() && !file.ends_with(".jsonl") && !file.ends_with(".csv"), config,
            "metrics.file", "is {}, must end in .jsonl or .csv, which says its format",
            printable(file));
}

void check_loss_scale(const TrainConfig& config) {
  const auto check = [&](const char* key, double value) {
    const double near = std::ldexp(1.0, value > 0 ? std::ilogb(value) + 1 : 0);
    refuse_if(value != 0 && !optim::LossScaler::is_scale(value), config, key,
              "is {}, must be a power of two, such as {}", value, near);
  };
  check("fp16.loss_scale", config.fp16.fixed);
  check("fp16.min_loss_scale", config.fp16.least);
  const double first = std::ldexp(1.0, config.fp16.initial_power);
  refuse_if(config.fp16.fixed == 0 && config.fp16.least > first, config, "fp16.min_loss_scale",
            "is {}, but the scale begins at {}; use at most that", config.fp16.least, first);
}

void check_validation(const TrainConfig& config) {
  const std::int64_t every = config.training.eval_every;
  refuse_if(every > 0 && config.data.validation.empty(), config, "training.eval_every",
            "is {}, but without data.validation there is nothing to evaluate on; set it", every);
}

void check_lora(const TrainConfig& config) {
  const std::vector<std::string> linears = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                            "gate_proj", "up_proj", "down_proj"};
  if (!config.recipe.has_lora()) return;
  std::vector<std::string> targets = config.recipe.lora.targets;
  refuse_if(targets.empty(), config, "lora.targets", "is empty; name at least one of {}",
            fmt::join(linears, ", "));
  std::ranges::sort(targets);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    refuse_if(std::ranges::find(linears, targets[i]) == linears.end(), config, "lora.targets",
              "{} is no linear of a block; use some of {}, separated by commas",
              printable(targets[i]), fmt::join(linears, ", "));
    refuse_if(i > 0 && targets[i] == targets[i - 1], config, "lora.targets",
              "names {} twice; once is enough", targets[i]);
  }
}

// What was given and changes nothing.
void remark(TrainConfig& config) {
  const bool is_single = config.recipe.strategy == optim::Strategy::single;
  const bool is_sharded = config.recipe.strategy == optim::Strategy::fsdp;
  const auto idle = [&](bool is_idle, const std::vector<const char*>& keys, const char* why) {
    for (const char* key : keys) {
      if (!is_idle || !config.origins.contains(key)) continue;
      config.remarks.push_back(fmt::format("{}: has no effect {}", config.origin(key), why));
    }
  };
  idle(config.schedule.kind == optim::LrSchedule::Kind::constant,
       {"lr_scheduler.min_lr", "lr_scheduler.warmup_steps", "lr_scheduler.total_steps"},
       "with lr_scheduler.kind constant");
  idle(!config.schedule.is_stable(), {"lr_scheduler.decay_steps"},
       "without lr_scheduler.kind warmup_stable_linear, _sqrt or _cosine");
  idle(!config.model.rope_scaling.is_on(),
       {"model.rope_low_freq_factor", "model.rope_high_freq_factor", "model.rope_original_context"},
       "while model.rope_factor is 0");
  const std::string with_it = "with optimizer.name " + config.recipe.optimizer.name;
  for (const ops::OptimizerOption& option : ops::optimizer_options()) {
    const std::string key = std::string("optimizer.") + option.name;
    idle(!config.recipe.optimizer.looks_at(key), {key.c_str()}, with_it.c_str());
  }
  idle(!is_sharded,
       {"parallel.data_parallel_replicate_degree", "parallel.reshard_after_forward",
        "parallel.prefetch_depth", "parallel.in_flight_limit"},
       "without parallel.strategy fsdp");
  idle(!config.recipe.is_zero(),
       {"parallel.zero_partition", "parallel.broadcast_fp16", "parallel.allgather_bucket_size"},
       "without parallel.strategy zero1 or zero2");
  idle(config.recipe.strategy != optim::Strategy::zero2,
       {"parallel.reduce_buffer_size", "parallel.contiguous_gradients", "parallel.reduce_scatter"},
       "without parallel.strategy zero2");
  idle(is_single || is_sharded, {"parallel.overlap_comm", "parallel.reduce_bucket_size"},
       "without parallel.strategy ddp, zero1 or zero2");
  idle(is_sharded, {"parallel.gradient_compression"},
       "with parallel.strategy fsdp, where training.mixed_precision_reduce says what travels");
  idle(!config.scales_loss(),
       {"fp16.loss_scale", "fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis",
        "fp16.consecutive_hysteresis", "fp16.min_loss_scale"},
       "without training.mixed_precision_param float16");
  idle(config.scales_loss() && config.fp16.fixed != 0,
       {"fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis",
        "fp16.consecutive_hysteresis", "fp16.min_loss_scale"},
       "with an fp16.loss_scale that stays");
  if (config.recipe.precision.reduce_dtype == DType::float16 && !config.scales_loss()) {
    config.remarks.push_back(
        config.origin("training.mixed_precision_reduce") +
        ": in float16, small gradients become 0 and large ones overflow, and only with "
        "training.mixed_precision_param float16 is the loss scaled");
  }
  if (config.recipe.zero.reductions.compression == DType::float16 && !config.scales_loss()) {
    config.remarks.push_back(
        config.origin("parallel.gradient_compression") +
        ": in float16, small gradients become 0 and large ones overflow; bfloat16 has the range of "
        "float32");
  }
  idle(config.micro_batches() == 1, {"training.prescale_gradients"},
       "while a step has one micro-batch");
  idle(!config.has_ranks(), {"training.device"}, "on a modeled machine");
  idle(config.training.device == "cpu" || is_single, {"parallel.device_collectives"},
       !config.has_ranks()               ? "on a modeled machine"
       : config.training.device == "cpu" ? "on the CPU"
                                         : "with strategy single");
  idle(!config.recipe.has_lora(), {"lora.alpha", "lora.targets"}, "while lora.rank is 0");
  idle(config.training.eval_every == 0 && !config.data.validation.empty(), {"data.validation"},
       "while training.eval_every is 0");
  idle(config.sample.max_new_tokens == 0, {"sample.prompt", "sample.temperature", "sample.top_k"},
       "while sample.max_new_tokens is 0");
}

}  // namespace

void TrainConfig::settle() {
  if (recipe.strategy != optim::Strategy::fsdp) recipe.replicas = 1;  // a remark says so
  if (!recipe.is_zero()) recipe.zero.broadcast_fp16 = false;          // likewise
  if (recipe.strategy == optim::Strategy::fsdp) recipe.zero.reductions.compression.reset();
  const std::int64_t micro_step = training.local_batch_size * recipe.ranks;
  if (training.global_batch_size == 0) training.global_batch_size = micro_step;
  // At least one, so that check() is the one to say that they do not divide.
  recipe.micro_steps = static_cast<int>(std::max<std::int64_t>(micro_batches() / recipe.ranks, 1));
  recipe.micro_steps_per_reduction = training.no_sync ? recipe.micro_steps : 1;

  // A bucket's gradients are made in it, so they have the format that the model computes in.
  const auto reduced = static_cast<std::size_t>(parallel.reduce_bucket_size);
  const std::size_t element = size_of(recipe.precision.param_dtype_for(DType::float32));
  recipe.bucket_bytes = reduced == 0 ? optim::kBucketBytes : reduced * element;
  const std::size_t sum = size_of(recipe.precision.reduce_dtype_for(DType::float32));
  recipe.zero.reduce_buffer_bytes =
      reduced == 0 ? static_cast<std::size_t>(parallel.reduce_buffer_size) : reduced * sum;
  const DType broadcast = recipe.zero.broadcast_fp16
                              ? DType::float16
                              : recipe.precision.param_dtype_for(DType::float32);
  recipe.zero.broadcast_buffer_bytes =
      parallel.allgather_bucket_size == 0
          ? optim::kBucketBytes
          : static_cast<std::size_t>(parallel.allgather_bucket_size) * size_of(broadcast);
}

void TrainConfig::check() {
  check_model(*this);
  settle();
  check_device(*this);
  check_offload(*this);
  check_recipe(*this);
  check_buckets(*this);
  check_batch(*this);
  check_fp32_sums(*this);
  check_loss_scale(*this);
  check_lora(*this);
  check_schedule(*this);
  check_from(*this);
  check_checkpoint(*this);
  check_validation(*this);
  check_metrics(*this);
  remark(*this);
}

}  // namespace fsdp::config
