// What a DeepSpeed configuration sets, and what it leaves to a TOML file and the command line.
#include "config/deepspeed/deepspeed.h"
#include "base/check.h"
#include "support/catch.h"
#include "train/deepspeed_files.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::train {
namespace {

using Words = std::vector<std::string>;
using Settings = std::map<std::string, std::string>;

// That `json` sets exactly these keys otherwise than an empty object does.
void check_sets(const std::string& json, const Settings& expected, const Words& words = {}) {
  INFO(json);
  const config::TrainConfig config = load_deepspeed(json, words);
  const config::TrainConfig empty = load_deepspeed("{}", words);
  Settings changed;
  for (const auto& [key, value] : config.settings) {
    if (value != empty.settings.at(key)) changed[key] = value;
  }
  CHECK(changed == expected);
}

Words ranks(int count) { return {"--parallel.ranks", std::to_string(count)}; }

}  // namespace

TEST_CASE("DeepSpeed's keys set ours", "[config][deepspeed]") {
  check_sets(R"({"steps_per_print": 5, "gradient_clipping": 0.5, "wall_clock_breakdown": true})",
             {{"metrics.log_freq", "5"},
              {"training.max_norm", "0.5"},
              {"metrics.wall_clock_breakdown", "true"}});
  check_sets(R"({"zero_optimization": {"stage": 0}})", {});
  check_sets(R"({"zero_optimization": {"stage": 1}})",
             {{"parallel.strategy", "zero1"}, {"parallel.zero_partition", "flat"}});
  check_sets(R"({"zero_optimization": {"stage": 2, "cpu_offload": false}})",
             {{"parallel.strategy", "zero2"}, {"parallel.zero_partition", "flat"}});
  check_sets(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "none"},
                 "offload_optimizer": null}})",
             {{"parallel.strategy", "fsdp"}});
  check_sets(R"({"bf16": {"enabled": true}})", {{"training.mixed_precision_param", "bfloat16"},
                                                {"training.mixed_precision_reduce", "bfloat16"}});
  check_sets(R"({"bf16": {"enabled": true}, "communication_data_type": "fp32"})",
             {{"training.mixed_precision_param", "bfloat16"}});
  check_sets(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})",
             {{"training.mixed_precision_param", "bfloat16"}});
  check_sets(R"({"communication_data_type": "bfp16"})",
             {{"training.mixed_precision_reduce", "bfloat16"}});
  check_sets(R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500,
                 "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 2,
                 "initial_scale_power": 15}})",
             {{"training.mixed_precision_param", "float16"},
              {"training.mixed_precision_reduce", "float16"},
              {"fp16.loss_scale_window", "500"},
              {"fp16.hysteresis", "3"},
              {"fp16.consecutive_hysteresis", "true"},
              {"fp16.min_loss_scale", "2"},
              {"fp16.initial_scale_power", "15"}});
  check_sets(R"({"fp16": {"enabled": false, "initial_scale_power": 15, "hysteresis": 7}})", {});
}

TEST_CASE("where DeepSpeed's file is silent, its defaults hold and not ours",
          "[config][deepspeed]") {
  const config::TrainConfig config = load_deepspeed("{}");
  CHECK(config.recipe.strategy == optim::Strategy::ddp);
  CHECK(config.recipe.clip == 0);
  CHECK(config::TrainConfig().recipe.clip != 0);
  CHECK_THAT(config.origins.at("training.max_norm"),
             contains("ds.json: gradient_clipping (DeepSpeed's default)"));
  CHECK(config.recipe.optimizer.options.weight_decay ==
        config::TrainConfig().recipe.optimizer.options.weight_decay);
  // They are weaker than a TOML file.
  const config::TrainConfig both = load_deepspeed("{}", {}, "[training]\nmax_norm = 2\n");
  CHECK(both.recipe.clip == 2);
}

TEST_CASE("every optimizer of DeepSpeed has DeepSpeed's defaults", "[config][deepspeed]") {
  const auto of = [](const std::string& optimizer) {
    const config::TrainConfig config = load_deepspeed(R"({"optimizer": )" + optimizer + "}");
    Settings settings;
    for (const auto& [key, value] : config.settings) {
      const bool is_read = key.starts_with("optimizer.") && config.recipe.optimizer.looks_at(key);
      if (is_read && key != "optimizer.decay_norms") settings[key.substr(10)] = value;
    }
    return settings;
  };
  const Settings adamw = {{"name", "adamw"},  {"lr", "0.001"},  {"beta1", "0.9"},
                          {"beta2", "0.999"}, {"eps", "1e-08"}, {"weight_decay", "0"}};
  CHECK(of(R"({"type": "AdamW"})") == adamw);
  CHECK(of(R"({"type": "Adam"})") == adamw);  // so does DeepSpeed
  Settings adam = adamw;
  adam["name"] = "adam";
  CHECK(of(R"({"type": "Adam", "params": {"adam_w_mode": false}})") == adam);
  CHECK(of(R"({"type": "adam", "params": {"adam_w_mode": false, "torch_adam": true}})") == adam);
  Settings torch = adamw;
  torch["weight_decay"] = "0.01";
  CHECK(of(R"({"type": "AdamW", "params": {"torch_adam": true}})") == torch);
  CHECK(of(R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": false}})") ==
        Settings{{"name", "sgd"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0"}});
  CHECK(of(R"({"type": "Adamax"})") == Settings{{"name", "adamax"},
                                                {"lr", "0.002"},
                                                {"beta1", "0.9"},
                                                {"beta2", "0.999"},
                                                {"eps", "1e-08"},
                                                {"weight_decay", "0"}});
  CHECK(of(R"({"type": "Adagrad", "params": {"lr_decay": 0.5}})") ==
        Settings{{"name", "adagrad"},
                 {"lr", "0.01"},
                 {"eps", "1e-10"},
                 {"weight_decay", "0"},
                 {"lr_decay", "0.5"},
                 {"initial_accumulator_value", "0"}});
  CHECK(of(R"({"type": "Adadelta", "params": {"rho": 0.8}})") == Settings{{"name", "adadelta"},
                                                                          {"lr", "1"},
                                                                          {"eps", "1e-06"},
                                                                          {"weight_decay", "0"},
                                                                          {"rho", "0.8"}});
  CHECK(of(R"({"type": "Adam", "params": {"lr": 0.002, "betas": [0.8, 0.99], "eps": 1e-6,
               "weight_decay": 3e-7}})") == Settings{{"name", "adamw"},
                                                     {"lr", "0.002"},
                                                     {"beta1", "0.8"},
                                                     {"beta2", "0.99"},
                                                     {"eps", "1e-06"},
                                                     {"weight_decay", "3e-07"}});
}

TEST_CASE("DeepSpeed's schedules give the rates that it computes", "[config][deepspeed]") {
  const auto of = [](const std::string& type, const std::string& params) {
    return load_deepspeed(R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params +
                          "}}}");
  };
  const auto near = [](double value, double expected) {
    INFO(value << " should be " << expected);
    CHECK(std::abs(value - expected) < 1e-9);
  };
  // ln(10) / ln(1000) and ln(500) / ln(1000), times 1e-3: all of it DeepSpeed's defaults.
  const config::TrainConfig log = of("WarmupLR", "");
  CHECK(log.schedule.at(0) == 0);
  near(log.schedule.at(9), 1e-3 / 3);
  near(log.schedule.at(499), 8.996567e-4);
  CHECK(log.schedule.at(1000) == 1e-3);
  CHECK(log.schedule.at(1000000) == 1e-3);
  const config::TrainConfig linear =
      of("WarmupLR", R"("warmup_type": "linear", "warmup_num_steps": 10,
                                               "warmup_min_lr": 0.1, "warmup_max_lr": 1.1)");
  near(linear.schedule.at(0), 0.1);
  near(linear.schedule.at(3), 0.4);
  near(linear.schedule.at(10), 1.1);
  const config::TrainConfig decay =
      of("WarmupDecayLR", R"("warmup_num_steps": 10, "total_num_steps": 30,
                                                   "warmup_min_lr": 0.1, "warmup_max_lr": 1.1)");
  near(decay.schedule.at(4), 0.1 + std::log(5.0) / std::log(10.0));
  near(decay.schedule.at(10), 1.1);
  near(decay.schedule.at(15), 0.1 + 15.0 / 20);
  near(decay.schedule.at(30), 0.1);
  near(decay.schedule.at(99), 0.1);
  const config::TrainConfig short_one = of("WarmupDecayLR", R"("warmup_type": "linear",
                                   "warmup_num_steps": 0, "total_num_steps": "auto")");
  CHECK(short_one.schedule.warmup_steps == 2);  // as DeepSpeed does
  CHECK(short_one.schedule.total_steps == short_one.training.steps);
  near(short_one.schedule.at(1), 0.5e-3);
  // WarmupLR has no end: a warm-up may be longer than the file's, or DeepSpeed's 1000 steps.
  for (const char* params : {"", R"("warmup_num_steps": 100)", R"("warmup_num_steps": "auto")"}) {
    INFO(params);
    const config::TrainConfig longer = load_deepspeed(
        R"({"scheduler": {"type": "WarmupLR", "params": {)" + std::string(params) + "}}}",
        {"--lr_scheduler.warmup_steps", "5000"});
    CHECK(longer.schedule.warmup_steps == 5000);
  }
  // The schedule sets the rate, whatever the optimizer says; and that is said.
  const config::TrainConfig other =
      load_deepspeed(R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}},
                         "scheduler": {"type": "WarmupDecayLR",
                                       "params": {"total_num_steps": 2000}}})");
  CHECK(other.schedule.lr == 1e-3);
  CHECK_THAT(other.remarks.at(0), contains("ds.json:1: optimizer.params.lr: has no effect here: "
                                           "0.001, the default of scheduler.params.warmup_max_lr, "
                                           "is the highest rate"));
}

TEST_CASE("two of batch, micro-batch and accumulation give the third", "[config][deepspeed]") {
  struct Case {
    const char* json;
    int ranks;
    std::int64_t local, global, steps;
  };
  const std::vector<Case> cases = {
      {R"({"train_batch_size": 24})", 1, 24, 24, 1},
      {R"({"train_batch_size": 24})", 3, 8, 24, 1},
      {R"({"train_micro_batch_size_per_gpu": 4})", 2, 4, 8, 1},
      {R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2})", 3, 2, 24, 4},
      {R"({"train_batch_size": 24, "gradient_accumulation_steps": 2})", 4, 3, 24, 2},
      {R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 5})", 3, 2, 30, 5},
      {R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2,
           "gradient_accumulation_steps": 3})",
       4, 2, 24, 3},
      {R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2,
           "gradient_accumulation_steps": 3})",
       4, 2, 24, 3},
  };
  for (const Case& each : cases) {
    INFO(each.json << " W=" << each.ranks);
    const config::TrainConfig config = load_deepspeed(each.json, ranks(each.ranks));
    CHECK(config.training.local_batch_size == each.local);
    CHECK(config.training.global_batch_size == each.global);
    CHECK(config.recipe.plan().micro_steps == each.steps);
  }
  // What the file leaves open, others may say.
  const config::TrainConfig open =
      load_deepspeed(R"({"train_batch_size": 24})", ranks(2), "[training]\nlocal_batch_size = 3\n");
  CHECK(open.training.local_batch_size == 3);
  CHECK(open.recipe.micro_steps == 4);
  const config::TrainConfig said = load_deepspeed(R"({"gradient_accumulation_steps": 4})", ranks(2),
                                                  "[training]\nlocal_batch_size = 3\n");
  CHECK(said.training.global_batch_size == 24);
  // The command line counts more than both.
  const config::TrainConfig decided =
      load_deepspeed(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
                     {"--parallel.ranks=2", "--training.local_batch_size=3"});
  CHECK(decided.training.global_batch_size == 12);
}

TEST_CASE("two files that say different things are refused, and the command line decides",
          "[config][deepspeed]") {
  const std::string json = "{\n\"gradient_clipping\": 1.0,\n\"zero_optimization\": {\"stage\": 2}}";
  CHECK(complaint_about_deepspeed(json, {}, "[training]\nmax_norm = 2.0") ==
        "run.toml:2: training.max_norm: is 2, but ds.json:2: gradient_clipping makes it 1; leave "
        "one of them out, or decide with --training.max_norm");
  CHECK(complaint_about_deepspeed(json, {}, "[parallel]\nranks = 2\nstrategy = \"fsdp\"") ==
        "run.toml:3: parallel.strategy: is fsdp, but ds.json:3: zero_optimization.stage makes it "
        "zero2; leave one of them out, or decide with --parallel.strategy");
  CHECK(complaint_about_deepspeed(json, {}, "[training]\nmax_norm = 1\nsteps = 3").empty());
  CHECK(complaint_about_deepspeed(json, {"--training.max_norm=3"}, "[training]\nmax_norm = 2")
            .empty());
  const config::TrainConfig config = load_deepspeed(json, {"--training.max_norm=3"});
  CHECK(config.recipe.clip == 3);
  CHECK(config.origins.at("training.max_norm") == "command line");
  CHECK_THAT(config.origins.at("parallel.strategy"),
             contains("ds.json:3: zero_optimization.stage"));
}

TEST_CASE("auto is what the TOML file or the command line says, or the Trainer's default",
          "[config][deepspeed]") {
  // The shape of Hugging Face's example for stage 3.
  const std::string json = R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW",
                  "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR",
                  "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                             "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto", "sub_group_size": 1e9,
                          "stage3_param_persistence_threshold": "auto"},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": "auto",
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})";
  const std::string toml =
      "[training]\nlocal_batch_size = 2\nglobal_batch_size = 16\nmax_norm = 0.5\n"
      "mixed_precision_param = \"bfloat16\"\n"
      "[optimizer]\nlr = 3e-3\nbeta1 = 0.7\nbeta2 = 0.98\neps = 1e-7\nweight_decay = 0.2\n"
      "[lr_scheduler]\nmin_lr = 1e-4\nwarmup_steps = 20\n";
  const config::TrainConfig config = load_deepspeed(json, ranks(4), toml);
  CHECK(config.training.global_batch_size == 16);
  CHECK(config.recipe.clip == 0.5);
  CHECK(config.recipe.precision.reduce_dtype == DType::bfloat16);
  CHECK(config.recipe.optimizer.options.beta1 == 0.7);
  CHECK(config.recipe.optimizer.options.weight_decay == 0.2);
  CHECK(config.schedule.lr == 3e-3);
  CHECK(config.schedule.warmup_steps == 20);
  CHECK(config.schedule_kind == "warmup_log");
  CHECK(config.remarks.size() == 3);  // of stage 3
  // TrainingArguments, where nobody says more; each is said once.
  const config::TrainConfig alone = load_deepspeed(json, ranks(4));
  CHECK(alone.training.local_batch_size == 8);
  CHECK(alone.training.global_batch_size == 32);
  CHECK(alone.recipe.clip == 1);
  CHECK(alone.recipe.precision.param_dtype == DType::float32);
  CHECK(alone.recipe.optimizer.options.beta1 == 0.9);
  CHECK(alone.recipe.optimizer.options.beta2 == 0.999);
  CHECK(alone.recipe.optimizer.options.eps == 1e-8);
  CHECK(alone.recipe.optimizer.options.weight_decay == 0);
  CHECK(alone.schedule.lr == 5e-5);
  CHECK(alone.schedule.min_lr == 0);
  CHECK(alone.schedule.warmup_steps == 2);
  CHECK(alone.schedule.total_steps == 2);
  for (const char* path :
       {"fp16.enabled", "bf16.enabled", "optimizer.params.betas", "optimizer.params.eps",
        "optimizer.params.weight_decay", "scheduler.params.warmup_min_lr",
        "scheduler.params.warmup_max_lr", "scheduler.params.warmup_num_steps", "gradient_clipping",
        "train_micro_batch_size_per_gpu"}) {
    INFO(path);
    const std::string begin = std::string(path) + ": is \"auto\": the default of Hugging Face's ";
    CHECK(std::ranges::any_of(alone.remarks, [&](const std::string& each) {
      return each.find(begin) != std::string::npos;
    }));
  }
  CHECK(alone.remarks.size() == 14);
  CHECK_THAT(alone.origins.at("optimizer.lr"), contains("(the Trainer's default)"));
}

TEST_CASE("what shapes the reduction of gradients sets our keys of the same names",
          "[config][deepspeed]") {
  const std::vector<std::pair<std::string, std::string>> cases = {{"overlap_comm", "false"},
                                                                  {"contiguous_gradients", "false"},
                                                                  {"reduce_scatter", "false"},
                                                                  {"reduce_bucket_size", "12345"},
                                                                  {"allgather_bucket_size", "5e4"}};
  for (const auto& [name, value] : cases) {
    const std::string json =
        R"({"zero_optimization": {"stage": 2, ")" + name + "\": " + value + "}}";
    INFO(json);
    CHECK(load_deepspeed(json).settings.at("parallel." + name) ==
          (value == "5e4" ? "50000" : value));
  }
  const std::string round_robin =
      R"({"zero_optimization": {"stage": 2, "round_robin_gradients": true}})";
  CHECK(load_deepspeed(round_robin).recipe.zero.partition == optim::Partition::round_robin);
  CHECK(load_deepspeed(R"({"prescale_gradients": true})").recipe.prescale);
}

TEST_CASE("every key of DeepSpeed that is known is documented", "[config][deepspeed]") {
  const std::string page = io::read_text(FSDP_PROJECT_ROOT "/docs/deepspeed.md");
  for (const std::string& path : config::deepspeed_paths()) {
    INFO(path);
    CHECK(page.find("`" + path.substr(path.rfind('.') + 1) + "`") != std::string::npos);
  }
  CHECK(config::deepspeed_paths().size() > 100);
}

}  // namespace fsdp::train
