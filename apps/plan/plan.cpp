#include "plan/plan.h"

#include "base/check.h"
#include "device/thread_pool.h"
#include "paper/memory_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

namespace fsdp::plan {

using paper::Checkpointing;
using paper::MemoryOptions;
using paper::Strategy;

namespace {

const optim::MixedPrecision kPolicies[] = {
    {}, {DType::bfloat16, DType::float32}, {DType::bfloat16, DType::bfloat16}};
constexpr optim::Offload kOffloads[] = {
    {}, {.params = true, .grads = false}, {.params = true, .grads = true}};
constexpr optim::Offload kOffloadsOfOwned[] = {
    {}, {.optimizer = true}, {.grads = true, .optimizer = true}};
constexpr int kDepths[] = {0, 1, 2};

/// Calls `add` with each way of sharding.
template <class Add>
void for_each_sharding(const PlanRequest& request, const MemoryOptions& whole, const Add& add) {
  MemoryOptions options = whole;
  options.recipe.strategy = Strategy::fsdp;
  const int ranks = options.recipe.ranks;
  for (int replicas = 1; replicas < std::max(ranks, 2); replicas *= 2) {
    if (ranks % replicas != 0) continue;
    options.recipe.replicas = replicas;
    for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never(),
                               ReshardAfterForward::within(request.ranks_per_box)}) {
      if (!reshard.fits(options.recipe.shards())) continue;
      options.recipe.sharding.reshard_after_forward = reshard;
      for (const int depth : kDepths) {
        options.recipe.sharding.prefetch_depth = depth;
        for (const optim::Offload& offload : kOffloads) {
          if (offload.params && !request.has_bus) continue;
          options.recipe.sharding.offload = offload;
          add(options);
        }
      }
    }
  }
}

/// Calls `add` with each strategy over these ranks.
template <class Add>
void for_each_strategy(const PlanRequest& request, const MemoryOptions& base, const Add& add) {
  MemoryOptions whole = base;
  whole.recipe.replicas = 1;
  whole.recipe.sharding.offload = {};
  whole.recipe.sharding.reshard_after_forward = ReshardAfterForward::always();
  if (whole.recipe.ranks == 1) {
    whole.recipe.strategy = Strategy::single;
    return add(whole);
  }
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    whole.recipe.strategy = strategy;
    for (const optim::Offload& offload : kOffloadsOfOwned) {
      if (offload.is_on() && (!request.has_bus || !whole.recipe.is_zero())) continue;
      if (offload.grads && strategy != Strategy::zero2) continue;
      whole.recipe.sharding.offload = offload;
      add(whole);
    }
  }
  whole.recipe.sharding.offload = {};
  for_each_sharding(request, whole, add);
}

/// The memory of a configuration is found by a walk over its micro-batches.
void check_work(const std::vector<MemoryOptions>& all) {
  constexpr std::int64_t kMostMicroBatches =
      3'000'000;  // half a minute for models of some dozen blocks
  std::int64_t micro_batches = 0;
  for (const MemoryOptions& each : all) micro_batches += each.recipe.micro_steps;
  if (micro_batches <= kMostMicroBatches) return;
  throw InputError(fmt::format(
      "--ranks: {} configurations with {} micro-batches in all take too long to plan, at most {} "
      "are allowed; give a narrower range of --ranks, or a smaller --global-batch",
      all.size(), micro_batches, kMostMicroBatches));
}

/// What lies beside a peak is found by a slower walk, of three micro-steps at most.
void check_slow_work(const std::vector<std::size_t>& chosen, const std::vector<Outcome>& outcomes,
                     const nn::TransformerConfig& model) {
  constexpr std::int64_t kMostBlocks = 600'000;  // half a minute on two cores
  std::int64_t blocks = 0;
  for (const std::size_t i : chosen) {
    blocks += model.num_hidden_layers * std::min(outcomes[i].options.recipe.micro_steps, 3);
  }
  if (blocks <= kMostBlocks) return;
  throw InputError(fmt::format(
      "--ranks: {} configurations may fit, and walking through their {} blocks as this framework "
      "does takes too long, at most {} are allowed; give a narrower range of --ranks, or a smaller "
      "--global-batch",
      chosen.size(), blocks, kMostBlocks));
}

/// Of what lies beside the peaks, as much as must be known to find the least that is needed. After
/// kMostTried, the least so far.
std::size_t find_least(std::vector<Outcome>& outcomes, const Evaluator& evaluator) {
  std::vector<std::size_t> order(outcomes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return outcomes[i].device.total(); });
  constexpr std::size_t kMostTried = 200;
  std::size_t least = order.front(), tried = 0;
  for (const std::size_t i : order) {
    Outcome& each = outcomes[i];
    const bool may_be_less = each.device.total() + paper::kOutsideBytes < outcomes[least].memory();
    if (i != order.front() && (!may_be_less || tried == kMostTried)) break;
    if (each.beside == 0) {
      evaluator.add_beside(each);
      ++tried;
    }
    if (each.memory() < outcomes[least].memory()) least = i;
  }
  return least;
}

std::vector<Alternative> alternatives_of(const Plan& plan) {
  const MemoryOptions& best = plan.best().options;
  std::vector<Alternative> all;
  for (const Choice choice : kChoices) {
    const std::string chosen = value_of(choice, best);
    std::map<std::string, std::size_t> fastest;  // by value, in some order
    std::vector<std::string> values;             // in that of the candidates
    for (std::size_t i = 0; i < plan.outcomes.size(); ++i) {
      const Outcome& each = plan.outcomes[i];
      const std::string value = value_of(choice, each.options);
      if (value.empty() || value == chosen) continue;
      const auto [entry, is_new] = fastest.try_emplace(value, Alternative::kNone);
      if (is_new) values.push_back(value);
      if (each.memory() > plan.request.memory) continue;
      std::size_t& known = entry->second;
      if (known == Alternative::kNone || each.step() < plan.outcomes[known].step()) known = i;
    }
    for (const std::string& value : values) all.push_back({choice, value, fastest.at(value)});
  }
  return all;
}

}  // namespace

std::vector<MemoryOptions> candidates(const PlanRequest& request) {
  std::vector<MemoryOptions> all;
  for (const std::int64_t ranks : request.ranks) {
    if (request.global_batch % ranks != 0) continue;
    const std::int64_t share = request.global_batch / ranks;
    for (std::int64_t batch = 1; batch <= share; batch *= 2) {
      if (share % batch != 0) continue;
      MemoryOptions options = request.base;
      options.zero.keeps_shards = false;  // offload is a choice of the plan
      options.recipe.ranks = static_cast<int>(ranks);
      options.batch = batch;
      options.recipe.micro_steps = static_cast<int>(share / batch);
      options.recipe.micro_steps_per_reduction = 1;
      for (const optim::MixedPrecision& policy : kPolicies) {
        options.recipe.precision = policy;
        for (const auto checkpointing : {Checkpointing::none, Checkpointing::inside}) {
          options.recipe.checkpointing = checkpointing;
          options.recipe.checkpoint_every = 1;
          for_each_strategy(request, options, [&](const MemoryOptions& each) {
            if (!paper::unknown_of(each)) all.push_back(each);
          });
        }
      }
    }
  }
  return all;
}

std::vector<std::size_t> pareto_front(const std::vector<Outcome>& outcomes, std::int64_t memory) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].memory() <= memory) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(outcomes[i].step(), outcomes[i].memory(), i);
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    if (front.empty() || outcomes[i].memory() < outcomes[front.back()].memory()) front.push_back(i);
  }
  return front;
}

Plan make_plan(Evaluator& evaluator, PlanRequest request) {
  Plan plan;
  plan.request = std::move(request);
  std::vector<MemoryOptions> all = candidates(plan.request);
  check_work(all);
  plan.outcomes.resize(all.size());
  ThreadPool pool(static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U)));
  pool.for_each(std::ssize(all), [&](std::int64_t i, std::byte*) {
    const auto index = static_cast<std::size_t>(i);
    plan.outcomes[index] = evaluator.in_use(std::move(all[index]));
  });
  if (evaluator.knows_beside()) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < plan.outcomes.size(); ++i) {
      if (plan.outcomes[i].device.total() <= plan.request.memory) chosen.push_back(i);
    }
    check_slow_work(chosen, plan.outcomes, evaluator.model());
    pool.for_each(std::ssize(chosen), [&](std::int64_t i, std::byte*) {
      evaluator.add_beside(plan.outcomes[chosen[static_cast<std::size_t>(i)]]);
    });
  }
  for (Outcome& each : plan.outcomes) {
    if (each.memory() <= plan.request.memory) evaluator.add_time(each);
  }
  if (plan.outcomes.empty()) {
    throw InputError(fmt::format(
        "--global-batch: {} sequences cannot be divided evenly among any of the --ranks; use a "
        "multiple of one of them",
        plan.request.global_batch));
  }
  plan.front = pareto_front(plan.outcomes, plan.request.memory);
  if (!plan.is_feasible()) {
    plan.least = find_least(plan.outcomes, evaluator);
    evaluator.add_time(plan.outcomes[plan.least]);
    return plan;
  }
  for (std::size_t i = 0; i < plan.outcomes.size(); ++i) {
    if (plan.outcomes[i].memory() > plan.request.memory) continue;
    ++plan.fitting;
    if (i == plan.front.front()) continue;
    std::size_t& next = plan.next_best;
    const auto cost = [&](std::size_t index) {
      return std::pair(plan.outcomes[index].step(), plan.outcomes[index].memory());
    };
    if (next == Alternative::kNone || cost(i) < cost(next)) next = i;
  }
  plan.alternatives = alternatives_of(plan);
  return plan;
}

std::optional<Outcome> larger_micro_batch(const Plan& plan, Evaluator& evaluator) {
  MemoryOptions larger = plan.best().options;
  if (larger.recipe.micro_steps % 2 != 0) return std::nullopt;
  larger.batch *= 2;
  larger.recipe.micro_steps /= 2;
  return evaluator.evaluate(larger);
}

}  // namespace fsdp::plan
