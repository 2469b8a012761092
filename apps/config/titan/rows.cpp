#include "config/titan/rows.h"

namespace fsdp::config::titan {
namespace {

using foreign::idle, foreign::only, foreign::refused, foreign::sets, foreign::Values;
using Table = foreign::Rows;

// Of the same name and meaning here.
Row same(const char* path) { return sets(path, path); }
// titan_keys.cpp, world.cpp and parts.cpp read it; `here` is for the table.
Row own(const char* path, const char* here) { return foreign::own(path, here); }

const Values kEmptyList = {{"[]", ""}, {"[  ]", ""}};
constexpr const char* kRun = "a run's name, and how it is started, change nothing in it";
constexpr const char* kPrinting = "progress lines, --summary and --picture say what a run does";
constexpr const char* kNoService =
    "nothing is sent to a service; metrics.file and metrics.tensorboard write what each step has";
constexpr const char* kProfiling = "--picture FOLDER draws the last step";
constexpr const char* kData = "data.path says what is trained on, and its tokenizer";
constexpr const char* kHow = "only PyTorch's way to compute the same";
constexpr const char* kStep =
    "only PyTorch's way to compute the same (`foreach` holds 4 bytes more per trained parameter of "
    "a rank while it steps, and no estimate counts them)";
constexpr const char* kCompiled = "nothing is compiled";
constexpr const char* kCompiling =
    "of an estimate for PyTorch; a training here is not compiled, and a warning says so";
constexpr const char* kTimeouts = "only how long processes wait for each other";
constexpr const char* kNoPipeline = "there is no pipeline parallelism";
constexpr const char* kNoTensor = "there is no tensor parallelism";
constexpr const char* kNoContext = "there is no context parallelism";
constexpr const char* kNoExperts = "the models here have no experts";
constexpr const char* kQuantizing = "nothing is quantized by it";
constexpr const char* kFloat8 =
    "products in float8, of an estimate for PyTorch; nothing is trained in it";
constexpr const char* kFloat8Option = "of products in float8, in an estimate for PyTorch";
constexpr const char* kScales = "scales are numbers, one per weight, and are not counted";
constexpr const char* kSaving = "a checkpoint is written whole, in float32, before the next step";
constexpr const char* kValidating = "training.eval_every and data.validation evaluate";
constexpr const char* kNoFaults = "no rank is replaced while a training runs";
constexpr const char* kTensor =
    "tensor parallelism is not estimated, nor trained: models are divided by data parallelism "
    "alone here; set it to 1, and raise parallelism.data_parallel_shard_degree instead";
constexpr const char* kPipeline =
    "pipeline parallelism is not estimated, nor trained: models are divided by data parallelism "
    "alone here; set it to 1, and raise parallelism.data_parallel_shard_degree instead";
constexpr const char* kContext =
    "context parallelism is not estimated, nor trained: sequences are not divided here; set it to "
    "1, or shorten training.seq_len";
constexpr const char* kExperts =
    "expert parallelism is not estimated, nor trained: the models here have no experts; set it to "
    "1";
constexpr const char* kModule = "it loads code that adds keys and models, which is not read here";

Table job() {
  return {
      own("job.config_file", "the file, where it stands on a command line"),
      own("job.dump_folder", "where `checkpoint.folder` and `metrics.tensorboard` go, if enabled"),
      idle("job.description", kRun),
      idle("job.use_for_integration_test", kRun),
      idle("job.print_args", kPrinting),
      idle("job.print_config", kPrinting),
      idle("job.save_config_file", kPrinting),
      only("job.custom_config_module", "", kModule),
      idle("profiling.enable_profiling", kProfiling),
      idle("profiling.run_profiler", kProfiling),
      idle("profiling.save_traces_folder", kProfiling),
      idle("profiling.profile_freq", kProfiling),
      idle("profiling.profile_every_x_iter", kProfiling),
      idle("profiling.profiler_active", kProfiling),
      idle("profiling.profiler_warmup", kProfiling),
      idle("profiling.enable_memory_snapshot", kProfiling),
      idle("profiling.save_memory_snapshot_folder", kProfiling),
      same("metrics.log_freq"),
      own("metrics.enable_tensorboard", "`metrics.tensorboard`"),
      own("metrics.save_tb_folder",
          "the folder of `metrics.tensorboard`, in `job.dump_folder`, without one for the date"),
      idle("metrics.enable_wandb", kNoService),
      idle("metrics.disable_color_printing", kPrinting),
      idle("metrics.enable_color_printing", kPrinting),
      idle("metrics.save_for_all_ranks", kPrinting),
      idle("metrics.rank_0_only", kPrinting),
      idle("metrics.use_for_integration_test", kRun),
  };
}

Table model() {
  return {
      own("model.name", "the family of `model.flavor`: `llama3`, `llama2` or `llama`"),
      own("model.flavor", "`model.preset`: `debugmodel`, `7B`, `13B`, `70B`, `8B`, `405B`"),
      idle("model.tokenizer_path", kData),
      idle("model.hf_assets_path", kData),
      idle("model.tokenizer_name", kData),
      only("model.norm_type", "rmsnorm", "layers are normalized by RMSNorm",
           {{"fused_rmsnorm", ""}, {"compiled_rmsnorm", ""}}),
      own("model.converters", "`float8`: products in it, of an estimate for PyTorch"),
      idle("model.print_after_conversion", kPrinting),
      only("model.use_flex_attn", "false", "attention has one implementation; set it to false"),
      only("model.attn_mask_type", "causal", "a token sees all before it; set it to causal"),
      only("model.attn_type", "sdpa", "attention has one implementation; set it to sdpa"),
      refused("hf_transformers.model",
              "set model.from to a Hugging Face folder of a Llama instead"),
      refused("data.max_images_per_batch", "the models here read text alone; leave it out"),
      refused("data.max_patches_per_image", "the models here read text alone; leave it out"),
  };
}

Table optimizer() {
  return {
      own("optimizer.name", "`optimizer.name`, in any case"),
      same("optimizer.lr"),
      same("optimizer.beta1"),
      same("optimizer.beta2"),
      same("optimizer.eps"),
      same("optimizer.weight_decay"),
      idle("optimizer.implementation", kStep),
      idle("optimizer.fused", kStep),
      idle("optimizer.foreach", kStep),
      only("optimizer.early_step_in_backward", "false",
           "the optimizer steps after the whole backward, with the clipped gradient"),
      own("lr_scheduler.warmup_steps", "`lr_scheduler.warmup_steps`, at most `training.steps`"),
      own("lr_scheduler.decay_ratio", "`lr_scheduler.decay_steps`, as a part of `training.steps`"),
      own("lr_scheduler.decay_type",
          "`lr_scheduler.kind` `warmup_stable_linear`, `…_sqrt` or `…_cosine`"),
      own("lr_scheduler.min_lr_factor", "`lr_scheduler.min_lr`, as a part of `optimizer.lr`"),
      own("lr_scheduler.lr_min", "older name of `lr_scheduler.min_lr_factor`"),
      same("lr_scheduler.total_steps"),
      own("training.warmup_steps", "older name of `lr_scheduler.warmup_steps`"),
      own("training.warmup_pct", "`lr_scheduler.warmup_steps`, as a part of `training.steps`"),
  };
}

Table training() {
  return {
      idle("training.dataset", kData),
      idle("training.dataset_path", kData),
      same("training.local_batch_size"),
      sets("training.batch_size", "training.local_batch_size"),
      own("training.global_batch_size", "`training.global_batch_size`; -1 is one micro-step"),
      same("training.seq_len"),
      same("training.max_norm"),
      same("training.steps"),
      own("training.enable_cpu_offload",
          "`parallel.offload_params` and `parallel.offload_grads`; on a CPU a note"),
      same("training.mixed_precision_param"),
      same("training.mixed_precision_reduce"),
      only("training.dtype", "float32", "masters are in float32"),
      own("training.compile", kCompiling),
      idle("training.gc_freq", kHow),
      idle("training.gc_debug", kHow),
      same("training.seed"),
      sets("debug.seed", "training.seed"),
      idle("training.deterministic", "every training is"),
      idle("debug.deterministic", "every training is"),
      idle("debug.deterministic_warn_only", "every training is"),
      idle("debug.moe_force_load_balance", kNoExperts),
      idle("training.debug_moe_force_load_balance", kNoExperts),
      idle("debug.print_config", kPrinting),
      idle("debug.save_config_file", kPrinting),
      idle("training.enable_loss_parallel", kNoTensor),
      idle("training.enable_async_tensor_parallel", kNoTensor),
      own("training.fp8_linear", kFloat8),
      own("training.enable_fp8_linear", kFloat8),
      own("training.enable_float8_linear", kFloat8),
      own("training.enable_selective_ac", "older spelling of `activation_checkpoint.mode`"),
      only("training.data_parallel_type", "fsdp",
           "set parallelism.data_parallel_shard_degree to 1, and replicate, for DDP"),
  };
}

Table parallelism() {
  return {
      own("parallelism.data_parallel_shard_degree", "shards of a replica; -1 = all ranks"),
      own("training.data_parallel_shard_degree", "older place of the same"),
      own("training.data_parallel_degree", "older name of the same"),
      own("parallelism.data_parallel_replicate_degree",
          "`parallel.data_parallel_replicate_degree`"),
      own("training.data_parallel_replicate_degree", "older place of the same"),
      sets("parallelism.fsdp_reshard_after_forward", "parallel.reshard_after_forward",
           {{"default", "true"}, {"always", "true"}, {"never", "false"}}),
      sets("training.fsdp_reshard_after_forward", "parallel.reshard_after_forward",
           {{"default", "true"}, {"always", "true"}, {"never", "false"}}),
      only("parallelism.tensor_parallel_degree", "1", kTensor),
      only("training.tensor_parallel_degree", "1", kTensor),
      only("training.sequence_parallel_degree", "1", kTensor),
      only("experimental.tensor_parallel_degree", "1", kTensor),
      only("parallelism.pipeline_parallel_degree", "1", kPipeline),
      only("training.pipeline_parallel_degree", "1", kPipeline),
      only("experimental.pipeline_parallel_degree", "1", kPipeline),
      only("parallelism.context_parallel_degree", "1", kContext),
      only("training.context_parallel_degree", "1", kContext),
      only("experimental.context_parallel_degree", "1", kContext),
      only("parallelism.expert_parallel_degree", "1", kExperts),
      only("experimental.expert_parallel_degree", "1", kExperts),
      only("parallelism.expert_tensor_parallel_degree", "1", kExperts),
      idle("parallelism.expert_parallel_comm_backend", kNoExperts),
      idle("parallelism.enable_async_tensor_parallel", kNoTensor),
      idle("experimental.enable_async_tensor_parallel", kNoTensor),
      idle("parallelism.disable_loss_parallel", kNoTensor),
      idle("parallelism.enable_loss_parallel", kNoTensor),
      idle("parallelism.enable_sequence_parallel", kNoTensor),
      idle("parallelism.enable_compiled_autograd", kCompiled),
      idle("experimental.enable_compiled_autograd", kCompiled),
      idle("experimental.torch_spmd", kCompiled),
      idle("parallelism.pipeline_parallel_schedule", kNoPipeline),
      idle("parallelism.pipeline_parallel_schedule_csv", kNoPipeline),
      idle("parallelism.pipeline_parallel_split_points", kNoPipeline),
      idle("parallelism.module_fqns_per_model_part", kNoPipeline),
      idle("parallelism.pipeline_parallel_layers_per_stage", kNoPipeline),
      idle("parallelism.pipeline_parallel_first_stage_less_layers", kNoPipeline),
      idle("parallelism.pipeline_parallel_last_stage_less_layers", kNoPipeline),
      idle("parallelism.pipeline_parallel_microbatch_size", kNoPipeline),
      idle("parallelism.pipeline_parallel_expert_parallel_overlap", kNoPipeline),
      idle("experimental.pipeline_parallel_schedule", kNoPipeline),
      idle("experimental.pipeline_parallel_schedule_csv", kNoPipeline),
      idle("experimental.pipeline_parallel_split_points", kNoPipeline),
      idle("experimental.pipeline_parallel_split_mode", kNoPipeline),
      idle("experimental.pipeline_parallel_microbatches", kNoPipeline),
      idle("parallelism.context_parallel_rotate_method", kNoContext),
      idle("parallelism.context_parallel_load_balancer", kNoContext),
      idle("experimental.context_parallel_rotate_method", kNoContext),
      only("experimental.custom_args_module", "", kModule),
      only("experimental.custom_import", "", kModule),
      only("experimental.custom_model_path", "", kModule),
  };
}

Table checkpoint() {
  return {
      own("checkpoint.enable", "whether the keys of its section count"),
      own("checkpoint.enable_checkpoint", "older name of the same"),
      own("checkpoint.folder", "`checkpoint.folder`, in `job.dump_folder`"),
      own("checkpoint.interval", "`checkpoint.interval`"),
      own("checkpoint.interval_type", "`steps`; with `seconds` checkpoints are refused"),
      own("training.checkpoint_folder", "older name of `checkpoint.folder`; empty = none"),
      own("training.checkpoint_interval", "older name of `checkpoint.interval`"),
      own("training.checkpoint_interval_type", "older name of `checkpoint.interval_type`"),
      only("checkpoint.initial_load_path", "",
           "set model.from to a Hugging Face folder, checkpoint.from to a checkpoint of ours, or "
           "resume in checkpoint.folder"),
      idle("checkpoint.initial_load_model_only", kSaving),
      idle("checkpoint.initial_load_in_hf", kSaving),
      idle("checkpoint.initial_load_in_hf_quantized", kSaving),
      idle("checkpoint.model_weights_only", "--export FOLDER writes the weights alone"),
      idle("checkpoint.last_save_model_weights_only", "--export FOLDER writes the weights alone"),
      idle("checkpoint.last_save_model_only", "--export FOLDER writes the weights alone"),
      idle("checkpoint.last_save_in_hf", "--export FOLDER writes for Hugging Face"),
      idle("checkpoint.export_dtype", "export.dtype is the format of --export"),
      idle("checkpoint.async_mode", kSaving),
      idle("checkpoint.keep_latest_k", "all checkpoints are kept"),
      only("checkpoint.load_step", "-1", "the latest checkpoint is loaded"),
      only("checkpoint.load_only", "false", "a training saves where it loads from"),
      only("checkpoint.exclude_from_loading", "", "a checkpoint is loaded whole", kEmptyList),
      idle("checkpoint.enable_first_step_checkpoint", kSaving),
      only("checkpoint.create_seed_checkpoint", "false",
           "any number of ranks begins with the same weights; set it to false"),
  };
}

Table recomputation() {
  return {
      own("activation_checkpoint.mode",
          "`training.activation_checkpoint`; `full` is `block`, `selective` as its option says"),
      own("activation_checkpoint.selective_ac_option",
          "`op` is `operations`, n is `training.checkpoint_every`"),
      idle("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
           "`op` keeps every second product, whatever its shape"),
      idle("activation_checkpoint.early_stop", "a block is computed again as a whole"),
      idle("activation_checkpoint.preserve_rng_state", "there is no randomness in a block"),
      idle("activation_checkpoint.determinism_check", kHow),
      idle("activation_checkpoint.debug", kPrinting),
      idle("activation_checkpoint.visualize_memory_budget_pareto", kPrinting),
      own("compile.enable", kCompiling),
      own("compile.components", "what `compile.enable` is of: `model`, `loss`"),
      idle("compile.backend", kCompiled),
      own("memory_estimation.enabled", "changes nothing; `unshard-estimate` estimates"),
      own("memory_estimation.disable_fake_mode",
          "of `unshard-estimate`: real ranks on this machine, with bytes"),
  };
}

Table number_formats() {
  Table table = {
      own("float8.enable_float8_linear", kFloat8),
      own("float8.enable_fsdp_float8_all_gather", kFloat8Option),
      idle("float8.precompute_float8_dynamic_scale_for_fsdp", kScales),
      idle("float8.force_recompute_fp8_weight_in_bwd", "backward always rounds a weight again"),
      own("float8.recipe_name", kFloat8Option),
      own("float8.filter_fqns", kFloat8Option),
      own("float8.emulate", kFloat8Option),
      idle("float8.moe_fqns", kQuantizing),
      idle("float8.moe_fqns_prototype", kQuantizing),
      idle("float8.scaling_type_input", kQuantizing),
      idle("float8.scaling_type_weight", kQuantizing),
      idle("float8.scaling_type_grad_output", kQuantizing),
      idle("mx.filter_fqns", kQuantizing),
      idle("mx.recipe_name", kQuantizing),
      idle("mx.moe_fqns_prototype", kQuantizing),
      idle("mx.use_fp8_dim1_cast_triton_kernel", kQuantizing),
      idle("mx.mxfp8_dim1_cast_kernel_choice", kQuantizing),
  };
  // The places of the same options since converters have sections of their own.
  for (const std::string layer : {"linear", "dense", "grouped_mm", "moe"}) {
    const std::string section = "quantize." + layer + ".";
    const bool is_here = layer == "linear" || layer == "dense";  // the others are of experts
    for (const char* name : {"float8.enable_fsdp_float8_all_gather", "float8.recipe_name",
                             "float8.filter_fqns", "float8.emulate"}) {
      const std::string path = section + name;
      table.push_back(is_here ? own(path.c_str(), kFloat8Option) : idle(path.c_str(), kNoExperts));
    }
    for (const char* name :
         {"float8.precompute_float8_dynamic_scale_for_fsdp", "float8.fqns", "mx.recipe_name",
          "mx.filter_fqns", "mx.mxfp8_dim1_cast_kernel_choice", "mx.fqns"}) {
      const bool is_scale = std::string_view(name).starts_with("float8.pre");
      table.push_back(idle((section + name).c_str(), is_scale ? kScales : kQuantizing));
    }
  }
  return table;
}

Table others() {
  return {
      idle("comm.init_timeout_seconds", kTimeouts),
      idle("comm.train_timeout_seconds", kTimeouts),
      idle("comm.trace_buf_size", kTimeouts),
      idle("comm.save_traces_folder", kTimeouts),
      idle("comm.save_traces_file_prefix", kTimeouts),
      only("comm.mode", "default", "ranks exchange what they compute; set it to default"),
      only("fault_tolerance.enable", "false", kNoFaults),
      only("fault_tolerance.semi_sync_method", "",
           "gradients are reduced in every step; leave it out"),
      idle("fault_tolerance.process_group", kNoFaults),
      idle("fault_tolerance.process_group_timeout_ms", kNoFaults),
      idle("fault_tolerance.replica_id", kNoFaults),
      only("fault_tolerance.group_size", "0", kNoFaults),
      idle("fault_tolerance.min_replica_size", kNoFaults),
      idle("fault_tolerance.sync_steps", kNoFaults),
      idle("fault_tolerance.num_fragments", kNoFaults),
      only("fault_tolerance.should_quantize", "false", kNoFaults),
      idle("fault_tolerance.fragment_sync_delay", kNoFaults),
      idle("fault_tolerance.fragment_update_alpha", kNoFaults),
      idle("fault_tolerance.module_fqns_per_model_fragment", kNoFaults),
      only("liger_kernel.enable_fused_linear_cross_entropy", "false",
           "the loss is computed from whole logits; set it to false"),
      idle("validation.enable", kValidating),
      idle("validation.enabled", kValidating),
      idle("validation.dataset", kValidating),
      idle("validation.dataset_path", kValidating),
      idle("validation.local_batch_size", kValidating),
      idle("validation.seq_len", kValidating),
      idle("validation.freq", kValidating),
      idle("validation.steps", kValidating),
  };
}

}  // namespace

const std::vector<Row>& rows() {
  static const Table table =
      foreign::joined({job(), model(), optimizer(), training(), parallelism(), checkpoint(),
                       recomputation(), number_formats(), others()});
  return table;
}

}  // namespace fsdp::config::titan
