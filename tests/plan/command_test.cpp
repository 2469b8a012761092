// The planner's modes as a user calls them.
#include "plan/planner.h"
#include "plan/quantity.h"
#include "plan/which_strategy.h"
#include "support/catch.h"

#include <string>
#include <vector>

namespace fsdp::testing::planner_commands {
namespace {

const paper::MemoryOptions kSharded{.recipe = {.strategy = optim::Strategy::fsdp}};

using plan::PlannerLine;

plan::ModeOutput run_whole(std::vector<const char*> words,
                           const paper::MemoryOptions& base = kSharded,
                           const nn::TransformerConfig& model = nn::TransformerConfig::nano()) {
  program::OptionParser parser("test", "");
  PlannerLine line;
  line.declare(parser);
  parser.add_text("--memory", line.memory, "");
  parser.add_choice("--format", line.format, {"text", "json"}, "");
  words.insert(words.begin(), "test");
  REQUIRE_FALSE(parser.parse(static_cast<int>(words.size()), words.data()));
  REQUIRE(line.is_mode());
  return run_mode(line, model, "nano", base);
}

std::string run(const std::vector<const char*>& words,
                const paper::MemoryOptions& base = kSharded) {
  return run_whole(words, base).text;
}

}  // namespace

TEST_CASE("Quantities are read with their units") {
  CHECK(plan::parse_bytes("x", "80GB") == 80'000'000'000);
  CHECK(plan::parse_bytes("x", "40GiB") == std::int64_t{40} << 30);
  CHECK(plan::parse_bytes("x", "1.5KiB") == 1536);
  CHECK(plan::parse_bytes("x", "512B") == 512);
  CHECK_THROWS_WITH(plan::parse_bytes("--memory", "80"), contains("80GB or 80GiB?"));
  CHECK(plan::parse_share("--margin", "15%") == 0.15);
  CHECK(plan::parse_share("--margin", "0.2") == 0.2);
  CHECK_THROWS_WITH(plan::parse_share("--margin", "150%"), contains("between 0 and 100%"));
  CHECK(plan::parse_count("x", "64") == 64);
  CHECK_THROWS_WITH(plan::parse_count("--global-batch", "1..8"), contains("write 64"));
  CHECK_THROWS_WITH(plan::parse_bytes("--memory", "0.1B"), contains("between 1 byte and"));
  CHECK_THROWS_WITH(plan::parse_rate("--flops", "1e-5"), contains("between 1 per second and"));
  CHECK_THROWS_WITH(plan::parse_rate("--link", "1e-300"), contains("between 1 per second and"));
  CHECK_THROWS_WITH(plan::parse_duration("--latency", "1000000s"), contains("and 1000s"));
  CHECK(plan::parse_rate("x", "400T") == 400e12);
  CHECK(plan::parse_rate("x", "50GB/s") == 50e9);
  CHECK(plan::parse_duration("x", "2.5us") == 2'500'000);
  CHECK(plan::parse_range("x", "8..64") == std::vector<std::int64_t>{8, 16, 32, 64});
  CHECK(plan::parse_range("x", "3..7") == std::vector<std::int64_t>{3, 6});
  for (const char* wrong : {"", "GB", "-1GB", "0", "80 GB", " 80GB", "80Gb", "nan", "1e99"}) {
    CHECK_THROWS_WITH(plan::parse_bytes("--memory", wrong), contains("--memory: is"));
  }
}

TEST_CASE("A plan for too many layers is refused before it begins") {
  nn::TransformerConfig deep = nn::TransformerConfig::nano();
  const std::vector<const char*> words = {"--plan", "--memory=1GB", "--ranks=1..4"};
  deep.num_hidden_layers = 667;
  CHECK_THROWS_WITH(run_whole(words, {}, deep),
                    contains("--plan: 667 layers for each of 3 numbers of ranks are too many"));
}

TEST_CASE("A plan says what is best, why, and what else costs") {
  const std::string text = run({"--plan", "--memory=1MB", "--ranks=1..4", "--global-batch=8"});
  for (const char* part : {"Nothing is both faster and smaller", "The fastest:", "binds", "peak",
                           "The next best:", "With another choice", "micro-batch"}) {
    CHECK_THAT(text, contains(part));
  }
  const std::string json =
      run({"--plan", "--memory=1MB", "--ranks=1..4", "--global-batch=8", "--format=json"});
  for (const char* part :
       {"\"front\"", "\"step_ps\"", "\"device_kinds\"", "\"sharded_param\"", "\"alternatives\""}) {
    CHECK_THAT(json, contains(part));
  }
}

TEST_CASE("Arithmetic in 16 bits may be faster, and a plan says what it assumes") {
  const auto plan = [](const std::vector<const char*>& more) {
    std::vector<const char*> words{"--plan",           "--memory=1MB", "--ranks=1",
                                   "--global-batch=8", "--flops=1G",   "--hbm=1TB/s"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  CHECK_THAT(plan({}), contains("0.001 TFLOP/s in every format"));
  const std::string faster = plan({"--flops-16=2G"});
  CHECK_THAT(faster, contains("0.001 TFLOP/s and 0.002 in 16 bits"));
  const auto best = [](const std::string& text) {
    const std::size_t begin = text.find("The fastest:");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK_THAT(best(faster), contains("bfloat16"));
  CHECK_THAT(best(plan({"--flops-16=500M"})), !contains("bfloat16"));
}

TEST_CASE("The largest batch and a sweep are printed") {
  CHECK_THAT(run({"--largest=batch", "--memory=1MB"}), contains("largest micro-batch:"));
  CHECK_THAT(run({"--sweep=batch=1..4"}), contains("SHARDED_PARAM"));
  CHECK_THAT(run({"--sweep=batch=1..4", "--format=json"}), contains("\"sharded_param\""));
}

TEST_CASE("The largest model grows with W for what is sharded, and for nothing else") {
  const auto blocks = [](optim::Strategy placement, int ranks) {
    paper::MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
    options.recipe.strategy = placement;
    options.recipe.ranks = ranks;
    return plan::most_blocks(nn::TransformerConfig::nano(), options, 4'000'000);
  };
  using enum optim::Strategy;
  CHECK(blocks(ddp, 2) == blocks(ddp, 8));
  CHECK(blocks(ddp, 2) < blocks(zero1, 2));
  CHECK(blocks(zero1, 8) < blocks(zero2, 8));
  CHECK(blocks(zero2, 8) < blocks(fsdp, 8));
  CHECK(blocks(fsdp, 2) < blocks(fsdp, 8));
}

TEST_CASE("A search for blocks that ends at its limit says so") {
  if (FSDP_SANITIZED != 0) return;  // formulas alone, at length
  paper::MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.ranks = 2;
  nn::TransformerConfig model = nn::TransformerConfig::nano();
  CHECK(plan::most_blocks(model, options, std::int64_t{1} << 50) == plan::kMostBlocks);
  CHECK(plan::most_blocks(model, options, 4'000'000) < plan::kMostBlocks);
  CHECK_THAT(run({"--which-strategy", "--memory=1PB"}), contains(" > 0.0"));
}

TEST_CASE("What does not fit is no success") {
  CHECK_FALSE(run_whole({"--plan", "--memory=1kB", "--ranks=1..2"}).is_found);
  CHECK_FALSE(run_whole({"--plan", "--memory=1kB", "--ranks=1..2", "--format=json"}).is_found);
  CHECK_FALSE(run_whole({"--largest=batch", "--memory=1kB"}).is_found);
  CHECK(run_whole({"--largest=batch", "--memory=1MB"}).is_found);
  CHECK(run_whole({"--plan", "--memory=1MB", "--ranks=1..2"}).is_found);
}

TEST_CASE("A plan names the keys that it chooses itself") {
  const auto text = [](const std::vector<std::string>& given) {
    PlannerLine line;
    line.plan = true;
    line.memory = "1MB";
    line.ranks = "1..2";
    line.given = given;
    return run_mode(line, nn::TransformerConfig::nano(), "nano", kSharded).text;
  };
  CHECK_THAT(text({"parallel.strategy", "model.preset", "training.no_sync"}),
             contains("configuration: parallel.strategy, training.no_sync\n"));
  CHECK(text({"model.preset"}).find("chosen by the plan") == std::string::npos);
}

TEST_CASE("What 64 bits cannot count is refused") {
  const nn::TransformerConfig large = nn::TransformerConfig::llama3_405b();
  for (const char* batches : {"--sweep=batch=524288..1048576", "--sweep=batch=1048576"}) {
    CHECK_THROWS_WITH(run_whole({batches, "--flops=1000P"}, kSharded, large),
                      contains("training.local_batch_size"));
  }
  for (const char* slow : {"--flops=1", "--link=1", "--latency=1000s", "--hbm=1"}) {
    CHECK_THROWS_WITH(run_whole({"--sweep=world=1024", slow}, kSharded, large),
                      contains("53 days"));
  }
  CHECK_THROWS_WITH(run({"--largest=batch", "--memory=1PB"}), contains("--memory: 536870912"));
}

TEST_CASE("What a base configuration has beside the tables does not stop them") {
  paper::MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
  base.recipe.ranks = 4;
  base.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
  base.recipe.sharding.offload = {.params = true, .grads = true};
  if (FSDP_SANITIZED == 0) {  // at length
    CHECK(run({"--which-strategy", "--memory=1MB"}, base) ==
          run({"--which-strategy", "--memory=1MB"}));
  }
  CHECK(run({"--plan", "--memory=1MB", "--ranks=2"}, base) ==
        run({"--plan", "--memory=1MB", "--ranks=2"}));
}

TEST_CASE("What the formula of time does not cover is refused by its key") {
  paper::MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
  base.recipe.zero.reductions.overlap = false;
  for (const char* mode : {"--plan", "--which-strategy", "--sweep=batch=1..2"}) {
    CHECK_THROWS_AS(run({mode}, base), InputError);  // before --memory is missed
    CHECK_THROWS_WITH(run({mode}, base), contains("parallel.overlap_comm"));
  }
  CHECK_THAT(run({"--largest=batch", "--memory=1MB"}, base), contains("largest micro-batch"));
  paper::MemoryOptions ddp;
  ddp.recipe.strategy = optim::Strategy::ddp;
  CHECK_THROWS_WITH(run({"--sweep=replicas=1..2"}, ddp), contains("only shards are replicated"));
}

TEST_CASE("Which strategy when is printed as four tables") {
  const std::string text = run({"--which-strategy", "--memory=1MB"});
  for (const char* part :
       {"1. The largest model", "2. The time of a step", "mesh of boxes", "without and with"}) {
    CHECK_THAT(text, contains(part));
  }
}

TEST_CASE("Wrong planner options are refused by name") {
  CHECK_THROWS_WITH(run({"--plan"}), contains("--plan: needs the memory"));
  CHECK_THROWS_WITH(run({"--largest=world", "--memory=1MB"}), contains("--largest: is \"world\""));
  CHECK_THROWS_WITH(run({"--plan", "--memory=1MB", "--link=fast"}),
                    contains("--link: is \"fast\""));
  CHECK_THROWS_WITH(run({"--plan", "--memory=1MB", "--far-link=1GB/s"}), contains("--box"));
  CHECK_THROWS_WITH(run({"--plan", "--memory=1MB", "--global-batch=1..8"}), contains("1..8"));
  CHECK_THROWS_WITH(run({"--plan", "--memory=1MB", "--ranks=1..1048576"}),
                    contains("at most 16384"));
  CHECK_THROWS_WITH(run({"--plan", "--memory=1MB", "--ranks=1..16384"}), contains("narrower"));
  CHECK_THROWS_WITH(run({"--sweep=batch=1..2", "--svg", ""}), contains("--svg: is empty"));
  for (const char* mode : {"--largest=batch", "--which-strategy"}) {
    CHECK_THROWS_WITH(run({mode, "--memory=1MB", "--format=json"}), contains("--format: json"));
  }
  CHECK_THROWS_WITH(run({"--plan", "--sweep=batch=1..2", "--memory=1MB"}), contains("give one"));
  paper::MemoryOptions single;
  single.recipe.strategy = optim::Strategy::single;
  CHECK_THROWS_WITH(run({"--sweep=reshard"}, single), contains("--parallel.strategy fsdp"));
  CHECK_THROWS_WITH(run({"--sweep=world=1..2"}, single), contains("--parallel.strategy fsdp"));
  paper::MemoryOptions lora{.recipe = {.strategy = optim::Strategy::fsdp}};
  lora.recipe.lora.rank = 4;
  CHECK_THROWS_WITH(run({"--sweep=batch=1..2"}, lora), contains("lora.rank"));
}

}  // namespace fsdp::testing::planner_commands
