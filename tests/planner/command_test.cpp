// The planner's modes as a user calls them.
#include "planner/planner.h"
#include "planner/quantity.h"
#include "planner/which_strategy.h"
#include "support/catch.h"

#include <string>
#include <vector>

namespace fsdp::testing::planner_commands {
namespace {

using planner::PlannerLine;

std::string run(std::vector<const char*> words, const estimate::MemoryOptions& base = {}) {
  program::OptionParser parser("test", "");
  PlannerLine line;
  line.declare(parser);
  parser.add_text("--memory", line.memory, "");
  parser.add_choice("--format", line.format, {"text", "json"}, "");
  words.insert(words.begin(), "test");
  REQUIRE_FALSE(parser.parse(static_cast<int>(words.size()), words.data()));
  REQUIRE(line.is_mode());
  return run_mode(line, nn::TransformerConfig::nano(), "nano", base);
}

}  // namespace

TEST_CASE("Quantities are read with their units") {
  CHECK(planner::parse_bytes("x", "80GB") == 80'000'000'000);
  CHECK(planner::parse_bytes("x", "40GiB") == std::int64_t{40} << 30);
  CHECK(planner::parse_bytes("x", "1.5KiB") == 1536);
  CHECK(planner::parse_bytes("x", "512") == 512);
  CHECK(planner::parse_rate("x", "400T") == 400e12);
  CHECK(planner::parse_rate("x", "50GB/s") == 50e9);
  CHECK(planner::parse_duration("x", "2.5us") == 2'500'000);
  CHECK(planner::parse_range("x", "8..64") == std::vector<std::int64_t>{8, 16, 32, 64});
  CHECK(planner::parse_range("x", "3..7") == std::vector<std::int64_t>{3, 6});
  for (const char* wrong : {"", "GB", "-1GB", "0", "80 GB", " 80GB", "80Gb", "nan", "1e99"}) {
    CHECK_THROWS_WITH(planner::parse_bytes("--memory", wrong), contains("--memory: is"));
  }
}

TEST_CASE("A plan says what is best, why, and what else costs") {
  const std::string text = run({"--plan", "--memory=1MB", "--ranks=1..4", "--global-batch=8"});
  for (const char* part : {"Nothing is both faster and smaller", "The fastest:", "binds", "peak",
                           "The next best:", "With another choice", "micro-batch"}) {
    CHECK_THAT(text, contains(part));
  }
  const std::string json =
      run({"--plan", "--memory=1MB", "--ranks=1..4", "--global-batch=8", "--format=json"});
  for (const char* part : {"\"front\"", "\"step_ps\"", "\"device_kinds\"", "\"alternatives\""}) {
    CHECK_THAT(json, contains(part));
  }
}

TEST_CASE("The largest batch and a sweep are printed") {
  CHECK_THAT(run({"--largest=batch", "--memory=1MB"}), contains("largest micro-batch:"));
  CHECK_THAT(run({"--sweep=batch=1..4"}), contains("SHARDED_PARAM"));
}

TEST_CASE("The largest model grows with W for what is sharded, and for nothing else") {
  const auto blocks = [](estimate::Placement placement, int ranks) {
    estimate::MemoryOptions options;
    options.placement = placement;
    options.world_size = ranks;
    return planner::most_blocks(nn::TransformerConfig::nano(), options, 4'000'000);
  };
  using enum estimate::Placement;
  CHECK(blocks(ddp, 2) == blocks(ddp, 8));
  CHECK(blocks(ddp, 2) < blocks(zero1, 2));
  CHECK(blocks(zero1, 8) < blocks(zero2, 8));
  CHECK(blocks(zero2, 8) < blocks(sharded, 8));
  CHECK(blocks(sharded, 2) < blocks(sharded, 8));
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
  CHECK_THROWS_WITH(run({"--plan", "--sweep=batch=1..2", "--memory=1MB"}), contains("give one"));
  estimate::MemoryOptions single;
  single.placement = estimate::Placement::single;
  CHECK_THROWS_WITH(run({"--sweep=world=1..2"}, single), contains("--parallel.strategy fsdp"));
  estimate::MemoryOptions lora;
  lora.lora_rank = 4;
  CHECK_THROWS_WITH(run({"--sweep=batch=1..2"}, lora), contains("lora.rank"));
}

}  // namespace fsdp::testing::planner_commands
