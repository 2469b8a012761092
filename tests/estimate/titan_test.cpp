// torchtitan's files as they are: what each kind gives.
#include "config/config.h"
#include "config/explain.h"
#include "config/titan/rows.h"
#include "estimate/modes.h"
#include "estimate/titan_files.h"

#include <algorithm>
#include <filesystem>

namespace fsdp::estimate {
namespace {

// Whether a warning has all of these parts.
bool warns(const EstimatorConfig& config, const std::vector<std::string>& parts) {
  return std::ranges::any_of(config.warnings, [&](const std::string& warning) {
    return std::ranges::all_of(
        parts, [&](const std::string& part) { return warning.find(part) != std::string::npos; });
  });
}

}  // namespace

TEST_CASE("a whole file of torchtitan is read unedited", "[estimator][titan]") {
  const config::TrainConfig config = load_titan(kWholeFile).train;
  CHECK(config.preset == "llama3_8b");
  CHECK(config.recipe.ranks == 8);
  CHECK(config.recipe.strategy == optim::Strategy::fsdp);
  CHECK(config.recipe.checkpoints_blocks());
  CHECK(config.recipe.precision.param_dtype == DType::bfloat16);
  CHECK(config.training.seq_len == 8192);
  CHECK(config.micro_batches() == 8);
  CHECK(config.recipe.optimizer.name == "adamw");
  CHECK(config.schedule.lr == 3e-4);
  CHECK(config.recipe.optimizer.options.weight_decay == 0.1);
  CHECK(config.recipe.optimizer.options.beta2 == 0.95);
  CHECK(config.checkpoint.folder.empty());
  CHECK(config.titan.is_file);
  const config::TrainConfig old = load_titan(kOldFile, {}, {.ngpu = "4", .nnodes = "2"}).train;
  CHECK(old.preset == "llama2_7b");
  CHECK(old.recipe.ranks == 8);
  CHECK(old.training.local_batch_size == 8);
  CHECK_FALSE(old.recipe.checkpoints_blocks());
  CHECK(old.schedule.kind == optim::LrSchedule::Kind::warmup_stable_linear);
  CHECK(old.schedule.warmup_steps == 200);
  CHECK(old.schedule.decay_steps == 800);
}

TEST_CASE("where torchtitan's file is silent, its defaults count, and a line says so",
          "[estimator][titan]") {
  const EstimatorConfig made = load_titan(kLlama);
  const config::TrainConfig& config = made.train;
  CHECK(config.recipe.ranks == 8);
  CHECK(config.recipe.precision.param_dtype == DType::bfloat16);
  CHECK(config.recipe.precision.reduce_dtype == DType::float32);
  CHECK(config.training.seq_len == 2048);
  CHECK(config.training.local_batch_size == 8);
  CHECK(config.training.steps == 10'000);
  CHECK(config.schedule.lr == 8e-4);
  CHECK(config.schedule.warmup_steps == 200);
  CHECK(config.schedule.decay_steps == 9800);
  CHECK(config.recipe.checkpointing == optim::Checkpointing::inside);
  CHECK(config.recipe.checkpoint_every == 2);
  CHECK(warns(made, {"llama.toml: is torchtitan's, whose defaults count where it is silent: ",
                     "training.mixed_precision_param bfloat16", "training.seq_len 2048",
                     "training.global_batch_size -1", "training.activation_checkpoint block",
                     "training.checkpoint_every 2", "lr_scheduler.warmup_steps 200"}));
  // The command line beats them, and a file with a key of ours alone is ours.
  CHECK(load_titan(kLlama, {"--training.mixed_precision_param=float32"})
            .train.recipe.precision.param_dtype == DType::float32);
  const EstimatorConfig mixed = load_titan(kLlama + "[parallel]\nranks = 2\n");
  const config::TrainConfig& ours = mixed.train;
  CHECK(
      warns(mixed, {"llama.toml: has keys of torchtitan and our parallel.ranks, so our defaults"}));
  CHECK_FALSE(ours.titan.is_file);
  CHECK(ours.recipe.precision.param_dtype == DType::float32);
  CHECK(ours.recipe.ranks == 2);
  for (const char* beside : {"[data]\npath", "[metrics]\nfile", "[checkpoint]\nfrom"}) {
    CHECK(load_titan(kLlama + beside + " = \"x.csv\"\n").train.titan.is_file);
  }
  CHECK(load_titan(kLlama, {"--model.preset=tiny", "--training.seq_len=8"}).train.preset == "tiny");
}

TEST_CASE("degrees other than 1 are refused by name in every spelling", "[estimator][titan]") {
  for (const std::string key :
       {"parallelism.tensor_parallel_degree", "training.tensor_parallel_degree",
        "training.sequence_parallel_degree", "parallelism.pipeline_parallel_degree",
        "training.pipeline_parallel_degree", "experimental.pipeline_parallel_degree",
        "parallelism.context_parallel_degree", "experimental.context_parallel_degree",
        "parallelism.expert_parallel_degree", "parallelism.expert_tensor_parallel_degree"}) {
    const std::string section = key.substr(0, key.find('.'));
    const std::string name = key.substr(key.find('.') + 1);
    const auto file = [&](const char* value) {
      return kLlama + "[" + section + "]\n" + name + " = " + value + "\n";
    };
    CHECK_THAT(complaint_about_titan(file("2")), contains(":5: " + key + ": is 2, must be 1: "));
    CHECK(complaint_about_titan(file("1")).empty());
  }
  const std::string faults = complaint_about_titan(
      kLlama + "[fault_tolerance]\nenable = true\nsemi_sync_method = \"diloco\"\nsync_steps = 5\n");
  CHECK_THAT(faults, contains("fault_tolerance.enable: is true, must be false") && contains("\n") &&
                         contains("fault_tolerance.semi_sync_method"));
}

TEST_CASE("values of torchtitan mean what they mean there", "[estimator][titan]") {
  const auto preset = [](const std::string& name, const std::string& flavor) {
    return load_titan("[model]\nflavor = \"" + flavor + "\"\nname = \"" + name + "\"\n")
        .train.preset;
  };
  CHECK(preset("llama3", "debugmodel") == "llama3_debug");
  CHECK(preset("llama3", "405B") == "llama3_405b");
  CHECK(preset("llama2", "70B") == "llama2_70b");
  CHECK(preset("llama3", "70B") == "llama3_70b");
  CHECK(preset("llama", "13B") == "llama2_13b");
  CHECK(preset("llama", "8B") == "llama3_8b");
  for (const std::string name : {"llama4", "deepseek_v3", "vlm"}) {
    CHECK_THAT(complaint_about_titan("[model]\nname = \"" + name + "\"\nflavor = \"debugmodel\"\n"),
               contains(":2: model.name: is " + name + ", an architecture that is not here"));
  }
  CHECK_THAT(complaint_about_titan("[model]\nname = \"llama2\"\nflavor = \"8B\"\n"),
             contains(":3: model.flavor: is 8B, must be one of 13B, 70B, 7B, debugmodel"));
  for (const std::string name : {"AdamW", "adamw", "ADAMW"}) {
    CHECK(load_titan("[optimizer]\nname = \"" + name + "\"\n").train.recipe.optimizer.name ==
          "adamw");
  }
  CHECK(load_titan("[training]\nglobal_batch_size = -1\n").train.micro_batches() == 1);
  CHECK(load_titan(kLlama + "[training]\nbatch_size = 3\n").train.training.local_batch_size == 3);
  const auto reshards = [](const std::string& value) {
    return load_titan("[parallelism]\nfsdp_reshard_after_forward = \"" + value + "\"\n")
        .train.recipe.sharding.reshard_after_forward.kind;
  };
  CHECK(reshards("default") == ReshardAfterForward::Kind::always);
  CHECK(reshards("always") == ReshardAfterForward::Kind::always);
  CHECK(reshards("never") == ReshardAfterForward::Kind::never);
  const config::TrainConfig offloaded =
      load_titan(kLlama + "[training]\nenable_cpu_offload = true\n").train;
  CHECK(offloaded.recipe.sharding.offload.params);
  CHECK(offloaded.recipe.sharding.offload.grads);
}

TEST_CASE("torchtitan's way to name the file, and its runner's eight ranks", "[estimator][titan]") {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "llama.toml";
  io::write_text_atomically(file, kLlama);
  for (const Words& words : {Words{"--job.config_file", file}, {"--job.config_file=" + file}}) {
    const EstimatorConfig config = load_estimator_config(std::nullopt, words, {});
    CHECK(config.train.preset == "llama3_8b");
    CHECK(config.train.source == file);
    CHECK(config.train.recipe.ranks == 8);
  }
  CHECK(load_estimator_config(std::nullopt, {}, {.config_file = file}).train.preset == "llama3_8b");
  CHECK_THAT(message_of<InputError>([&] {
               load_estimator_config("other.toml", {"--job.config_file", file}, {});
             }),
             contains("job.config_file: is ") && contains("other.toml; give one"));
  // The seed's own command line.
  CHECK(
      configured({"--training.local_batch_size", "4", "--model.flavor", "8B"}).train.recipe.ranks ==
      8);
}

TEST_CASE("selective checkpointing is every n-th block, or every second product",
          "[estimator][titan]") {
  using optim::Checkpointing;
  const auto recipe = [](const std::string& option, const Words& words = {}) {
    return load_titan(kLlama + "[activation_checkpoint]\nmode = \"selective\"\n" + option, words)
        .train.recipe;
  };
  const auto is = [](const optim::Recipe& found, Checkpointing checkpointing, int every) {
    return found.checkpointing == checkpointing && found.checkpoint_every == every;
  };
  CHECK(is(recipe(""), Checkpointing::inside, 2));
  CHECK(is(recipe("selective_ac_option = \"3\"\n"), Checkpointing::inside, 3));
  CHECK(is(recipe("selective_ac_option = \"op\"\n"), Checkpointing::operations, 1));
  // n belongs to the mode that counts.
  CHECK(is(recipe("selective_ac_option = \"3\"\n", {"--activation_checkpoint.mode=full"}),
           Checkpointing::inside, 1));
  CHECK(is(recipe("", {"--activation_checkpoint.mode=none"}), Checkpointing::none, 1));
  CHECK(is(recipe("", {"--training.checkpoint_every=4"}), Checkpointing::inside, 4));
  for (const std::string option : {"0", "two", "-1", ""}) {
    CHECK_THAT(
        message_of<InputError>([&] { recipe("selective_ac_option = \"" + option + "\"\n"); }),
        contains("llama.toml:6: activation_checkpoint.selective_ac_option: is ") &&
            contains("must be op, or n for every n-th block"));
  }
}

TEST_CASE("torchtitan's schedule is a warm-up, a stable phase and a decay", "[estimator][titan]") {
  const auto schedule = [](const std::string& text, const Words& words = {}) {
    return load_titan(
               kLlama + "[training]\nsteps = 100\n[optimizer]\nlr = 0.5\n[lr_scheduler]\n" + text,
               words)
        .train.schedule;
  };
  using Kind = optim::LrSchedule::Kind;
  const auto part = schedule(
      "warmup_steps = 10\ndecay_ratio = 0.3\nmin_lr_factor = 0.1\n"
      "decay_type = \"cosine\"\n");
  CHECK(part.kind == Kind::warmup_stable_cosine);
  CHECK(part.decay_steps == 30);
  CHECK(part.min_lr == 0.05);
  CHECK(schedule("warmup_steps = 10\nlr_min = 0.1\n").min_lr == 0.05);
  CHECK(schedule("warmup_steps = 10\n").decay_steps == 90);
  CHECK(schedule("warmup_steps = 10\ndecay_ratio = 0.125\n").decay_steps == 12);  // 12.5, to even
  CHECK(schedule("warmup_steps = 50\ndecay_ratio = 0.8\n").decay_steps == 50);
  CHECK(schedule("warmup_steps = 200\n").warmup_steps == 100);
  CHECK(schedule("decay_ratio = 0.0\nwarmup_steps = 5\n").kind == Kind::warmup_linear);
  CHECK(schedule("warmup_steps = 10\n", {"--training.steps=40"}).decay_steps == 30);
  CHECK(schedule("warmup_steps = 10\ntotal_steps = 400\n").decay_steps == 390);
  CHECK(schedule("warmup_steps = 10\n", {"--lr_scheduler.kind=constant"}).kind == Kind::constant);
  CHECK_THAT(complaint_about_titan(kLlama + "[lr_scheduler]\ndecay_type = \"log\"\n"),
             contains("lr_scheduler.decay_type: is log, must be linear, sqrt or cosine"));
  CHECK_THAT(complaint_about_titan(kLlama + "[lr_scheduler]\ndecay_ratio = 2\n"),
             contains("lr_scheduler.decay_ratio: is 2, must be a number between 0 and 1"));
}

TEST_CASE("the decay begins behind a warm-up that the command line sets", "[estimator][titan]") {
  const auto schedule = [](const std::string& text, const Words& words) {
    const EstimatorConfig config = load_titan(
        kLlama + "[training]\nsteps = 100\n[lr_scheduler]\ndecay_ratio = 0.8\n" + text, words);
    for (const std::string& warning : config.warnings) {
      CHECK_THAT(warning, !contains("behind a warm-up of 50"));
    }
    return config.train.schedule;
  };
  const std::string file = "warmup_steps = 50\n";
  for (const char* key : {"lr_scheduler.warmup_steps", "training.warmup_steps"}) {
    INFO(key);
    const auto option = [&](const char* value) {
      return Words{std::string("--") + key + "=" + value};
    };
    const auto shorter = schedule(file, option("5"));
    CHECK(shorter.warmup_steps == 5);
    CHECK(shorter.decay_steps == 80);
    const auto longer = schedule("", option("30"));
    CHECK(longer.warmup_steps == 30);
    CHECK(longer.decay_steps == 70);
    CHECK(schedule(file, option("300")).warmup_steps == 100);  // as torchtitan, no more than all
  }
}

TEST_CASE("checkpoints of torchtitan's file count while they are enabled", "[estimator][titan]") {
  const auto checkpoint = [](const std::string& text) {
    return load_titan("[job]\ndump_folder = \"runs\"\n" + text).train.checkpoint;
  };
  CHECK(checkpoint("[checkpoint]\nfolder = \"saved\"\ninterval = 7\n").folder.empty());
  for (const std::string name : {"enable", "enable_checkpoint"}) {
    const auto on =
        checkpoint("[checkpoint]\nfolder = \"saved\"\ninterval = 7\n" + name + " = true\n");
    CHECK(on.folder == "runs/saved");
    CHECK(on.interval == 7);
  }
  CHECK(checkpoint("[training]\ncheckpoint_folder = \"old\"\n").interval == 500);
  CHECK_THAT(complaint_about_titan("[job]\ndump_folder = \"runs\"\n[checkpoint]\nenable = true\n"
                                   "interval_type = \"seconds\"\n"),
             contains("checkpoint.interval_type: is seconds, must be steps"));
}

TEST_CASE("TensorBoard's folder of torchtitan's file counts while it is enabled",
          "[estimator][titan]") {
  const auto folder = [](const std::string& text) { return load_titan(text).train.tensorboard; };
  CHECK(folder("[metrics]\nenable_tensorboard = true\n") == "./outputs/tb");
  CHECK(folder("[job]\ndump_folder = \"runs\"\n[metrics]\nenable_tensorboard = true\n"
               "save_tb_folder = \"events\"\n") == "runs/events");
  CHECK(folder("[job]\ndump_folder = \"runs\"\n[metrics]\nsave_tb_folder = \"events\"\n").empty());
  CHECK(folder("[metrics]\nenable_tensorboard = false\n").empty());
  CHECK_THAT(complaint_about_titan("[metrics]\nenable_tensorboard = 3\n"),
             contains("metrics.enable_tensorboard: is 3, must be true or false"));
}

TEST_CASE("unknown keys of torchtitan's file are errors, all of them at once",
          "[estimator][titan]") {
  const std::string message = complaint_about_titan(
      kLlama + "[training]\nlocal_batchsize = 3\nsteps = 0\n[cucumber]\ngreen = true\n");
  CHECK_THAT(message, contains(":5: unknown key training.local_batchsize; did you mean "
                               "training.local_batch_size?"));
  CHECK_THAT(message, contains("\n") && contains(":6: training.steps: is 0, must be a whole"));
  CHECK_THAT(message, contains(":8: unknown key cucumber.green; unshard-estimate --keys"));
  CHECK(message.find(":5:") < message.find(":6:"));
  CHECK(message.find(":6:") < message.find(":8:"));
}

TEST_CASE("torchtitan's flags may stand without a value", "[estimator][titan]") {
  const EstimatorConfig config =
      configured({"--metrics.enable_tensorboard", "--profiling.enable_profiling",
                  "--training.steps", "3", "--compile.enable"});
  CHECK(config.train.training.steps == 3);
  CHECK(config.train.titan.compiles);
  CHECK(config.train.tensorboard == "./outputs/tb");
  CHECK(configured({"--checkpoint.enable", "--training.steps", "3"}).train.checkpoint.folder ==
        "./outputs/checkpoint");
  CHECK_FALSE(config::is_value_of("--metrics.enable_tensorboard", "llama.toml"));
  CHECK(config::is_value_of("--metrics.save_tb_folder", "tb"));
  CHECK(config::is_value_of("--job.config_file", "llama.toml"));
  CHECK(config::is_value_of("--training.steps", "llama.toml"));
  CHECK_THAT(message_of<InputError>([] { configured({"--optimizer.early_step_in_backward"}); }),
             contains("optimizer.early_step_in_backward: is true, must be false"));
  CHECK(configured({"--training.compile", "--model.name", "llama2"}).train.titan.compiles);
  CHECK(configured({"--training.fp8_linear"}).train.titan.float8.is_used);
  // Any other needs its value.
  for (const char* key :
       {"optimizer.name", "activation_checkpoint.selective_ac_option", "model.flavor",
        "model.converters", "training.batch_size", "fault_tolerance.semi_sync_method"}) {
    CHECK_THAT(message_of<InputError>([&] {
                 configured({"--profiling.profile_freq=1", std::string("--") + key});
               }),
               contains(std::string("command line: ") + key + ": is missing"));
  }
}

TEST_CASE("a key in an older and a newer place must agree", "[estimator][titan]") {
  CHECK_THAT(complaint_about_titan(kLlama + "[training]\nbatch_size = 3\nlocal_batch_size = 4\n"),
             contains("training.batch_size: means training.local_batch_size 3, but "
                      "training.local_batch_size"));
  CHECK(load_titan(kLlama + "[training]\ndata_parallel_degree = 4\n").train.recipe.ranks == 4);
  CHECK_THAT(complaint_about_titan(kLlama + "[training]\ndata_parallel_degree = \"x\"\n"),
             contains(":5: training.data_parallel_degree: is \"x\", must be a whole number"));
}

TEST_CASE("an explanation has every key of the file and what was used", "[estimator][titan]") {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "llama.toml";
  io::write_text_atomically(file, kWholeFile);
  const config::Explanation made =
      config::explain(file, {"--training.seq_len=4096"}, {.is_modeled = true});
  CHECK(made.problems.empty());
  for (const char* part :
       {"job.description", "noted", "model.preset = llama3_8b", "optimizer.name = adamw",
        "training.seq_len = 4096 (command line)", "lr_scheduler.decay_steps = 800",
        "what is done anyway", "checkpoints are not enabled", "(torchtitan's default)",
        "quantize.linear.float8.filter_fqns"}) {
    CHECK_THAT(made.text, contains(part));
  }
  io::write_text_atomically(file, kLlama +
                                      "[parallelism]\ntensor_parallel_degree = 8\n"
                                      "[job]\ndescriptionx = \"x\"\n");
  const config::Explanation wrong = config::explain(file, {}, {.is_modeled = true});
  CHECK_THAT(wrong.text,
             contains("refused   is 8, must be 1") && contains("unknown   unknown key"));
  CHECK_THAT(wrong.problems, contains("tensor_parallel_degree") && contains("descriptionx"));
}

TEST_CASE("the pages of keys are the tables", "[estimator][titan]") {
  for (const std::string& format : config::foreign_formats()) {
    INFO("unshard-estimate --keys " << format << " > docs/" << format << "_keys.md");
    const std::string page = io::read_text(FSDP_PROJECT_ROOT "/docs/" + format + "_keys.md");
    CHECK(page == config::describe_format(format) + "\n");
  }
  const auto count = [](config::foreign::Decision decision) {
    return std::ranges::count_if(config::titan::rows(), [&](const config::foreign::Row& row) {
      return row.decision() == decision;
    });
  };
  CHECK(count(config::foreign::Decision::read) == 72);
  CHECK(count(config::foreign::Decision::equal) == 35);
  CHECK(count(config::foreign::Decision::noted) == 150);
}

}  // namespace fsdp::estimate
