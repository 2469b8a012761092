// Wrong DeepSpeed configurations: each message, whole.
#include "base/check.h"
#include "support/catch.h"
#include "train/deepspeed_files.h"

#include <string>
#include <vector>

namespace fsdp::train {
namespace {

struct Wrong {
  std::string json;
  std::string message;
};

const std::vector<Wrong> kWrong = {
    // No JSON, or not of this shape.
    {"", "ds.json: is empty; write a JSON object, or leave --deepspeed out"},
    {"{\n\"wall_clock_breakdown\": False\n}",
     "ds.json:2: not JSON, at \"\"wall_clock_breakdown\": False\"; JSON has true and false in "
     "lower case, texts in double quotes, and a comma between two values"},
    {"{\"bf16\": {\"enabled\": true},\n,}",
     "ds.json:2: not JSON, at \",}\"; JSON has true and false in lower case, texts in double "
     "quotes, and a comma between two values"},
    {"{/* a */ \"bf16\": {\"enabled\": true}\n/* b }",
     "ds.json:2: not JSON, at \"/* b }\"; JSON has true and false in lower case, texts in double "
     "quotes, and a comma between two values"},
    {"{\"bf16\": {,}}",
     "ds.json:1: not JSON, at \"{\"bf16\": {,}}\"; JSON has true and false in lower case, texts in "
     "double quotes, and a comma between two values"},
    {"[1]", "ds.json:1: is no JSON object; begin it with {"},
    {"{\n\"bf16\": true\n}",
     "ds.json:2: bf16: is true, must be a JSON object such as {\"enabled\": …}"},
    {"{\"bf16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": false}}",
     "ds.json:2: names \"bf16\" twice"},
    {"{\"zero_optimization.stage\": 2, \"zero_optimization\": {\"stage\": 3}}",
     "ds.json:1: zero_optimization.stage: is a name with a dot; write a section as a JSON object "
     "of "
     "its own"},
    {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\n\"warmup_num_steps\": -3}}}",
     "ds.json:2: scheduler.params.warmup_num_steps: lr_scheduler.warmup_steps: is -3, must be a "
     "whole number between 0 and 1000000000"},
    {"{\"gradient_clipping\": 1e999}",
     "ds.json:1: is not JSON: it holds a number beyond all bounds"},
    {"{\n\"x\": " + std::string(5000, '[') + std::string(5000, ']') + "}",
     "ds.json:2: is nested more than 64 deep, which no file of its kind needs"},
    // Keys that are not known.
    {"{\n\"train_batchsize\": 16\n}",
     "ds.json:2: train_batchsize: unknown key; did you mean train_batch_size? docs/deepspeed.md "
     "lists all keys that are known here"},
    {"{\"zero_optimization\": {\n\"stge\": 2}}",
     "ds.json:2: zero_optimization.stge: unknown key; did you mean zero_optimization.stage? "
     "docs/deepspeed.md lists all keys that are known here"},
    {"{\"optimizr\": {\"type\": \"Adam\"},\n\"Zero_optimisation \": {\"stage\": "
     "3},\n\"schedular\": "
     "{},\n\"float16\": {}}",
     "ds.json:1: optimizr: unknown key; did you mean optimizer? docs/deepspeed.md lists all keys "
     "that are known here\nds.json:2: Zero_optimisation : unknown key; did you mean "
     "zero_optimization? docs/deepspeed.md lists all keys that are known here\nds.json:3: "
     "schedular: unknown key; did you mean scheduler? docs/deepspeed.md lists all keys that are "
     "known here\nds.json:4: float16: unknown key; did you mean bfloat16? docs/deepspeed.md lists "
     "all keys that are known here"},
    {"{\"stage\": 2}",
     "ds.json:1: stage: unknown key; did you mean zero_optimization.stage? docs/deepspeed.md "
     "lists all keys that are known here"},
    {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"beta\": 0.9}}}",
     "ds.json:1: optimizer.params.beta: unknown key; did you mean optimizer.params.betas? "
     "docs/deepspeed.md lists all keys that are known here"},
    // Batches.
    {"{\"train_batch_size\": 16,\n\"train_micro_batch_size_per_gpu\": "
     "3,\n\"gradient_accumulation_steps\": 2}",
     "ds.json:1: train_batch_size: is 16, but train_micro_batch_size_per_gpu 3 x "
     "gradient_accumulation_steps 2 x parallel.ranks 2 = 12; change one of them, or leave one out"},
    {"{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 3}",
     "ds.json:1: train_batch_size: is 16, must be a multiple of train_micro_batch_size_per_gpu 3 "
     "x parallel.ranks 2 = 6, such as 12 or 18"},
    {"{\"train_batch_size\": 15}",
     "ds.json:1: train_batch_size: is 15, must be a multiple of parallel.ranks 2, such as 14 or "
     "16"},
    {"{\"gradient_accumulation_steps\": 4}",
     "ds.json:1: gradient_accumulation_steps: is 4, but neither train_batch_size nor "
     "train_micro_batch_size_per_gpu is given; give one of them"},
    {"{\"train_batch_size\": 2.5}",
     "ds.json:1: train_batch_size: is 2.5, must be a whole number between 1 and 1000000000"},
    {"{\"prescale_gradients\": \"auto\",\n\"zero_optimization\": {\"stage\": \"auto\"}}",
     "ds.json:1: prescale_gradients: is \"auto\", which Hugging Face's Trainer replaces with its "
     "own arguments; write a value, or give --training.prescale_gradients or the same key in the "
     "TOML file\nds.json:2: zero_optimization.stage: is \"auto\", which Hugging Face's Trainer "
     "replaces with its own arguments; write a value, or give --parallel.strategy or the same key "
     "in the TOML file"},
    {"{\"train_micro_batch_size_per_gpu\": 1000000, \"gradient_accumulation_steps\": 1000000}",
     "ds.json:1: gradient_accumulation_steps: train_micro_batch_size_per_gpu 1000000 x "
     "gradient_accumulation_steps 1000000 x parallel.ranks 2 = 2000000000000 sequences in a "
     "step; use at most 1000000000"},
    // Optimizers and schedules.
    {"{\"optimizer\": {\"params\": {\"lr\": 0.1}}}",
     "ds.json: optimizer.type: is missing; write one of Adam, AdamW, Adamax, Adagrad, Adadelta, "
     "SGD"},
    {"{\"optimizer\": {\"type\": \"Lamb\"}}",
     "ds.json:1: optimizer.type: is \"Lamb\", which is not supported: it scales the step of each "
     "parameter by a norm; use AdamW, or one of Adam, AdamW, Adamax, Adagrad, Adadelta, SGD"},
    {"{\"optimizer\": {\"type\": \"Rprop\"}}",
     "ds.json:1: optimizer.type: is \"Rprop\", must be one of Adam, AdamW, Adamax, Adagrad, "
     "Adadelta, SGD"},
    {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"momentum\": 0.9}}}",
     "ds.json:1: optimizer.params.momentum: AdamW has no such parameter; leave it out"},
    {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}}}",
     "ds.json:1: optimizer.params.adam_w_mode: is false, which DeepSpeed ignores for AdamW; "
     "leave it out, or use Adam for a decay that is added to the gradient"},
    {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": 0.9}}}",
     "ds.json:1: optimizer.params.betas: is 0.9, must be two numbers such as [0.9, 0.999]"},
    {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, 1.5]}}}",
     "ds.json:1: optimizer.params.betas: optimizer.beta2: is 1.5, must be a number between 0 and "
     "0.9999999"},
    {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"amsgrad\": true}}}",
     "ds.json:1: optimizer.params.amsgrad: is true, must be false: use Adam or AdamW without it"},
    {"{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"max_grad_norm\": 1}}}",
     "ds.json:1: optimizer.params.max_grad_norm: is not supported: use gradient_clipping instead"},
    {"{\"optimizer\": {\"type\": \"OnebitAdam\", \"params\": {\"freeze_step\": 400}}}",
     "ds.json:1: optimizer.type: is \"OnebitAdam\", which is not supported: it sends momentum in "
     "one bit, which changes numbers; use AdamW, or one of Adam, AdamW, Adamax, Adagrad, Adadelta, "
     "SGD"},
    {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"freeze_step\": 400}}}",
     "ds.json:1: optimizer.params.freeze_step: AdamW has no such parameter; leave it out"},
    {"{\"scheduler\": {\"type\": \"OneCycle\"}}",
     "ds.json:1: scheduler.type: is \"OneCycle\", which no schedule here equals; leave the section "
     "out for the nearest: lr_scheduler.kind warmup_stable_linear"},
    {"{\"scheduler\": {\"type\": \"Cosine\"}}",
     "ds.json:1: scheduler.type: is \"Cosine\", must be one of WarmupLR, WarmupDecayLR; leave "
     "the section out for others, which lr_scheduler.kind names"},
    {"{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-5}}, \"scheduler\": "
     "{\n\"type\": "
     "\"WarmupCosineLR\", \"params\": {\"total_num_steps\": 100, \"warmup_min_ratio\": 0.1, "
     "\"warmup_num_steps\": 10, \"cos_min_ratio\": 0.01, \"warmup_type\": \"linear\"}}}",
     "ds.json:2: scheduler.type: is \"WarmupCosineLR\", which no schedule here equals; leave the "
     "section out for the nearest: lr_scheduler.kind warmup_cosine, with a linear warm-up and a "
     "decay that begins one step later, and lr_scheduler.min_lr cos_min_ratio (0.0001 if it is "
     "left "
     "out) times the optimizer's lr"},
    {"{\"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
     "ds.json:1: scheduler.type: WarmupDecayLR needs scheduler.params.total_num_steps; write a "
     "number, or \"auto\" for training.steps"},
    {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": 9}}}",
     "ds.json:1: scheduler.params.total_num_steps: WarmupLR has no such parameter; leave it out"},
    {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"cubic\"}}}",
     "ds.json:1: scheduler.params.warmup_type: is \"cubic\", must be one of log, linear"},
    {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.5}}}",
     "ds.json:1: scheduler.params.warmup_min_lr: lr_scheduler.min_lr: is 0.5, more than "
     "optimizer.lr 0.001; use at most that"},
    // Formats.
    {"{\"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}",
     "ds.json:2: bf16.enabled: is true, but fp16.enabled is true as well; enable one of them"},
    {"{\"fp16\": {\"enabled\": 1}}", "ds.json:1: fp16.enabled: is 1, must be true or false"},
    {"{\"fp16\": {\"enabled\": true, \"loss_scale\": 1000}}",
     "ds.json:1: fp16.loss_scale: is 1000, must be a power of two, such as 1024"},
    {"{\"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}}",
     "ds.json:1: fp16.fp16_master_weights_and_grads: is true, must be false: masters are in "
     "float32"},
    {"{\"communication_data_type\": \"fp8\"}",
     "ds.json:1: communication_data_type: is \"fp8\", must be one of fp32, fp16, bf16, bfp16, "
     "float32, float16, bfloat16, float, half"},
    {"{\"communication_data_type\": \"fp16\", \"data_types\": {\"grad_accum_dtype\": \"fp32\"}}",
     "ds.json:1: data_types.grad_accum_dtype: is \"fp32\", but communication_data_type is "
     "\"fp16\": gradients are added up in the format in which they travel; use one format for "
     "both"},
    // ZeRO.
    {"{\"zero_optimization\": {\"stage\": 4}}",
     "ds.json:1: zero_optimization.stage: is 4, must be 0, 1, 2 or 3"},
    {"{\"zero_optimization\": {\"stage\": \"3\"}}",
     "ds.json:1: zero_optimization.stage: is \"3\", must be 0, 1, 2 or 3"},
    {"{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\"}}}",
     "ds.json:1: zero_optimization.offload_optimizer.device: is \"nvme\", and nothing is kept on "
     "such a disk here; use \"cpu\" or \"none\""},
    {"{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"gpu\"}}}",
     "ds.json:1: zero_optimization.offload_param.device: is \"gpu\", must be one of none, cpu"},
    {"{\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": true,\n\"offload_optimizer\": "
     "{\"device\": \"none\"}}}",
     "ds.json:1: zero_optimization.cpu_offload: is true, but "
     "zero_optimization.offload_optimizer.device is \"none\"; leave one of them out"},
    {"{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true}}",
     "ds.json:1: zero_optimization.zero_quantized_weights: is true, must be false: parameters "
     "and gradients travel unquantized"},
    {"{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8}}",
     "ds.json:1: zero_optimization.zero_hpz_partition_size: is 8, must be 1: set "
     "parallel.reshard_after_forward to a number of ranks instead"},
    {"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2}}",
     "ds.json:1: zero_optimization.mics_shard_size: is 2, must be -1: set "
     "parallel.data_parallel_replicate_degree to ranks / shards instead"},
    // What has no place here, and values out of range.
    {"{\"tensor_parallel\": {\"autotp_size\": 4}}",
     "ds.json:1: tensor_parallel.autotp_size: is 4, must be 0: there is no tensor parallelism"},
    {"{\"elasticity\": {\"enabled\": true, \"min_gpus\": 1}}",
     "ds.json:1: elasticity: is not supported: a checkpoint loads on any number of ranks: start "
     "again with another --ranks"},
    {"{\"compression_training\": {\"weight_quantization\": {\"shared_parameters\": {\"enabled\": "
     "true}}}}",
     "ds.json:1: compression_training: is not supported: the model is trained as it is; leave it "
     "out"},
    {"{\"tensorboard\": {\"enabled\": true, \"output_path\": 3}}",
     "ds.json:1: tensorboard.output_path: is 3, must be a text"},
    {"{\"sparse_attention\": {\"mode\": \"fixed\"}}",
     "ds.json:1: sparse_attention: is not supported: attention is dense; leave it out"},
    {"{\"gradient_predivide_factor\": 2}",
     "ds.json:1: gradient_predivide_factor: is 2, must be 1: prescale_gradients chooses its "
     "factor by itself"},
    {"{\"gradient_clipping\": -1}",
     "ds.json:1: gradient_clipping: training.max_norm: is -1, must be a number between 0 and "
     "1e+30"},
    {"{\"gradient_clipping\": \"one\"}",
     "ds.json:1: gradient_clipping: training.max_norm: is \"one\", must be a number between 0 "
     "and 1e+30"},
    {"{\"steps_per_print\": 0}",
     "ds.json:1: steps_per_print: metrics.log_freq: is 0, must be a whole number between 1 and "
     "1000000000"},
};

}  // namespace

TEST_CASE("a wrong DeepSpeed configuration says where, what and what to do",
          "[config][deepspeed]") {
  for (const auto& [json, message] : kWrong) {
    CAPTURE(json);
    CHECK(complaint_about_deepspeed(json, {"--parallel.ranks=2"}) == message);
  }
}

TEST_CASE("a file that is not there is named", "[config][deepspeed]") {
  CHECK_THAT(message_of<InputError>([] { config::load_config({}, {}, "no/such.json"); }),
             contains("no/such.json: cannot be read"));
}

TEST_CASE("what has no effect is accepted with a remark", "[config][deepspeed]") {
  const config::TrainConfig config = load_deepspeed(R"({
    "zero_allow_untested_optimizer": true,
    "flops_profiler": {"enabled": false, "profile_step": 5},
    "tensorboard": {},
    "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}})");
  REQUIRE(config.remarks.size() == 2);
  CHECK_THAT(config.remarks[0], contains("ds.json:2: zero_allow_untested_optimizer: has no effect "
                                         "here: every optimizer is tested with every stage"));
  CHECK_THAT(
      config.remarks[1],
      contains("ds.json:5: zero_optimization.stage3_max_live_parameters: has no effect here"));
}

}  // namespace fsdp::train
