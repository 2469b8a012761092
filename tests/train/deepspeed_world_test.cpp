// Kinds of DeepSpeed configurations that people have, as they are.
#include "base/check.h"
#include "config/explain.h"
#include "support/catch.h"
#include "train/deepspeed_files.h"
#include "train/some_text.h"
#include "train/trainer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train::deepspeed_world_test {
namespace {

using Words = std::vector<std::string>;

// Of a machine whose ranks have a host beside them.
config::TrainConfig load_modeled(const std::string& json, const Words& words = {},
                                 const std::string& toml = "") {
  const testing::TemporaryFolder folder;
  io::write_text_atomically(folder / "ds.json", json);
  std::optional<std::filesystem::path> ours;
  if (!toml.empty()) io::write_text_atomically(*(ours = folder / "run.toml"), toml);
  return config::load_config(ours, words, folder / "ds.json", {.is_modeled = true});
}

std::string complaint_about_modeled(const std::string& json, const std::string& toml = "") {
  return message_of<InputError>([&] { load_modeled(json, {}, toml); });
}

// Whether a remark says this of a key.
bool is_noted(const config::TrainConfig& config, const std::string& part) {
  return std::ranges::any_of(config.remarks, [&](const std::string& each) {
    return each.find(part) != std::string::npos;
  });
}

std::string stage3(const std::string& more) {
  return R"({"zero_optimization": {"stage": 3, )" + more + "}}";
}

const std::string kBoth = R"("offload_optimizer": {"device": "cpu", "pin_memory": true}, )"
                          R"("offload_param": {"device": "cpu"})";

}  // namespace

TEST_CASE("offload in a DeepSpeed file is a note on a CPU, and changes no bit",
          "[config][train][deepspeed]") {
  const std::vector<std::string> files = {
      stage3(kBoth), stage3(R"("cpu_offload": true)"), stage3(R"("cpu_offload_params": true)"),
      R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})"};
  const Words words = {"--model.preset=nano", "--model.vocab_size=127", "--training.seq_len=7",
                       "--training.steps=2", "--parallel.ranks=2"};
  const std::string bits = run_training(load_deepspeed("{}", words), some_text()).param_sha256;
  for (const std::string& json : files) {
    INFO(json);
    const config::TrainConfig config = load_deepspeed(json, words);
    CHECK_FALSE(config.recipe.sharding.offload.is_on());
    CHECK(is_noted(config, "has no effect here: device and host are one memory on a CPU"));
    CHECK(run_training(config, some_text()).param_sha256 == bits);
  }
  // Our own key says what it means.
  CHECK_THAT(complaint_about_deepspeed(stage3(kBoth), {"--parallel.offload_params=true"}),
             contains("command line: parallel.offload_params: is true, but ranks compute on the"));
}

TEST_CASE("offload of parameters and of optimizer state are looked at apart",
          "[config][deepspeed]") {
  const config::TrainConfig both = load_modeled(stage3(kBoth));
  CHECK(both.recipe.sharding.offload.params);
  CHECK_FALSE(both.recipe.sharding.offload.grads);
  const std::vector<std::string> neither = {
      R"("offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"})",
      R"("offload_optimizer": {}, "offload_param": null)", R"("cpu_offload": false)"};
  for (const std::string& each : neither) {
    INFO(each);
    CHECK_FALSE(load_modeled(stage3(each)).recipe.sharding.offload.params);
  }
  const std::string none =
      R"("offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"})";
  for (const std::string& each : {none, std::string(R"("cpu_offload": true)")}) {
    INFO(each);
    CHECK_THAT(complaint_about_deepspeed(stage3(each), {"--training.device=cuda"}),
               contains("but offload_param is not"));
    // A file of ours means both.
    CHECK_THAT(complaint_about_modeled(stage3(each), "[parallel]\noffload_params = true\n"),
               contains("but offload_param is not"));
    // An estimate may be of DeepSpeed's engine, which can do so.
    CHECK_THAT(load_modeled(stage3(each)).deepspeed.keeps_shards,
               contains("but offload_param is not"));
  }
  CHECK_THAT(complaint_about_modeled(stage3(R"("offload_param": {"device": "cpu"})")),
             contains("offload_param.device: is \"cpu\", but offload_optimizer is not"));
  CHECK_FALSE(load_modeled(R"({"zero_optimization": {"stage": 0, "cpu_offload": true}})")
                  .recipe.sharding.offload.params);
  // A part of the optimizer, which DeepSpeed's stage 3 alone knows.
  const std::string ratio = R"("offload_optimizer": {"device": "cpu", "ratio": )";
  CHECK_THAT(complaint_about_modeled(stage3(ratio + "0.3}")),
             contains("ds.json:1: zero_optimization.offload_optimizer.ratio: is 0.3, must be 1: "
                      "another would leave a part of the optimizer on the card"));
  CHECK_NOTHROW(load_modeled(stage3(ratio + "1.0}")));
  CHECK_NOTHROW(load_modeled("{\"zero_optimization\": {\"stage\": 2, " + ratio + "0.3}}}"));
  // The command line counts more than the file.
  CHECK(load_modeled(stage3(none), {"--parallel.offload_params=true"})
            .recipe.sharding.offload.params);
  CHECK_FALSE(load_modeled(stage3(kBoth), {"--parallel.offload_params=false"})
                  .recipe.sharding.offload.params);
}

TEST_CASE("offload of stages 1 and 2 moves what the optimizer steps, and no parameters",
          "[config][deepspeed]") {
  const auto stage = [](int number, const std::string& more) {
    return R"({"zero_optimization": {"stage": )" + std::to_string(number) + ", " + more + "}}";
  };
  const std::string optimizer = R"("offload_optimizer": {"device": "cpu"})";
  for (const std::string& each : {optimizer, std::string(R"("cpu_offload": true)")}) {
    INFO(each);
    const config::TrainConfig one = load_modeled(stage(1, each));
    CHECK(one.recipe.strategy == optim::Strategy::zero1);
    CHECK(one.recipe.sharding.offload.optimizer);
    CHECK_FALSE(one.recipe.sharding.offload.grads);
    const config::TrainConfig two = load_modeled(stage(2, each));
    CHECK(two.recipe.strategy == optim::Strategy::zero2);
    CHECK(two.recipe.sharding.offload.optimizer);
    CHECK(two.recipe.sharding.offload.grads);
    CHECK_FALSE(two.recipe.sharding.offload.params);
  }
  for (const char* each :
       {R"("offload_optimizer": {"device": "none"})", R"("cpu_offload": false)"}) {
    CHECK_FALSE(load_modeled(stage(2, each)).recipe.sharding.offload.is_on());
  }
  const char* why =
      "is \"cpu\", but with stage 2 each forward reads whole parameters on every rank; "
      "use stage 3, or offload_optimizer alone";
  CHECK_THAT(complaint_about_modeled(stage(2, kBoth)), contains(why));
  CHECK_THAT(complaint_about_modeled(stage(2, R"("offload_param": {"device": "cpu"})")),
             contains(why));
  // The command line counts more than the file.
  CHECK_FALSE(load_modeled(stage(2, optimizer), {"--parallel.offload_optimizer=false"})
                  .recipe.sharding.offload.is_on());
  const config::TrainConfig sums_on_device =
      load_modeled(stage(2, optimizer), {"--parallel.offload_grads=false"});
  CHECK(sums_on_device.recipe.sharding.offload.optimizer);
  CHECK_FALSE(sums_on_device.recipe.sharding.offload.grads);
}

TEST_CASE("fields of stage 3 are known without their prefix, and bf16 by its old name",
          "[config][deepspeed]") {
  const config::TrainConfig config =
      load_deepspeed(stage3(R"("gather_16bit_weights_on_model_save": true,
                               "max_live_parameters": 1e9, "stage3_allgather_sequential": false,
                               "log_trace_cache_warnings": true, "enable_sanity_checks": true,
                               "pipeline_loading_checkpoint": false)"));
  CHECK(config.remarks.size() == 6);
  CHECK(load_deepspeed(R"({"bfloat16": {"enabled": true}})").recipe.precision.param_dtype ==
        DType::bfloat16);
  const config::TrainConfig newer =
      load_deepspeed(R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": false}})");
  CHECK(newer.recipe.precision.param_dtype == DType::float32);
  CHECK(is_noted(newer, "bfloat16.enabled: has no effect here: the section bf16 counts more"));
}

TEST_CASE("keys that change no number are noted, whatever their value", "[config][deepspeed]") {
  const std::vector<std::string> files = {
      R"({"disable_allgather": true})",
      R"({"dump_state": true})",
      R"({"fp16": {"enabled": true, "auto_cast": true}})",
      R"({"aio": {"block_size": 8388608, "queue_depth": 32}})",
      R"({"activation_checkpointing": {"partition_activations": true}})",
      R"({"flops_profiler": {"enabled": true, "profile_step": 5}})",
      R"({"comms_logger": {"enabled": true}})",
      R"({"wandb": {"enabled": true, "project": "a"}})",
      R"({"compile": {"deepcompile": true}})",
      R"({"_comment": "mine", "monitor_config": {"enabled": true}})",
      R"({"log": {"steps_per_print": 50}, "cuda_visible_devices": 0})"};
  for (const std::string& json : files) {
    INFO(json);
    CHECK_FALSE(load_deepspeed(json).remarks.empty());
  }
  CHECK(is_noted(load_deepspeed(files[4]), "training.activation_checkpoint block"));
  const config::TrainConfig rare = load_deepspeed(R"({"steps_per_print": 20000000000000000})");
  CHECK(rare.log_freq == 1'000'000'000);
  CHECK(is_noted(rare, "steps_per_print: is 20000000000000000, and metrics.log_freq at most"));
}

TEST_CASE("a section that is switched off says nothing", "[config][deepspeed]") {
  const config::TrainConfig config = load_deepspeed(R"({
    "amp": {"enabled": "auto", "opt_level": "auto"},
    "autotuning": {"enabled": false, "fast": true},
    "torch_autocast": {"enabled": false, "dtype": "torch.bfloat16"},
    "data_efficiency": {"enabled": false, "data_routing": {"enabled": true}},
    "elasticity": {"enabled": false}, "comms_logger": {"enabled": false},
    "compression_training": {
      "weight_quantization": {"shared_parameters": {"enabled": false},
                              "different_groups": {"wq1": {"modules": ["a"]}}},
      "layer_reduction": {"enabled": false, "keep_number_layer": 5}},
    "flops_profiler": {"enabled": false, "enable": true},
    "bf16": {"enabled": false, "bf16_master_weights_and_grads": true, "loss_scale": 0},
    "tensorboard": {"enabled": false, "output_path": 5, "job": "a"},
    "fp16": {"enabled": false, "fp16_master_weights_and_grads": true, "loss_scal": 3}})");
  CHECK(config.remarks.empty());
  CHECK(config.recipe.precision.param_dtype == DType::float32);
  // The older name does not count beside the newer, and without an `enabled` it may be misspelled.
  CHECK(load_deepspeed(R"({"bf16": {"enabled": true},
                           "bfloat16": {"enabled": true, "bf16_optimizer_states": true}})")
            .recipe.precision.param_dtype == DType::bfloat16);
  CHECK(load_deepspeed(R"({"bf16": {"bf16_master_weights_and_grads": true}})")
            .recipe.precision.param_dtype == DType::float32);
  CHECK_THAT(complaint_about_deepspeed(R"({"bf16": {"enabledd": true}})"),
             contains("unknown key; did you mean bf16.enabled?"));
  CHECK_THAT(
      complaint_about_deepspeed(R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}})"),
      contains("bf16.bf16_optimizer_states: is true, must be false"));
}

TEST_CASE("one note lists all comments of a file", "[config][deepspeed]") {
  const config::TrainConfig config = load_deepspeed(R"({
    "_comment": "mine", "//": "a", "zero_optimization": {"stage": 2, "_why": {"a": 1}},
    "_train_batch_size": 32})");
  REQUIRE(config.remarks.size() == 1);
  CHECK_THAT(config.remarks[0],
             contains("ds.json: passed over as comments: _comment, //, zero_optimization._why, "
                      "_train_batch_size"));
}

TEST_CASE("a comment may stand where the parameters are checked", "[config][deepspeed]") {
  const config::TrainConfig config = load_deepspeed(R"({
    "optimizer": {"type": "AdamW", "//": "as in the paper",
                  "params": {"lr": 3e-4, "//betas": [0.8, 0.9], "_comment": {"a": 1}}},
    "scheduler": {"type": "WarmupLR", "params": {"_note": 1, "warmup_num_steps": 5}}})");
  CHECK(config.schedule.lr == 3e-4);
  CHECK(config.recipe.optimizer.options.beta2 == 0.999);
  CHECK(is_noted(config,
                 "passed over as comments: optimizer.//, optimizer.params.//betas, "
                 "optimizer.params._comment, scheduler.params._note"));
}

TEST_CASE("comments and a comma after the last value are read as Hjson has them",
          "[config][deepspeed]") {
  const config::TrainConfig config = load_deepspeed(
      "// a file of ours, {\"stage\": 1}\n"
      "{ # with \"quotes\n"
      "  /* \"bf16\": {\"enabled\": true},\n ** */ \"zero_optimization\": {\"stage\": 3.0,},\n"
      "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9, 0.95 , // two\n ], } "
      "},\n"
      "  \"tensorboard\": {\"enabled\": true, \"output_path\": \"/*a*/ //b#c\\\"\", },\n"
      "  \"steps_per_print\": 7, /**/\n"
      "} // the end");
  CHECK(config.recipe.strategy == optim::Strategy::fsdp);
  CHECK(config.recipe.optimizer.options.beta2 == 0.95);
  CHECK(config.recipe.precision.param_dtype == DType::float32);
  CHECK(config.tensorboard.starts_with("/*a*/ //b#c\""));
  CHECK(config.log_freq == 7);
  CHECK(config.origins.at("metrics.log_freq").ends_with("ds.json:8: steps_per_print"));
}

TEST_CASE("WarmupLR without a highest rate warms up to the optimizer's", "[config][deepspeed]") {
  const auto of = [](const std::string& optimizer, const std::string& type,
                     const std::string& params) {
    return load_deepspeed(R"({)" + optimizer + R"("scheduler": {"type": ")" + type +
                          R"(", "params": {)" + params + "}}}");
  };
  const std::string adamw = R"("optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}, )";
  const config::TrainConfig follows = of(adamw, "WarmupLR", R"("warmup_num_steps": 2)");
  CHECK(follows.schedule.lr == 3e-5);
  CHECK(follows.schedule.at(5) == 3e-5);
  CHECK(is_noted(follows, "the highest rate is the optimizer's, as in DeepSpeed since 0.17.5"));
  CHECK(of(R"("optimizer": {"type": "Adamax"}, )", "WarmupLR", "").schedule.lr == 0.002);
  CHECK(of(R"("optimizer": {"type": "SGD", "params": {"lr": "auto"}}, )", "WarmupLR", "")
            .schedule.lr == 5e-5);
  // WarmupDecayLR has kept its default.
  CHECK(
      of(adamw, "WarmupDecayLR", R"("total_num_steps": 100, "warmup_num_steps": 2)").schedule.lr ==
      1e-3);
}

TEST_CASE("tensorboard is written where DeepSpeed writes it", "[config][deepspeed]") {
  const auto folder_of = [](const std::string& section) {
    return load_deepspeed(R"({"tensorboard": {)" + section + "}}").tensorboard;
  };
  CHECK(folder_of(R"("enabled": true, "output_path": "logs/a", "job_name": "b")") == "logs/a/b");
  CHECK(folder_of(R"("enabled": true)") == "DeepSpeedJobName");
  CHECK(folder_of(R"("enabled": false, "output_path": "logs")").empty());
  CHECK(folder_of("").empty());
}

TEST_CASE("a csv_monitor is a metrics file where DeepSpeed writes its own", "[config][deepspeed]") {
  const auto file_of = [](const std::string& section) {
    return load_deepspeed(R"({"csv_monitor": {)" + section + "}}").metrics_file;
  };
  CHECK(file_of(R"("enabled": true, "output_path": "logs/a", "job_name": "b")") ==
        "logs/a/b/metrics.csv");
  CHECK(file_of(R"("enabled": true)") == "DeepSpeedJobName/metrics.csv");
  CHECK(file_of(R"("enabled": false, "output_path": "logs")").empty());
  CHECK(file_of("").empty());
  CHECK_THAT(complaint_about_deepspeed(R"({"csv_monitor": {"enabled": 1}})"),
             contains("csv_monitor.enabled"));
  CHECK(is_noted(load_deepspeed(R"({"wandb": {"enabled": true}})"), "metrics.tensorboard"));
}

}  // namespace fsdp::train::deepspeed_world_test
