// torchtitan's spellings, the runner's environment, and what is refused.
#include "estimate/estimator_config.h"

#include "base/check.h"
#include "estimate/framework_choice.h"
#include "estimate/modes.h"
#include "io/file_io.h"
#include "io/hf_folder.h"
#include "support/temporary_folder.h"

#include <filesystem>

namespace fsdp::estimate {
namespace {

std::string refusal(const Words& words, const config::Environment& environment = {}) {
  return message_of<InputError>([&] { load_estimator_config(std::nullopt, words, environment); });
}

EstimatorConfig with(const config::Environment& environment, const Words& words = {}) {
  return load_estimator_config(std::nullopt, words, environment);
}

}  // namespace

TEST_CASE("other dimensions of parallelism are refused, each by name", "[estimator]") {
  for (const std::string what : {"tensor", "pipeline", "context", "expert"}) {
    const std::string key = "parallelism." + what + "_parallel_degree";
    const std::string message = refusal({"--" + key + "=2"});
    CHECK(message.find("command line: " + key + ": is 2, must be 1: " + what +
                       " parallelism is not estimated") == 0);
    CHECK(refusal({"--" + key + "=0"}).find("is 0, must be 1") != std::string::npos);
    CHECK_NOTHROW(configured({"--" + key + "=1"}));
  }
}

TEST_CASE("the shard degree and the environment set the ranks", "[estimator]") {
  const auto check = [](const EstimatorConfig& config, std::int64_t ranks, std::int64_t replicas,
                        const std::string& strategy) {
    CHECK(config.train.recipe.ranks == ranks);
    CHECK(config.train.recipe.replicas == replicas);
    CHECK(name_of(config.train.recipe.strategy) == strategy);
  };
  check(configured({}), 1, 1, "single");
  check(configured({"--parallel.ranks=3"}), 3, 1, "fsdp");
  check(configured({"--parallelism.data_parallel_shard_degree=-1"}), 8, 1, "fsdp");
  check(configured({"--parallelism.data_parallel_shard_degree=4",
                    "--parallelism.data_parallel_replicate_degree=3"}),
        12, 3, "fsdp");
  check(configured({"--parallelism.data_parallel_shard_degree=1",
                    "--parallelism.data_parallel_replicate_degree=3"}),
        3, 1, "ddp");
  check(with({.ngpu = "8", .nnodes = "4", .config_file = {}}), 32, 1, "fsdp");
  check(with({.ngpu = {}, .nnodes = "2", .config_file = {}}), 16, 1, "fsdp");
  check(with({.ngpu = "8", .nnodes = {}, .config_file = {}}, {"--parallel.ranks=2"}), 2, 1, "fsdp");
  check(with({.ngpu = "8", .nnodes = {}, .config_file = {}}, {"--parallel.strategy=zero2"}), 8, 1,
        "zero2");
  CHECK(refusal({"--parallelism.data_parallel_shard_degree=3"},
                {.ngpu = "8", .nnodes = {}, .config_file = {}})
            .find("command line: parallelism.data_parallel_shard_degree: is 3, but 8 ranks in 1 "
                  "replica leave 8 shards each") == 0);
  CHECK_THAT(refusal({"--parallelism.data_parallel_shard_degree=3"},
                     {.ngpu = "8", .nnodes = {}, .config_file = {}}),
             contains("set NGPU x NNODES to 3"));
  CHECK(refusal({"--parallelism.data_parallel_shard_degree=0"}).find("is 0, must be -1") !=
        std::string::npos);
  CHECK(refusal({}, {.ngpu = "many", .nnodes = {}, .config_file = {}})
            .find("environment: NGPU: is many") == 0);
}

TEST_CASE("an override beats the file, and the file names its lines", "[estimator]") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "titan.toml";
  io::write_text_atomically(
      file,
      "[job]\ndescription = \"a test\"\n[memory_estimation]\nenabled = true\n"
      "disable_fake_mode = true\n[training]\nlocal_batch_size = 8\nseq_len = 64\n"
      "[parallelism]\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 1\n"
      "[compile]\nenable = true\n[activation_checkpoint]\nmode = \"full\"\n");
  EstimatorConfig config = load_estimator_config(
      file, {"--training.local_batch_size", "2", "--memory_estimation.disable_fake_mode=false"},
      {});
  EstimatorConfig theirs = config;
  choose_framework("", theirs);
  CHECK(theirs.framework == paper::Framework::pytorch);
  CHECK(theirs.habits.compiles_blocks);
  CHECK(theirs.warnings.size() == 2);
  choose_framework("unshard", config);
  CHECK(config.train.training.local_batch_size == 2);
  CHECK(config.train.training.seq_len == 64);
  CHECK(config.train.recipe.ranks == 4);
  CHECK(config.train.recipe.checkpoints_blocks());
  CHECK_FALSE(config.is_real);
  REQUIRE(config.warnings.size() == 3);
  CHECK_THAT(config.warnings[0], contains("titan.toml: job.description: has no effect here"));
  CHECK_THAT(config.warnings[1], contains("titan.toml: is torchtitan's, whose defaults count"));
  CHECK(config.warnings[2].find("titan.toml:13: compile.enable: compile mode is switched off") !=
        std::string::npos);
  // The runner's variable names the file where the command line does not.
  CHECK(with({.ngpu = {}, .nnodes = {}, .config_file = file.string()}).is_real);
}

TEST_CASE("the command line beats the file in either spelling", "[estimator]") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "both.toml";
  const auto load = [&](const std::string& text, const Words& words) {
    io::write_text_atomically(file, text);
    return load_estimator_config(file, words, {});
  };
  const std::string titan =
      "[activation_checkpoint]\nmode = \"none\"\n[model]\nflavor = \"8B\"\n"
      "[parallelism]\ndata_parallel_replicate_degree = 2\n[parallel]\nranks = 8\n";
  const EstimatorConfig ours =
      load(titan, {"--training.activation_checkpoint", "block", "--model.preset", "tiny",
                   "--parallel.data_parallel_replicate_degree", "4"});
  CHECK(ours.train.recipe.checkpoints_blocks());
  CHECK(ours.train.preset == "tiny");
  CHECK(ours.train.model.hidden_size == nn::TransformerConfig::tiny().hidden_size);
  CHECK(ours.train.recipe.replicas == 4);
  CHECK(ours.train.settings.at("activation_checkpoint.mode") == "none (beaten)");
  CHECK(ours.train.settings.at("model.flavor") == "8B (beaten)");
  CHECK(ours.train.origins.at("training.activation_checkpoint") == "command line");
  const EstimatorConfig theirs =
      load("[training]\nactivation_checkpoint = \"none\"\n[parallel]\nranks = 8\n",
           {"--activation_checkpoint.mode=full", "--parallelism.data_parallel_shard_degree=4",
            "--parallelism.data_parallel_replicate_degree=4"});
  CHECK(theirs.train.recipe.checkpoints_blocks());
  CHECK(theirs.train.recipe.ranks == 16);
  // A degree of the file gives way, and says so.
  const EstimatorConfig wider =
      load("[parallelism]\ndata_parallel_shard_degree = 4\n", {"--parallel.ranks=8"});
  CHECK(wider.train.recipe.shards() == 8);
  REQUIRE(wider.warnings.size() == 2);  // the other one is of the defaults
  CHECK_THAT(wider.warnings[1], contains("both.toml:2: parallelism.data_parallel_shard_degree: is "
                                         "4, but parallel.ranks 8 of the command line beats it"));
  CHECK_NOTHROW(load("[activation_checkpoint]\nmode = \"selective\"\n",
                     {"--training.activation_checkpoint=none"}));
}

TEST_CASE("two spellings in one place must not contradict each other", "[estimator]") {
  CHECK_THAT(
      refusal({"--training.activation_checkpoint=block", "--activation_checkpoint.mode=none"}),
      contains("command line: activation_checkpoint.mode: means "
               "training.activation_checkpoint none, but training.activation_checkpoint "
               "(command line) is block; give one of them"));
  CHECK_THAT(refusal({"--model.preset=tiny", "--model.flavor=8B"}), contains("give one of them"));
  CHECK_NOTHROW(
      configured({"--training.activation_checkpoint=block", "--activation_checkpoint.mode=full"}));
  CHECK_THAT(refusal({"--parallel.ranks=8", "--parallelism.data_parallel_shard_degree=4"}),
             contains("use -1 for all, or set parallel.ranks (command line) to 4"));
}

TEST_CASE("flags of torchtitan need no value", "[estimator]") {
  CHECK(configured({"--memory_estimation.disable_fake_mode"}).is_real);
  CHECK(configured({"--memory_estimation.disable_fake_mode", "--training.seq_len=4"}).is_real);
  CHECK_FALSE(configured({"--memory_estimation.disable_fake_mode", "false"}).is_real);
  CHECK(configured({"--model.flavor=8B"}).train.preset == "llama3_8b");
  const Words selective = {"--activation_checkpoint.mode=selective"};
  CHECK(configured(selective).train.recipe.checkpoint_every == 2);
  CHECK(refusal({"--memory_estimation.enable"}).find("unknown key") != std::string::npos);
}

TEST_CASE("a training keeps its own limits", "[estimator]") {
  CHECK_NOTHROW(configured({"--parallel.ranks=16384"}));
  CHECK_THROWS_AS(config::load_config(std::nullopt, {"--parallel.ranks=16384"}), InputError);
  CHECK_THROWS_AS(config::load_config(
                      std::nullopt, {"--parallel.strategy=fsdp", "--parallel.offload_params=true"}),
                  InputError);
}

TEST_CASE("a config.json without weights is enough", "[estimator]") {
  const testing::TemporaryFolder folder;
  io::write_text_atomically(folder.path() / "config.json",
                            io::to_hf_config(nn::TransformerConfig::nano()));
  for (const std::string& from :
       {folder.path().string(), (folder.path() / "config.json").string()}) {
    const Estimate made = estimated({"--model.from=" + from, "--parallel.ranks=2"});
    CHECK(made.run.parameters == nn::TransformerConfig::nano().parameter_count());
    CHECK(made.opinion.difference == "");
  }
}

TEST_CASE("the published models have the published numbers of parameters", "[estimator]") {
  using Model = nn::TransformerConfig;
  CHECK(Model::llama2_7b().parameter_count() == 6'738'415'616);
  CHECK(Model::llama2_13b().parameter_count() == 13'015'864'320);
  CHECK(Model::llama2_70b().parameter_count() == 68'976'648'192);
  CHECK(Model::llama3_8b().parameter_count() == 8'030'261'248);
  CHECK(Model::llama3_70b().parameter_count() == 70'553'706'496);
  CHECK(Model::llama3_405b().parameter_count() == 405'853'388'800);
}

}  // namespace fsdp::estimate
