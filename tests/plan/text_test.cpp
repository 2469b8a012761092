// Every number that the planner prints: the text against the JSON, and the JSON against the
// formulas; where there is no JSON, the text against the formulas.
#include "paper/memory_formula.h"
#include "paper/time_formula.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "plan/quantity.h"
#include "plan/sweep.h"
#include "program/program.h"
#include "support/catch.h"
#include "support/printed_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::testing::planner_text {
namespace {

using optim::Strategy;
using paper::MemoryFormula;
using paper::MemoryOptions;
using paper::TimeFormula;
using plan::Evaluator;
using plan::Plan;
using plan::Sweep;
using Json = nlohmann::json;

const nn::TransformerConfig kNano = nn::TransformerConfig::nano();

CostModel machine_of(bool is_rich, const char* link = "2GB/s") {
  plan::MachineText text;
  text.flops = "3G";
  text.link = link;
  text.hbm = "70GB/s";
  text.latency = "3us";
  if (is_rich) {
    text.flops_16 = "7G";
    text.box = 2;
    text.far_link = "600MB/s";
    text.far_latency = "9us";
    text.bus = "4GB/s";
  }
  return text.cost_model();
}

Shown words(const Json& json) { return json.get<std::string>(); }
Shown number(const Json& json) { return json.get<double>(); }
Shown bytes(const Json& json) { return Shown::bytes(json.get<std::int64_t>()); }
Shown time(const Json& json) { return Shown::time(json.get<std::int64_t>()); }
double percent(std::int64_t part, std::int64_t whole) {
  return 100 * static_cast<double>(part) / static_cast<double>(whole);
}

/// "fsdp over 4 ranks, reshard always, prefetch 1, float32, 2 x 4 sequences per rank"
std::string described(const Json& configuration) {
  const auto value = [&](const char* key) { return configuration.at(key).get<std::string>(); };
  const auto plural = [&](const char* key) { return value(key) == "1" ? "" : "s"; };
  std::string text =
      fmt::format("{} over {} rank{}", value("strategy"), value("ranks"), plural("ranks"));
  if (value("strategy") == "fsdp") {
    if (value("replicas") != "1") {
      text += fmt::format(" ({} replicas of {} shards)", value("replicas"),
                          std::stoi(value("ranks")) / std::stoi(value("replicas")));
    }
    text += fmt::format(", reshard {}, prefetch {}", value("reshard"), value("prefetch"));
  }
  const bool may_offload = value("strategy") == "fsdp" || value("strategy").starts_with("zero");
  if (may_offload && value("offload") != "none") text += ", offload " + value("offload");
  text += fmt::format(", {}, {} x {} sequence{} per rank", value("precision"), value("micro-steps"),
                      value("micro-batch"), plural("micro-batch"));
  return text + (value("checkpointing") == "none" ? "" : ", blocks checkpointed");
}

// ------------------------------------------------------------------------------------- the sweep

std::string upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

void read_sweep(PrintedText& text, const Json& json, const std::vector<std::string>& axes,
                bool shows_world) {
  const Json& points = json.at("points");
  text.line("{}: {}", {words(json.at("model")), described(points[0].at("configuration"))});
  text.line("(the first row; peaks are of the device)");
  std::vector<std::string> kinds;
  for (const char* kind :
       {"sharded_param", "optimizer", "buffer", "sharded_grad", "unsharded_param", "all_gather",
        "unsharded_grad", "reduce_scatter", "activation", "temp"}) {
    const bool is_held = std::ranges::any_of(
        points, [&](const Json& each) { return each.at("device_kinds").at(kind) > 0; });
    if (is_held) kinds.emplace_back(kind);
  }
  std::vector<Shown> header(axes.begin(), axes.end());
  if (shows_world) header.emplace_back("world");
  header.insert(header.end(), {"step", "peak"});
  for (const std::string& kind : kinds) header.emplace_back(upper(kind));
  text.row(header);
  for (const Json& point : points) {
    std::vector<Shown> cells;
    for (const std::string& axis : axes) {
      const Json& value = point.at(axis);
      cells.push_back(value.is_string() ? words(value) : number(value));
    }
    if (shows_world) cells.push_back(number(point.at("world")));
    cells.push_back(time(point.at("step_ps")));
    cells.push_back(bytes(point.at("device_bytes")));
    for (const std::string& kind : kinds) cells.push_back(bytes(point.at("device_kinds").at(kind)));
    text.row(cells);
  }
}

/// The numbers of a configuration, as both modes print them.
void check_numbers(const Json& json, const plan::Outcome& outcome, const CostModel& machine) {
  const MemoryOptions& options = outcome.options;
  MemoryOptions busiest = options;
  busiest.rank = outcome.busiest_rank;
  const Breakdown device = MemoryFormula(kNano, options).peak(2);
  const paper::StepTime step = TimeFormula(kNano, busiest, machine).step(1);
  CHECK(json.at("step_ps") == step.total());
  CHECK(json.at("latency_ps") == step.channels.latency);
  CHECK(json.at("transfer_ps") == step.channels.transfer);
  CHECK(json.at("time_ps").size() == paper::kTimeParts);
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    const auto part = static_cast<paper::TimePart>(i);
    CHECK(json.at("time_ps").at(std::string(name_of(part))) == step.split[part]);
  }
  CHECK(json.at("device_bytes") == device.total());
  if (json.contains("host_bytes")) {  // a sweep does not tell them
    const std::int64_t host =
        std::ranges::max(paper::bound_bytes_by_rank(kNano, options, 2, paper::MemorySpace::host));
    CHECK(json.at("host_bytes") == (options.recipe.sharding.offload.is_on() ? host : 0));
  }
  CHECK(json.at("device_kinds").size() == kMemoryKinds);
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    CHECK(json.at("device_kinds").at(std::string(lower_name_of(kind))) == device[kind]);
  }
  const Json& configuration = json.at("configuration");
  CHECK(configuration.at("ranks") == std::to_string(options.recipe.ranks));
  CHECK(configuration.at("micro-steps") == std::to_string(options.recipe.micro_steps));
  CHECK(configuration.at("micro-batch") == std::to_string(options.batch));
  if (options.recipe.strategy != Strategy::fsdp) return;
  const ReshardAfterForward& reshard = options.recipe.sharding.reshard_after_forward;
  CHECK(configuration.at("reshard") == (reshard.is_within()
                                            ? "within " + std::to_string(reshard.ranks)
                                        : reshard == ReshardAfterForward::always() ? "always"
                                                                                   : "never"));
  CHECK(configuration.at("replicas") == std::to_string(options.recipe.replicas));
  CHECK(configuration.at("prefetch") == std::to_string(options.recipe.sharding.prefetch_depth));
}

}  // namespace

TEST_CASE("Every number of a sweep is that of the formulas, in JSON and in text") {
  MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
  base.recipe.ranks = 4;
  base.recipe.micro_steps = 3;
  for (const std::string what :
       {"world=2..8,batch=1..4", "replicas=1..4", "seq_len=2..8", "prefetch=1..2,reshard"}) {
    const CostModel machine = machine_of(false);
    Evaluator evaluator(kNano, machine);
    const std::vector<plan::SweepAxis> axes = plan::parse_sweep(what);
    const Sweep sweep = make_sweep(evaluator, "nano", base, axes);
    const Json json = Json::parse(sweep_json(sweep));
    CHECK(json.at("version") == program::version());
    REQUIRE(json.at("points").size() == sweep.points.size());
    std::vector<std::string> keys;
    for (const plan::SweepAxis& axis : axes) keys.push_back(axis.key);
    for (std::size_t i = 0; i < sweep.points.size(); ++i) {
      const Json& point = json.at("points")[i];
      const MemoryOptions& options = sweep.points[i].outcome.options;
      check_numbers(point, sweep.points[i].outcome, machine);
      CHECK(point.at("world") == options.recipe.ranks);
      if (point.contains("batch")) CHECK(point.at("batch") == options.batch);
      if (point.contains("replicas")) CHECK(point.at("replicas") == options.recipe.replicas);
      if (point.contains("seq_len")) CHECK(point.at("seq_len") == options.length);
      if (point.contains("prefetch"))
        CHECK(point.at("prefetch") == options.recipe.sharding.prefetch_depth);
    }
    const ReadText read = [&](PrintedText& text) {
      read_sweep(text, json, keys, what == "replicas=1..4");
    };
    CHECK(difference_of(sweep_text(sweep), read) == "");
    CHECK(unnoticed_change(sweep_text(sweep), read) == "");
  }
}

// -------------------------------------------------------------------------------------- the plan

namespace {

std::string share(std::int64_t part, std::int64_t whole) {
  return fmt::format("{:.1f} %", percent(part, whole));
}

std::int64_t step_of(const Json& outcome) { return outcome.at("step_ps"); }
std::int64_t memory_of(const Json& outcome) { return outcome.at("device_bytes"); }

bool is_waiting(const std::string& part) {
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    const auto each = static_cast<paper::TimePart>(i);
    if (name_of(each) == part) return paper::is_waiting(each);
  }
  FAIL("no part of a step is named " << part);
  return false;
}

/// "gathers 12.3 %, updates 4.5 %": the largest first, and its name.
std::pair<std::string, std::string> shares(const Json& outcome, bool waiting) {
  std::vector<std::pair<std::int64_t, std::string>> parts;
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    const std::string name(name_of(static_cast<paper::TimePart>(i)));
    const std::int64_t ps = outcome.at("time_ps").at(name);
    if (ps > 0 && is_waiting(name) == waiting) parts.emplace_back(ps, name);
  }
  std::ranges::stable_sort(parts, std::greater<>(), [](const auto& each) { return each.first; });
  std::string text;
  for (const auto& [ps, name] : parts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, share(ps, step_of(outcome)));
  }
  return {text.empty() ? "none" : text, parts.empty() ? "" : parts.front().second};
}

void read_kinds(PrintedText& text, std::string pattern, std::vector<Shown> values,
                const Json& outcome) {
  std::vector<std::pair<std::int64_t, std::string>> kinds;
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const std::int64_t nbytes = outcome.at("device_kinds").at(std::string(lower_name_of(kind)));
    if (nbytes > 0) kinds.emplace_back(nbytes, fsdp::name_of(kind));
  }
  std::ranges::stable_sort(kinds, std::greater<>(), [](const auto& each) { return each.first; });
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    pattern += i == 0 ? "{} {}" : ", {} {}";
    values.insert(values.end(), {kinds[i].second, Shown::bytes(kinds[i].first)});
  }
  text.line(pattern, values);
}

void read_outcome(PrintedText& text, const Json& outcome) {
  text.row({time(outcome.at("step_ps")), bytes(outcome.at("device_bytes")),
            described(outcome.at("configuration"))});
}

/// "+1.23 % time, -4.56 kB memory"
void read_difference(PrintedText& text, std::string pattern, std::vector<Shown> values,
                     const Json& best, const Json& other) {
  const std::int64_t more = memory_of(other) - memory_of(best);
  pattern += "{}{} % time, {}{} memory";
  const double slower = percent(step_of(other) - step_of(best), step_of(best));
  values.insert(values.end(), {slower < 0 ? "-" : "+", std::abs(slower), more < 0 ? "-" : "+",
                               Shown::bytes(std::abs(more))});
  text.line(pattern, values);
}

void read_machine(PrintedText& text, const Json& json) {
  const Json& machine = json.at("machine");
  std::string pattern = "{} per rank: {} TFLOP/s";
  std::vector<Shown> values{bytes(json.at("memory_bytes"))};
  const auto add = [&](const std::string& words, const char* key, double unit) {
    pattern += words;
    values.emplace_back(machine.at(key).get<double>() / unit);
  };
  add("", "flops_per_second", 1e12);
  if (machine.at("flops_16_per_second").is_null()) {
    pattern += " in every format";
  } else {
    add(" and {} in 16 bits", "flops_16_per_second", 1e12);
  }
  add(", memory {} GB/s", "memory_bytes_per_second", 1e9);
  add(", link {} GB/s and {}", "link_bytes_per_second", 1e9);
  values.push_back(time(machine.at("latency_ps")));
  if (machine.at("ranks_per_box") > 0) {
    add(", boxes of {}", "ranks_per_box", 1);
    add(" with {} GB/s and {} between them", "far_link_bytes_per_second", 1e9);
    values.push_back(time(machine.at("far_latency_ps")));
  }
  if (!machine.at("bus_bytes_per_second").is_null()) {
    add(", bus {} GB/s", "bus_bytes_per_second", 1e9);
  }
  text.line(pattern, values);
}

void read_best(PrintedText& text, const Json& json) {
  const Json& best = json.at("front")[0];
  const std::int64_t step = step_of(best);
  text.line("The fastest: {}", {described(best.at("configuration"))});
  std::int64_t waits = 0;
  for (const auto& [part, ps] : best.at("time_ps").items()) {
    waits += is_waiting(part) ? ps.get<std::int64_t>() : 0;
  }
  if (2 * waits < step) {
    text.line("  computation binds: {} % of the step; a rank waits {} % of it",
              {percent(step - waits, step), percent(waits, step)});
  } else {
    text.line("  waiting for {} binds, and of it the {}: a rank waits {} % of the step",
              {shares(best, true).second,
               best.at("latency_ps") > best.at("transfer_ps") ? "latency of the hops"
                                                              : "speed of the link",
               percent(waits, step)});
  }
  text.line("  computing: {}", {shares(best, false).first});
  text.line("  waiting: {}", {shares(best, true).first});
  const std::int64_t latency = best.at("latency_ps"), transfer = best.at("transfer_ps");
  text.line("  links in use {} %: {} transfer, {} latency",
            {percent(latency + transfer, step), Shown::time(transfer), Shown::time(latency)});
  read_kinds(text,
             "  peak {} of {}: ", {bytes(best.at("device_bytes")), bytes(json.at("memory_bytes"))},
             best);
  const Json& larger = json.at("larger_micro_batch");
  if (larger.is_null()) return;
  text.line("  a micro-batch of {}: {} and {}{}",
            {words(larger.at("configuration").at("micro-batch")), bytes(larger.at("device_bytes")),
             time(larger.at("step_ps")),
             larger.at("device_bytes") > json.at("memory_bytes") ? ", so memory binds it" : ""});
}

void read_plan(PrintedText& text, const Json& json) {
  text.line("{} ({} parameters), {} sequences of {} tokens per step",
            {words(json.at("model")), number(json.at("parameters")),
             number(json.at("global_batch")), number(json.at("sequence_length"))});
  read_machine(text, json);
  text.line("{} configurations, of which {} fit",
            {number(json.at("configurations")), number(json.at("fitting"))});
  if (json.at("front").empty()) {
    text.line("None fits. The least memory is that of");
    read_outcome(text, json.at("smallest"));
    return read_kinds(text, "  peak: ", {}, json.at("smallest"));
  }
  text.rule();
  text.line("Nothing is both faster and smaller than one of these:");
  for (const Json& each : json.at("front")) read_outcome(text, each);
  text.rule();
  read_best(text, json);
  const Json& best = json.at("front")[0];
  if (!json.at("next_best").is_null()) {
    text.rule();
    text.line("The next best: {}", {described(json.at("next_best").at("configuration"))});
    read_difference(text, "  ", {}, best, json.at("next_best"));
  }
  text.rule();
  text.line("With another choice, the fastest that fits:");
  for (const Json& each : json.at("alternatives")) {
    const std::string choice = fmt::format("  {:<14} {:<36} ", each.at("choice").get<std::string>(),
                                           each.at("value").get<std::string>());
    if (each.at("fastest").is_null()) {
      text.line("{}nothing fits", {choice});
    } else {
      read_difference(text, "{}", {choice}, best, each.at("fastest"));
    }
  }
}

Plan plan_of(Evaluator& evaluator, std::int64_t memory, const char* ranks, std::int64_t batch,
             const MemoryOptions& base) {
  const CostModel& machine = evaluator.machine();
  return make_plan(evaluator, {.model_name = "nano",
                               .base = base,
                               .memory = memory,
                               .ranks = plan::parse_range("x", ranks),
                               .global_batch = batch,
                               .has_bus = machine.bus_ps_per_byte > 0,
                               .ranks_per_box = machine.ranks_per_box});
}

}  // namespace

TEST_CASE("Every number of a plan is that of the formulas, in JSON and in text") {
  struct Case {
    std::int64_t memory, batch, length;
    const char* ranks;
    bool is_rich;
    double gigabytes_per_second = 2;  // so slow that waiting binds: 0.02
  };
  bool is_larger_seen = false, waits = false;
  for (const Case& each : {Case{700'000, 8, 0, "1..4", false},
                           {420'000, 16, 8, "4", true},
                           {3'000'000, 3, 0, "1", false},
                           {340'000, 32, 0, "4", false},
                           {700'000, 8, 0, "4", false, 0.02},
                           {10'000, 2, 0, "1..2", true}}) {
    const std::string link = fmt::format("{}GB/s", each.gigabytes_per_second);
    const CostModel machine = machine_of(each.is_rich, link.c_str());
    Evaluator evaluator(kNano, machine);
    MemoryOptions base{.recipe = {.strategy = optim::Strategy::fsdp}};
    base.length = each.length;
    const Plan plan = plan_of(evaluator, each.memory, each.ranks, each.batch, base);
    const Json json = Json::parse(plan_json(plan, evaluator));
    CHECK(json.at("version") == program::version());
    CHECK(json.at("parameters") == kNano.parameter_count());
    CHECK(json.at("global_batch") == each.batch);
    CHECK(json.at("sequence_length") ==
          (each.length == 0 ? kNano.max_position_embeddings : each.length));
    CHECK(json.at("memory_bytes") == each.memory);
    CHECK(json.at("configurations") == candidates(plan.request).size());
    CHECK(json.at("fitting") == std::ranges::count_if(plan.outcomes, [&](const auto& outcome) {
            return MemoryFormula(kNano, outcome.options).peak(2).total() <= each.memory;
          }));
    const Json& described_machine = json.at("machine");
    CHECK(described_machine.at("flops_per_second").get<double>() == Catch::Approx(3e9));
    CHECK(described_machine.at("memory_bytes_per_second").get<double>() == Catch::Approx(70e9));
    CHECK(described_machine.at("link_bytes_per_second").get<double>() ==
          Catch::Approx(1e9 * each.gigabytes_per_second));
    CHECK(described_machine.at("latency_ps") == 3'000'000);
    if (each.is_rich) {
      CHECK(described_machine.at("flops_16_per_second").get<double>() == Catch::Approx(7e9));
      CHECK(described_machine.at("ranks_per_box") == 2);
      CHECK(described_machine.at("far_link_bytes_per_second").get<double>() ==
            Catch::Approx(600e6));
      CHECK(described_machine.at("far_latency_ps") == 9'000'000);
      CHECK(described_machine.at("bus_bytes_per_second").get<double>() == Catch::Approx(4e9));
    }
    for (std::size_t i = 0; i < plan.front.size(); ++i) {
      check_numbers(json.at("front")[i], plan.outcomes[plan.front[i]], machine);
    }
    for (std::size_t i = 0; i < plan.alternatives.size(); ++i) {
      const plan::Alternative& other = plan.alternatives[i];
      const bool fits = other.index != plan::Alternative::kNone;
      const Json& fastest = json.at("alternatives")[i].at("fastest");
      REQUIRE(fits != fastest.is_null());
      if (fits) check_numbers(fastest, plan.outcomes[other.index], machine);
    }
    if (!plan.is_feasible()) check_numbers(json.at("smallest"), plan.smallest(), machine);
    is_larger_seen = is_larger_seen || !json.at("larger_micro_batch").is_null();
    const std::string text = plan_text(plan, evaluator);
    waits = waits || text.find("  waiting for ") != std::string::npos;
    const ReadText read = [&](PrintedText& lines) { read_plan(lines, json); };
    CHECK(difference_of(text, read) == "");
    CHECK(unnoticed_change(text, read) == "");
  }
  CHECK(is_larger_seen);
  CHECK(waits);
}

}  // namespace fsdp::testing::planner_text
