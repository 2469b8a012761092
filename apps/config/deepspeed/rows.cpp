#include "config/deepspeed/rows.h"

namespace fsdp::config::deepspeed {
namespace {

using foreign::idle, foreign::only, foreign::own, foreign::refused, foreign::sets, foreign::Values;
using Table = foreign::Rows;
using Use = Row::Use;

// sets() for what changes no number of a training.
Row tunes(const char* path, const char* key, Values values = {}) {
  Row row = sets(path, key, std::move(values));
  row.changes_numbers = false;
  return row;
}
// A whole section, which must not be enabled.
Row off(const char* section, const char* why) {
  return {.use = Use::off, .path = section, .why = why};
}
// A whole section that changes no number, enabled or not.
Row extra(const char* section, const char* why) {
  return {.use = Use::extra, .path = section, .why = why};
}

constexpr const char* kOffloadOptimizer =
    "stage 1: `parallel.offload_optimizer`; 2: and `parallel.offload_grads`; 3: with "
    "`offload_param`, `parallel.offload_params`, and alone in an estimate of DeepSpeed; on a CPU a "
    "note";
constexpr const char* kOffloadParam =
    "stage 3: with `offload_optimizer`, `parallel.offload_params`; on a CPU a note";
constexpr const char* kOffloadDetail = "it says how to offload, and not what";
constexpr const char* kQuantized = "parameters and gradients travel unquantized";
constexpr const char* kTorchDetail = "it says how PyTorch computes, not what";
constexpr const char* kNotRead = "DeepSpeed does not read it either";
constexpr const char* kExport = "--export always writes the full model, in export.dtype";
constexpr const char* kNoService =
    "nothing is sent to a service; metrics.file and metrics.tensorboard write what each step has";
constexpr const char* kMonitor = "--summary FILE writes losses, memory and bytes received";

// Adds a section's name to its keys.
Table within(const std::string& section, Table keys) {
  for (Row& row : keys) row.path = section + "." + row.path;
  return keys;
}

// What is in no section.
Table top() {
  return {
      own("train_batch_size"),
      own("train_micro_batch_size_per_gpu"),
      own("gradient_accumulation_steps"),
      own("steps_per_print", "`metrics.log_freq`, at most 1000000000"),
      tunes("wall_clock_breakdown", "metrics.wall_clock_breakdown"),
      sets("gradient_clipping", "training.max_norm"),
      sets("prescale_gradients", "training.prescale_gradients"),
      only("gradient_predivide_factor", "1", "prescale_gradients chooses its factor by itself"),
      only("sparse_gradients", "false", "gradients are dense"),
      own("communication_data_type"),
      own("data_types.grad_accum_dtype"),
      idle("seq_parallel_communication_data_type", "there is no sequence parallelism"),
      idle("zero_allow_untested_optimizer", "every optimizer is tested with every stage"),
      idle("zero_force_ds_cpu_optimizer", "there is one implementation of each optimizer"),
      idle("disable_allgather",
           "every rank needs the updated parameters, and DeepSpeed does not "
           "look at it either"),
      idle("dump_state", "--explain FILE says what became of each key"),
      idle("memory_breakdown", kMonitor),
      idle("dataloader_drop_last", "every micro-batch is full"),
      idle("use_data_before_expert_parallelism", "there are no experts"),
      idle("graph_harvesting", kTorchDetail),
      idle("timers", "metrics.wall_clock_breakdown says how long the phases of a step take"),
      idle("compile", kTorchDetail),
      idle("activation_checkpointing",
           "it says how a model's code would compute activations again; "
           "training.activation_checkpoint block turns that on"),
      idle("aio", "nothing is read from or written to NVMe"),
      idle("checkpoint", "the keys checkpoint.* of a TOML file say where checkpoints go"),
      idle("monitor_config", kNotRead),
      idle("comms_config", kNotRead),
      idle("cuda_visible_devices", kNotRead),
      idle("log", kNotRead),
      only("sequence_parallel_size", "1", "there is no sequence parallelism"),
      only("tensor_parallel.autotp_size", "0", "there is no tensor parallelism", {{"1", ""}}),
      only("tensor_parallel.tp_size", "1", "there is no tensor parallelism"),
  };
}

// optimizer.cpp knows which of them an optimizer has.
Table optimizer() {
  return within("optimizer",
                {
                    own("type"),
                    idle("legacy_fusion", "there is one implementation of each optimizer"),
                    own("params.lr"),
                    own("params.betas"),
                    sets("params.eps", "optimizer.eps"),
                    sets("params.weight_decay", "optimizer.weight_decay"),
                    sets("params.momentum", "optimizer.momentum"),
                    sets("params.lr_decay", "optimizer.lr_decay"),
                    sets("params.initial_accumulator_value", "optimizer.initial_accumulator_value"),
                    sets("params.rho", "optimizer.rho"),
                    own("params.adam_w_mode"),
                    own("params.torch_adam"),
                    only("params.bias_correction", "true", "moments are always corrected"),
                    only("params.amsgrad", "false", "use Adam or AdamW without it"),
                    only("params.maximize", "false", "the loss is minimized"),
                    only("params.dampening", "0", "momentum has no dampening"),
                    only("params.nesterov", "false", "use plain momentum"),
                    only("params.fp32_optimizer_states", "true", "optimizer state is in float32"),
                    idle("params.foreach", kTorchDetail),
                    idle("params.fused", kTorchDetail),
                    idle("params.capturable", kTorchDetail),
                    idle("params.differentiable", kTorchDetail),
                    idle("params.set_grad_none", "gradients are always freed"),
                    refused("params.max_grad_norm", "use gradient_clipping instead"),
                });
}

// Of optimizers that are refused by their type.
Table other_optimizers() {
  Table keys;
  for (const char* name :
       {"max_coeff", "min_coeff", "freeze_step", "cuda_aware", "comm_backend_name", "coeff_beta",
        "factor_max", "factor_min", "factor_threshold", "var_freeze_step", "var_update_scaler",
        "local_step_scaler", "local_step_clipper"}) {
    keys.push_back(own(name, "of optimizers that are refused"));
  }
  return within("optimizer.params", keys);
}

// WarmupLR and WarmupDecayLR.
Table scheduler() {
  return within("scheduler",
                {
                    own("type"),
                    sets("params.warmup_min_lr", "lr_scheduler.min_lr"),
                    sets("params.warmup_max_lr", "optimizer.lr"),
                    own("params.warmup_num_steps"),
                    own("params.warmup_type"),
                    own("params.total_num_steps"),
                    only("params.last_batch_iteration", "-1", "a checkpoint says where to go on"),
                });
}

// Of schedules that are refused by their type.
Table other_schedules() {
  Table keys;
  for (const char* name :
       {"warmup_min_ratio", "cos_min_ratio", "lr_range_test_min_lr", "lr_range_test_step_size",
        "lr_range_test_step_rate", "lr_range_test_staircase", "cycle_min_lr", "cycle_max_lr",
        "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
        "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum",
        "cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}) {
    keys.push_back(own(name, "of schedules that are refused"));
  }
  return within("scheduler.params", keys);
}

// They count only while fp16 is enabled.
Table fp16() {
  return within("fp16",
                {
                    own("enabled"),
                    sets("loss_scale", "fp16.loss_scale"),
                    sets("initial_scale_power", "fp16.initial_scale_power"),
                    sets("loss_scale_window", "fp16.loss_scale_window"),
                    sets("hysteresis", "fp16.hysteresis"),
                    sets("consecutive_hysteresis", "fp16.consecutive_hysteresis"),
                    sets("min_loss_scale", "fp16.min_loss_scale"),
                    idle("auto_cast", "it casts inputs that are real numbers, and tokens are not"),
                    only("fp16_master_weights_and_grads", "false", "masters are in float32"),
                });
}

// bfloat16 needs no loss scale.
Table bf16(const std::string& section) {
  return within(
      section,
      {
          own("enabled"),
          only("bf16_master_weights_and_grads", "false", "masters are in float32"),
          only("bf16_optimizer_states", "false", "optimizer state is in float32"),
          idle("immediate_grad_update", "gradients are always added up as they appear"),
          idle("check_grad_overflow", "a gradient that is not finite always ends the training"),
      });
}

// Keys about the reduction of gradients are for stages 0 to 2, stage3_* for stage 3.
Table zero() {
  return within("zero_optimization",
                {
                    own("stage"),
                    tunes("overlap_comm", "parallel.overlap_comm"),
                    tunes("contiguous_gradients", "parallel.contiguous_gradients"),
                    tunes("reduce_scatter", "parallel.reduce_scatter"),
                    tunes("reduce_bucket_size", "parallel.reduce_bucket_size"),
                    tunes("allgather_bucket_size", "parallel.allgather_bucket_size"),
                    tunes("round_robin_gradients", "parallel.zero_partition",
                          {{"false", ""}, {"true", "round_robin"}}),
                    idle("allgather_partitions",
                         "every rank gets the updated parameters, and how changes no bit"),
                    idle("use_multi_rank_bucket_allreduce",
                         "it changes which operation adds gradients up, and no bit"),
                    idle("sub_group_size", "the optimizer updates a shard at once"),
                    idle("memory_efficient_linear", "a linear always keeps only its input"),
                    idle("override_module_apply", "weights are always drawn for the shards alone"),
                    idle("ignore_unused_parameters", "a parameter without a gradient gets zeros"),
                    idle("load_from_fp32_weights", "checkpoints hold masters in float32"),
                    idle("elastic_checkpoint", "a checkpoint always loads on any number of ranks"),
                    idle("pipeline_loading_checkpoint", "a checkpoint is loaded by shards"),
                    idle("log_trace_cache_warnings", "there is no such cache"),
                    idle("enable_sanity_checks", "checks are always on"),
                    idle("save_muon_momentum_buffer_in_memory", "there is no Muon"),
                    idle("leaf_module", "units are the blocks of the model"),
                });
}

// Of stage 3. DeepSpeed also takes each name without "stage3_".
Table stage3(const std::string& prefix) {
  Table keys = {
      idle("prefetch_bucket_size",
           "gathers run ahead by units; parallel.prefetch_depth says how many"),
      idle("max_live_parameters",
           "parallel.prefetch_depth + 1 units are unsharded at most, whatever their size"),
      idle("max_reuse_distance", "parallel.reshard_after_forward says whether a unit is kept"),
      idle("param_persistence_threshold", "small parameters are sharded too"),
      idle("model_persistence_threshold", "small parameters are sharded too"),
      idle("gather_16bit_weights_on_model_save", kExport),
      idle("gather_fp16_weights_on_model_save", kExport),
      idle("module_granularity_threshold", "units are the blocks of the model"),
      idle("use_all_reduce_for_fetch_params", "parameters are gathered, and how changes no bit"),
      idle("allgather_sequential", "a unit is gathered at once"),
      idle("partition_stream_chunk_size", "weights are always drawn for the shards alone"),
  };
  for (Row& row : keys) row.path = prefix + row.path;
  return within("zero_optimization", keys);
}

// What we have under another name, or not at all.
Table zero_only() {
  return within("zero_optimization",
                {
                    only("legacy_stage1", "false", "there is one stage 1"),
                    only("zero_hpz_partition_size", "1",
                         "set parallel.reshard_after_forward to a number of ranks instead"),
                    only("mics_shard_size", "-1",
                         "set parallel.data_parallel_replicate_degree to ranks / shards instead"),
                    only("mics_hierarchical_params_gather", "false", "gathers have one level"),
                    only("zero_quantized_weights", "false", kQuantized),
                    only("zero_quantized_nontrainable_weights", "false", kQuantized),
                    only("zero_quantized_gradients", "false", kQuantized),
                    refused("zeropp_loco_param", kQuantized),
                    refused("zenflow", "the optimizer steps on all ranks at once; leave it out"),
                });
}

Table offload() {
  return within("zero_optimization",
                {
                    own("offload_optimizer.device", kOffloadOptimizer),
                    idle("offload_optimizer.pin_memory", kOffloadDetail),
                    idle("offload_optimizer.buffer_count", kOffloadDetail),
                    idle("offload_optimizer.fast_init", kOffloadDetail),
                    own("offload_optimizer.ratio", "stage 3: must be 1; else it is not read"),
                    idle("offload_optimizer.nvme_path", kOffloadDetail),
                    idle("offload_optimizer.pipeline_read", kOffloadDetail),
                    idle("offload_optimizer.pipeline_write", kOffloadDetail),
                    own("offload_param.device", kOffloadParam),
                    idle("offload_param.pin_memory", kOffloadDetail),
                    idle("offload_param.buffer_count", kOffloadDetail),
                    idle("offload_param.buffer_size", kOffloadDetail),
                    idle("offload_param.max_in_cpu", kOffloadDetail),
                    idle("offload_param.nvme_path", kOffloadDetail),
                    own("cpu_offload", "older spelling of `offload_optimizer`"),
                    own("cpu_offload_params", "older spelling of `offload_param`"),
                    own("cpu_offload_param", "older spelling of `offload_param`"),
                    idle("cpu_offload_use_pin_memory", kOffloadDetail),
                });
}

// Sections of which we have nothing.
Table others() {
  return {
      extra("flops_profiler", "--picture FOLDER draws a step's time"),
      extra("comms_logger", "--picture FOLDER lists a step's collectives"),
      own("tensorboard.enabled", "`metrics.tensorboard`"),
      own("tensorboard.output_path"),
      own("tensorboard.job_name"),
      own("csv_monitor.enabled", "`metrics.file`"),
      own("csv_monitor.output_path"),
      own("csv_monitor.job_name"),
      extra("wandb", kNoService),
      extra("comet", kNoService),
      extra("nebula", "the keys checkpoint.* of a TOML file say where checkpoints go"),
      off("torch_autocast", "use bf16 or fp16 instead"),
      off("amp", "use bf16 or fp16 instead"),
      off("elasticity",
          "a checkpoint loads on any number of ranks: start again with another --ranks"),
      off("autotuning", "choose the stage and the batch yourself"),
      refused("sparse_attention", "attention is dense; leave it out"),
      off("data_efficiency", "every sequence is used as it is; leave it out"),
      off("curriculum_learning", "every sequence is used as it is; leave it out"),
      off("progressive_layer_drop", "every block computes in each step; leave it out"),
      off("compression_training", "the model is trained as it is; leave it out"),
      off("eigenvalue", "no training here uses it; leave it out"),
      refused("quantize_training", "the model is trained as it is; leave it out"),
      off("hybrid_engine", "it is for inference between steps; leave it out"),
      refused("pipeline", "there is no pipeline parallelism; leave it out"),
  };
}

}  // namespace

const std::vector<Row>& rows() {
  static const Table table = foreign::joined(
      {top(), optimizer(), other_optimizers(), scheduler(), other_schedules(), fp16(), bf16("bf16"),
       bf16("bfloat16"), zero(), stage3("stage3_"), stage3(""), zero_only(), offload(), others()});
  return table;
}

}  // namespace fsdp::config::deepspeed
