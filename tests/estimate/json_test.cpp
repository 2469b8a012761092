// Every number of an estimate's JSON is the formula's, or the log's where no formula says it.
#include "base/types.h"
#include "estimate/modes.h"
#include "paper/memory_formula.h"
#include "report/memory_curve.h"
#include "train/bound.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

namespace fsdp::estimate {
namespace {

using paper::MemoryFormula;
using paper::MemorySnapshot;
using paper::MicroStepMemory;
using paper::StepMemory;
using Json = nlohmann::json;

/// Numbers by their place in the JSON.
class Expected {
 public:
  explicit Expected(const Estimate& made)
      : made_(made),
        formula_(made.config.train.model, train::memory_options(made.config.train)),
        scratch_(static_cast<std::int64_t>(kScratchBytes) *
                 made.config.train.parallel.threads_per_rank) {
    put("/schema", 1);
    put("/parameters", made.config.train.model.parameter_count());
    configuration();
    order();
    for (int i = 0; i < kIterations; ++i) iteration(i);
    allocator();
    peak();
    opinion();
    for (std::size_t i = 0; i < made.savings.size(); ++i) {
      const std::int64_t after = made.savings[i].peak;  // modes_test.cpp runs each
      put(fmt::format("/savings/{}/peak", i), after);
      put(fmt::format("/savings/{}/saved", i), formula_.peak(kIterations).total() - after);
    }
  }

  /// The first number of the JSON that is another one, or that nothing is expected of.
  std::string difference(const Json& json) const {
    const Json flat = json.flatten();
    for (const auto& [place, value] : flat.items()) {
      if (!value.is_number() || is_apart(place, json)) continue;
      const auto found = numbers_.find(place);
      if (found == numbers_.end()) return fmt::format("{} is not compared", place);
      if (value.get<double>() != found->second)
        return fmt::format("{} is {}, not {}", place, value.dump(), found->second);
    }
    return {};
  }

 private:
  void put(const std::string& place, std::int64_t value) {
    numbers_[place] = static_cast<double>(value);
  }
  void put(const std::string& place, const Breakdown& bytes) {
    for (int i = 0; i < kMemoryKinds; ++i) {
      const auto kind = static_cast<MemoryKind>(i);
      put(fmt::format("{}/{}", place, lower_name_of(kind)), bytes[kind]);
    }
    put(place + "/total", bytes.total());
  }

  /// What no formula says: modules inside of units, the local peaks of a unit, and this process.
  static bool is_apart(const std::string& place, const Json& json) {
    if (place == "/resident_bytes") return true;
    if (place.find("/modules/") == std::string::npos) return false;
    if (place.find("/PEAK_") != std::string::npos) return true;
    const std::string module = place.substr(0, place.find('/', place.find("/modules/") + 9));
    return !json.at(Json::json_pointer(module + "/is_unit")).get<bool>();
  }

  void configuration() {
    const config::TrainConfig& config = made_.config.train;
    put("/config/rank", made_.config.rank);
    put("/config/granularity", 1);
    put("/config/memory_limit", 0);
    put("/config/micro_batches",
        config.training.global_batch_size / config.training.local_batch_size / config.recipe.ranks);
    put("/config/sequence_length", config.training.seq_len);
  }

  std::int64_t tokens_and_targets() const {
    const config::TrainingConfig& training = made_.config.train.training;
    return std::int64_t{2} * 4 * training.local_batch_size * training.seq_len;
  }

  void order() {
    const std::int64_t model = formula_.before_training().total();
    const std::int64_t built = model - scratch_;
    const std::int64_t inputs = model + tokens_and_targets();
    const std::array<std::int64_t, 4> held{0, model, model, inputs};
    const std::array<std::int64_t, 4> highest{0, std::max(built, model), model, inputs};
    for (std::size_t i = 0; i < held.size(); ++i) {
      put(fmt::format("/order/{}/held", i), held.at(i));
      put(fmt::format("/order/{}/highest", i), highest.at(i));
    }
  }

  void iteration(int i) {
    const std::string place = fmt::format("/iterations/{}", i);
    const StepMemory step = formula_.step(i);
    const Breakdown before = i == 0 ? formula_.before_training() : formula_.step(i - 1).at_rest;
    put(place + "/before", before);
    put(place + "/peak", step.peak());
    put(place + "/after", step.at_rest);
    put(place + "/highest_of_each_kind", highest_of_each_kind(i, before));
    put(place + "/host_peak", Breakdown{});
    put(place + "/host_after", Breakdown{});
    // A warm-up over four steps, from nothing.
    numbers_[place + "/learning_rate"] = made_.config.train.schedule.lr * (i + 1) / 4;
    phases(place + "/phases", i, before);
    modules(place + "/modules", step.micro_steps.back());
  }

  /// From the log of a virtual clock. What is allocated while an iteration ends counts to it.
  Breakdown highest_of_each_kind(int i, const Breakdown& before) const {
    Breakdown highest = before;
    const std::int64_t begin = i == 0 ? 0 : made_.run.ended.at(static_cast<std::size_t>(i) - 1);
    const std::int64_t end = made_.run.ended.at(static_cast<std::size_t>(i));
    for (const report::MemoryPoint& point : report::memory_curve(made_.run.record.ranks[0])) {
      if (point.time < begin || point.time > end || (point.time == begin && i > 0)) continue;
      for (std::size_t kind = 0; kind < highest.nbytes.size(); ++kind) {
        highest.nbytes[kind] = std::max(highest.nbytes[kind], point.bytes.nbytes[kind]);
      }
    }
    return highest;
  }

  void phases(const std::string& place, int i, const Breakdown& before) {
    const StepMemory step = formula_.step(i);
    std::vector<std::pair<int, Breakdown>> all;  // by micro-step
    Breakdown inputs = before;
    inputs[MemoryKind::activation] += tokens_and_targets();
    all.emplace_back(-1, inputs);
    for (std::size_t m = 0; m < step.micro_steps.size(); ++m) {
      all.emplace_back(m, step.micro_steps[m].forward_peak);
      all.emplace_back(m, step.micro_steps[m].backward_peak);
    }
    // The gradients of all shards lie beside what is held anyway; the counters of the norm come
    // and go, and then comes the optimizer's state.
    Breakdown gradients = before;
    gradients[MemoryKind::sharded_grad] = before[MemoryKind::sharded_param];
    all.emplace_back(-1, gradients);
    Breakdown clip = gradients;
    clip[MemoryKind::temp] += std::int64_t{514} * 8;
    all.emplace_back(-1, clip);
    Breakdown optimizer = gradients;
    optimizer[MemoryKind::optimizer] = 2 * before[MemoryKind::sharded_param];
    all.emplace_back(-1, optimizer);
    for (std::size_t n = 0; n < all.size(); ++n) {
      put(fmt::format("{}/{}/micro_step", place, n), all[n].first);
      put(fmt::format("{}/{}/peak", place, n), all[n].second);
    }
  }

  void modules(const std::string& place, const MicroStepMemory& last) {
    const std::vector<ModuleMemory>& all = made_.run.iterations[1].modules;
    for (const MemorySnapshot& each : last.snapshots) {
      const auto module = std::ranges::find(all, each.module, &ModuleMemory::name);
      REQUIRE(module != all.end());
      put(fmt::format("{}/{}/states/{}", place, module - all.begin(), name_of(each.state)),
          each.bytes);
    }
  }

  void allocator() {
    const std::int64_t most = formula_.peak(kIterations).total();
    put("/answer/active", most);
    put("/answer/reserved", most);
    put("/answer/outside", 0);
    put("/answer/memory", kCardBytes);
    put("/answer/margin", 0);
    put("/allocator/peak_active", most);
    put("/allocator/peak_reserved", most);
    put("/allocator/num_retries", 0);
    put("/allocator/scratch", scratch_);
    put("/allocator/fragmentation", 0);
    put("/allocator/tracker_max", most);
    put("/allocator/tracker_accuracy", 1);
  }

  void peak() {
    const report::RankRecord& rank = made_.run.record.ranks[0];
    const bool is_first = formula_.step(0).peak().total() >= formula_.step(1).peak().total();
    put("/peak/iteration", is_first ? 0 : 1);
    put("/peak/events", std::ssize(rank.memory));
    const StepMemory step = formula_.step(is_first ? 0 : 1);
    int micro_step = -1;
    for (int m = static_cast<int>(step.micro_steps.size()); m-- > 0;) {
      const MicroStepMemory& each = step.micro_steps[static_cast<std::size_t>(m)];
      const std::int64_t most = std::max(each.forward_peak.total(), each.backward_peak.total());
      if (most == step.peak().total()) micro_step = m;
    }
    put("/peak/micro_step", micro_step);
    // From the log: the entry that made it, and who held what then.
    std::map<std::pair<std::string, MemoryKind>, std::int64_t> held, at_peak;
    std::int64_t total = 0, highest = 0, last = 0;
    const std::vector<std::string> units = report::units_of(made_.run.record);
    for (const report::MemoryChange& change : report::memory_changes(rank)) {
      held[{report::unit_of(change.owner, units), change.kind}] += change.delta;
      total += change.delta;
      if (total <= highest) continue;
      highest = total;
      last = change.delta;
      at_peak = held;
    }
    put("/peak/last_allocation/nbytes", last);
    std::vector<std::int64_t> sizes;
    for (const auto& [who, nbytes] : at_peak) {
      if (nbytes > 0) sizes.push_back(nbytes);
    }
    std::ranges::sort(sizes, std::greater<>());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      put(fmt::format("/peak/held_by/{}/nbytes", i), sizes[i]);
    }
  }

  void opinion() {
    const std::int64_t micro_steps = std::ssize(formula_.step(0).micro_steps);
    const std::int64_t units = made_.config.train.model.num_hidden_layers + 3;  // with the root
    put("/formula/compared", kIterations * (micro_steps * (units * nn::kCallStates + 2) + 2));
    for (int i = 0; i < kIterations; ++i) {
      put(fmt::format("/formula/peaks/{}", i), formula_.step(i).peak());
    }
  }

  const Estimate& made_;
  MemoryFormula formula_;
  std::int64_t scratch_;
  std::map<std::string, double> numbers_;
};

}  // namespace

TEST_CASE("every number of an estimate's JSON is that of the formula", "[estimator][json]") {
  for (const char* ranks : {"2", "3", "5"}) {
    const Estimate made =
        estimated({"--model.preset=nano", "--parallel.strategy=fsdp",
                   std::string("--parallel.ranks=") + ranks, "--training.local_batch_size=3",
                   fmt::format("--training.global_batch_size={}", 3 * 2 * std::stoi(ranks)),
                   "--training.seq_len=7", "--parallel.threads_per_rank=2", "--optimizer.lr=3e-3",
                   "--lr_scheduler.kind=warmup_linear", "--lr_scheduler.warmup_steps=4"});
    const Json json = Json::parse(to_json(made));
    const Expected expected(made);
    CHECK(expected.difference(json) == "");
    Json flat = json.flatten();
    int noticed = 0;
    for (auto& value : flat) {
      if (!value.is_number()) continue;
      const Json right = value;
      value = right.get<double>() + 1;
      noticed += expected.difference(flat.unflatten()).empty() ? 0 : 1;
      value = right;
      if (noticed > 20) break;
    }
    CHECK(noticed > 20);
    CHECK(std::ranges::is_sorted(made.savings, std::greater<>(), &Saving::saved));
  }
}

TEST_CASE("an estimate's JSON tells apart what is equal in most runs", "[estimator][json]") {
  const Estimate made = with_distinct_numbers();
  const Json json = Json::parse(to_json(made));
  REQUIRE(json.at("order").size() == made.run.stages.size());
  for (std::size_t i = 0; i < made.run.stages.size(); ++i) {
    CHECK(json.at("order")[i].at("held") == made.run.stages[i].held);
    CHECK(json.at("order")[i].at("highest") == made.run.stages[i].highest);
  }
  for (std::size_t i = 0; i < kIterations; ++i) {
    const IterationMemory& iteration = made.run.iterations.at(i);
    const Json& found = json.at("iterations")[i];
    CHECK(found.at("host_peak").at("total") == iteration.host_peak.total());
    CHECK(found.at("host_after").at("total") == iteration.host_after.total());
    CHECK(json.at("formula").at("host_peaks")[i].at("total") ==
          made.opinion.host_peaks.at(i).total());
  }
  const Json& counts = json.at("allocator");
  CHECK(counts.at("peak_active") == made.run.allocator.peak_active);
  CHECK(counts.at("peak_reserved") == made.run.allocator.peak_reserved);
  CHECK(counts.at("scratch") == made.run.allocator.scratch);
  CHECK(counts.at("tracker_max") == made.run.tracker_max());
  CHECK(counts.at("tracker_accuracy") == made.run.tracker_accuracy());
  CHECK(counts.at("fragmentation") == made.run.allocator.fragmentation());
}

TEST_CASE("the gradient that makes the peak is named after its parameter", "[estimator]") {
  const Estimate made =
      estimated({"--model.preset=tiny", "--parallel.strategy=zero2", "--parallel.ranks=4"});
  CHECK(made.last.kind == MemoryKind::unsharded_grad);
  CHECK(made.last.unit == "lm_head.weight");
}

TEST_CASE("of many units the text shows the first, the last, and the highest", "[estimator]") {
  Estimate made = estimated({"--model.preset=tiny", "--model.num_hidden_layers=9",
                             "--parallel.strategy=fsdp", "--parallel.ranks=2"});
  std::vector<ModuleMemory*> units;
  for (ModuleMemory& each : made.run.iterations.at(1).modules) {
    if (each.is_unit) units.push_back(&each);
  }
  REQUIRE(units.size() > 8);
  const auto shows = [&made](const ModuleMemory& unit) {
    const std::string text = to_text(made, Detail::few_modules);
    const std::size_t begin = text.find("Modules and states");
    const std::string table = text.substr(begin, text.find("Summary") - begin);
    return table.find('\n' + unit.name + "  ") != std::string::npos;
  };
  const std::int64_t more = made.run.tracker_max();
  for (const MemoryKind kind : {MemoryKind::activation, MemoryKind::temp}) {
    for (const std::size_t column : {kPeakForward, kPeakBackward}) {
      Breakdown& bytes = units[5]->columns[column];
      const Breakdown right = bytes;
      CHECK_FALSE(shows(*units[5]));
      bytes[kind] += more;
      CHECK(shows(*units[5]));
      bytes = right;
    }
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    INFO(units[i]->name);
    const bool is_at_an_end = i < 4 || i + 2 >= units.size();
    if (is_at_an_end) CHECK(shows(*units[i]));
  }
}

}  // namespace fsdp::estimate
