// What the page to play with computes is what a sweep of unshard-estimate prints, and what it draws
// adds up to it.
#include "playground/page.h"

#include "nn/transformer_config.h"
#include "plan/evaluator.h"
#include "support/catch.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace fsdp;
using nlohmann::json;

namespace {

struct Case {
  std::string strategy;
  int world = 1;
  std::string more;  // further lines
  std::function<void(paper::MemoryOptions&)> change = [](auto&) {};
};

// Traffic decides the time of most kernels on the first one, and arithmetic on the second.
struct Machine {
  std::string lines;
  CostModel model;
};
std::vector<Machine> machines() {
  constexpr double kHost = kHostPsPerByte;
  return {{"flops 400e12\nhbm 2e12\nlink 50e9\nlatency 5000000\nbus 25e9\n",
           {.ps_per_flop = 1e12 / 400e12,
            .ps_per_byte = 1e12 / 2e12,
            .alpha_ps = 5'000'000,
            .link_ps_per_byte = 1e12 / 50e9,
            .bus_ps_per_byte = 1e12 / 25e9,
            .host_ps_per_byte = kHost}},
          {"flops 1e12\nhbm 8e12\nlink 3e9\nlatency 20000000\nbus 60e9\n",
           {.ps_per_flop = 1e12 / 1e12,
            .ps_per_byte = 1e12 / 8e12,
            .alpha_ps = 20'000'000,
            .link_ps_per_byte = 1e12 / 3e9,
            .bus_ps_per_byte = 1e12 / 60e9,
            .host_ps_per_byte = kHost}}};
}

std::vector<Case> all_cases() {
  using optim::Checkpointing;
  std::vector<Case> all{{"single", 1, ""}};
  const auto checkpointing = [](Checkpointing how) {
    return [how](paper::MemoryOptions& o) { o.recipe.checkpointing = how; };
  };
  for (const int world : {1, 2, 3, 4, 64}) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      all.push_back({strategy, world, ""});
    }
    all.push_back({"fsdp", world, "reshard false\nprefetch 0\n", [](paper::MemoryOptions& o) {
                     o.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
                     o.recipe.sharding.prefetch_depth = 0;
                   }});
    all.push_back({"fsdp", world, "checkpoint around\nprefetch 2\n", [](paper::MemoryOptions& o) {
                     o.recipe.checkpointing = Checkpointing::around;
                     o.recipe.sharding.prefetch_depth = 2;
                   }});
    all.push_back(
        {"ddp", world, "checkpoint operations\n", checkpointing(Checkpointing::operations)});
    all.push_back({"zero2", world, "checkpoint inside\n", checkpointing(Checkpointing::inside)});
    all.push_back({"fsdp", world, "offload true\n",
                   [](paper::MemoryOptions& o) { o.recipe.sharding.offload.params = true; }});
    all.push_back({"zero1", world, "offload true\n",
                   [](paper::MemoryOptions& o) { o.recipe.sharding.offload.optimizer = true; }});
  }
  for (const int world : {4, 64}) {
    all.push_back(
        {"fsdp", world, "replicas 2\n", [](paper::MemoryOptions& o) { o.recipe.replicas = 2; }});
  }
  return all;
}

paper::MemoryOptions options_of(const Case& each, const std::string& model_name) {
  paper::MemoryOptions options;
  for (const auto strategy : {optim::Strategy::single, optim::Strategy::ddp, optim::Strategy::zero1,
                              optim::Strategy::zero2, optim::Strategy::fsdp}) {
    if (each.strategy == name_of(strategy)) options.recipe.strategy = strategy;
  }
  options.recipe.ranks = each.world;
  options.recipe.clip = 1;
  options.batch = 2;
  options.length = model_name == "nano" ? 8 : 48;
  each.change(options);
  return options;
}

/// Picoseconds by what is drawn for them.
std::map<std::string, std::int64_t> drawn(const json& page) {
  std::map<std::string, std::int64_t> sums;
  for (const json& span : page["spans"]) {
    const std::string stream = span[0];
    const bool is_channel = stream == "link" || stream == "far_link";
    const std::string name = is_channel ? "link" : stream == "bus" ? "bus" : std::string(span[1]);
    sums[name] += span[4].get<std::int64_t>() - span[3].get<std::int64_t>();
  }
  return sums;
}

void check_drawn(const json& page, const plan::Outcome& outcome) {
  std::map<std::string, std::int64_t> sums = drawn(page);
  CHECK(sums["link"] == outcome.time.channels.latency + outcome.time.channels.transfer);
  CHECK((sums["bus"] > 0) == outcome.options.recipe.sharding.offload.is_on());
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    const auto part = static_cast<paper::TimePart>(i);
    const std::string name(name_of(part));
    CHECK(page["spent"][name] == outcome.time.split[part]);
    CHECK(sums[name] == outcome.time.split[part]);
  }
  std::int64_t highest = 0, before = 0;
  bool is_in_order = true;
  for (const json& point : page["curve"]) {
    highest = std::max(highest, point[1].get<std::int64_t>());
    const std::int64_t now = point[0];
    is_in_order &= before <= now;
    before = now;
  }
  CHECK(is_in_order);
  CHECK(before <= outcome.step());
  if (outcome.busiest_rank == outcome.options.rank) CHECK(highest == outcome.device.total());
  CHECK(highest <= outcome.device.total());
}

}  // namespace

TEST_CASE("The playground shows the bytes and times of a sweep, and draws what adds up to them") {
  int number = 0;
  for (const Case& each : all_cases()) {
    const std::string name = number % 3 == 0 ? "nano" : number % 3 == 1 ? "tiny" : "llama_124m";
    const Machine machine = machines()[static_cast<std::size_t>(number % 2)];
    const bool is_mixed = number++ % 4 >= 2;
    paper::MemoryOptions options = options_of(each, name);
    if (is_mixed) options.recipe.precision = {DType::bfloat16, DType::float32};
    CAPTURE(each.strategy, each.world, each.more, name, is_mixed);
    const plan::Outcome outcome =
        plan::Evaluator(nn::model_presets().at(name), machine.model).evaluate(options);
    const json page = json::parse(playground::step_json(
        fmt::format("model {}\nstrategy {}\nworld {}\nbatch {}\nlength {}\n{}{}{}", name,
                    each.strategy, each.world, options.batch, options.length,
                    is_mixed ? "param bfloat16\nreduce float32\n" : "", each.more, machine.lines)));
    for (int i = 0; i < kMemoryKinds; ++i) {
      const auto kind = static_cast<MemoryKind>(i);
      CHECK(page["peak"][std::string(lower_name_of(kind))] == outcome.device[kind]);
    }
    CHECK(page["peak"]["total"] == outcome.device.total());
    CHECK(page["host"] == outcome.host.total());
    CHECK(page["step"] == outcome.step());
    check_drawn(page, outcome);
  }
}

TEST_CASE("The playground says when the peak comes, and what each stretch of time is spent on") {
  const json page =
      json::parse(playground::step_json("model tiny\nstrategy fsdp\nworld 4\nbatch 8\nlength 128\n"
                                        "flops 1e12\nhbm 1e12\nlink 1e9\nlatency 1000000\n"));
  CHECK(page["peak"]["moment"] == "backward of the head");
  std::vector<std::string> gathered;
  for (const json& span : page["spans"]) {
    if (span[0] == "link" && span[1] == "gathers") gathered.push_back(span[2]);
  }
  CHECK(gathered == std::vector<std::string>{"embedding", "block 0", "block 1", "block 2",
                                             "block 3", "head", "block 3", "block 2", "block 1",
                                             "block 0", "embedding"});
  CHECK(page["spans"][0][1] == "gathers");
  CHECK(page["spans"].back()[1] == "optimizer");
}

TEST_CASE("The playground names its models") {
  const json models = json::parse(playground::models_json());
  CHECK(models.size() == nn::model_presets().size());
  for (const json& each : models) {
    const nn::TransformerConfig& model = nn::model_presets().at(each["name"]);
    CHECK(each["parameters"] == model.parameter_count());
    CHECK(each["length"] == model.max_position_embeddings);
  }
}

TEST_CASE("The playground refuses a setting that means nothing") {
  const auto message = [](const char* setting) {
    return message_of<InputError>([&] { playground::step_json(setting); });
  };
  CHECK_THAT(message("world"), contains("'world' is no key and value"));
  CHECK_THAT(message("wrld 4"), contains("no setting is called 'wrld'"));
  CHECK_THAT(message("model gpt"), contains("model cannot be 'gpt'"));
  CHECK_THAT(message("batch two"), contains("batch is 'two', must be a whole number"));
  CHECK_THAT(message("link 0"), contains("link is '0', must be a positive number"));
  CHECK_THAT(message("strategy single\nworld 2"), contains("one process"));
}
