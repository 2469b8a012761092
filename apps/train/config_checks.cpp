#include "train/config_checks.h"

#include "base/check.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::train {
namespace {

// The model checks itself; its sentences begin with the key.
void check_model(ConfigReader& in, const TrainConfig& config) {
  try {
    config.model.validate();
  } catch (const InputError& error) {
    const std::string what = error.what();
    const std::size_t colon = what.find(": ");
    in.complain(what.substr(0, colon), what.substr(colon + 2));
  }
  if (config.sequence_length() > config.model.max_sequence) {
    in.complain("training.seq_len",
                fmt::format("is {}, at most model.max_sequence = {}", config.sequence_length(),
                            config.model.max_sequence));
  }
}

void check_ranks(ConfigReader& in, const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.strategy == "single" && parallel.ranks != 1) {
    in.complain("parallel.ranks",
                fmt::format("is {}, but strategy \"single\" is one process; use ranks 1, or "
                            "strategy ddp or fsdp",
                            parallel.ranks));
  }
  if (parallel.reshard_after_forward.kind != ReshardAfterForward::Kind::within) return;
  const int group = parallel.reshard_after_forward.ranks;
  if (group < 0 || group >= parallel.ranks || parallel.ranks % group != 0) {
    const std::string key = "parallel.reshard_after_forward";
    in.complain(key, fmt::format("is {}: a number s must divide the {} ranks and lie strictly "
                                 "between 1 and {}; use true, false, or such a number",
                                 in.text_of(key), parallel.ranks, parallel.ranks));
  }
}

std::string divisors_text(std::int64_t number) {
  std::string text;
  for (std::int64_t each = 1; each <= number && text.size() < 40; ++each) {
    if (number % each == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", each);
  }
  return text;
}

// The product rule: global = local x ranks x micro-steps.
void check_batch(ConfigReader& in, TrainConfig& config) {
  TrainingConfig& training = config.training;
  const std::int64_t one = training.local_batch_size * config.parallel.ranks;
  if (training.global_batch_size == 0) training.global_batch_size = one;
  if (training.global_batch_size % one == 0) return;
  const std::int64_t below = training.global_batch_size / one * one;
  std::string remedy =
      below > 0 ? fmt::format("{} or {}", below, below + one) : fmt::format("{}", one);
  remedy = fmt::format("use {}", remedy);
  if (training.global_batch_size % config.parallel.ranks == 0) {
    remedy += fmt::format(", or a training.local_batch_size of {}",
                          divisors_text(training.global_batch_size / config.parallel.ranks));
  }
  in.complain(
      "training.global_batch_size",
      fmt::format("is {}, which is not training.local_batch_size {} x parallel.ranks {} x a "
                  "whole number of micro-steps; {}",
                  training.global_batch_size, training.local_batch_size, config.parallel.ranks,
                  remedy));
}

void check_schedule(ConfigReader& in, TrainConfig& config) {
  const optim::Schedule& schedule = config.schedule;
  if (schedule.kind == optim::Schedule::Kind::constant) return;
  if (schedule.warmup > schedule.total) {
    in.complain("schedule.warmup",
                fmt::format("is {} steps, but schedule.total is {}: the rate would never reach "
                            "schedule.lr; use a shorter warm-up, or set schedule.total to the "
                            "length of the whole training",
                            schedule.warmup, schedule.total));
  }
  if (schedule.lr_min > schedule.lr) {
    in.complain("schedule.lr_min", fmt::format("is {}, more than schedule.lr {}; use at most that",
                                               schedule.lr_min, schedule.lr));
  }
  if (schedule.kind == optim::Schedule::Kind::warmup_cosine &&
      config.training.steps > schedule.total) {
    config.remarks.push_back(fmt::format("{}: after step {} the rate stays at schedule.lr_min = {}",
                                         in.origin("schedule.total"), schedule.total,
                                         schedule.lr_min));
  }
}

void check_checkpoint(ConfigReader& in, const TrainConfig& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.folder.empty()) return;
  if (checkpoint.every > 0) {
    in.complain("checkpoint.every",
                fmt::format("is {}, but without a checkpoint.folder nothing is saved; set one",
                            checkpoint.every));
  }
  if (checkpoint.resume && in.is_given("checkpoint.resume")) {
    in.complain("checkpoint.resume",
                "is true, but without a checkpoint.folder there is nothing to resume; set one");
  }
}

// What was given and changes nothing.
void remark(const ConfigReader& in, TrainConfig& config) {
  const auto idle = [&](bool is_idle, const std::vector<const char*>& keys, std::string_view why) {
    for (const char* key : keys) {
      if (is_idle && in.is_given(key)) {
        config.remarks.push_back(fmt::format("{}: has no effect {}", in.origin(key), why));
      }
    }
  };
  idle(config.schedule.kind == optim::Schedule::Kind::constant,
       {"schedule.lr_min", "schedule.warmup", "schedule.total"}, "with schedule.kind constant");
  idle(config.optimizer.name != "sgd", {"optimizer.momentum"}, "with optimizer.name adamw");
  idle(config.optimizer.name != "adamw", {"optimizer.beta1", "optimizer.beta2", "optimizer.eps"},
       "with optimizer.name sgd");
  idle(config.parallel.strategy != "fsdp",
       {"parallel.reshard_after_forward", "parallel.prefetch_depth", "parallel.in_flight_limit"},
       "without parallel.strategy fsdp");
  idle(config.sample.tokens == 0, {"sample.prompt", "sample.temperature", "sample.top_k"},
       "while sample.tokens is 0");
}

}  // namespace

void check_together(ConfigReader& in, TrainConfig& config) {
  check_model(in, config);
  check_ranks(in, config);
  check_batch(in, config);
  check_schedule(in, config);
  check_checkpoint(in, config);
  remark(in, config);
}

}  // namespace fsdp::train
