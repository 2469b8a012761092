#include "graded/device.h"
#include "graded/expect.h"
#include "optim/local_gradients.h"
#include "support/toy_model.h"
#include "task6/cases.h"
#include "task6/handout.h"
#include "task6/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace fsdp::graded {
namespace {

using Lines = std::vector<std::string>;

/// All passes of a case, as the handout says them.
struct Passes {
  std::vector<Handout::Pass> forward, backward;
  std::vector<Numbers> records;
};

bool is_among(const Case& asked, const char* option, int iteration) {
  const Numbers numbers = asked.options.value(option, Numbers{});
  return std::find(numbers.begin(), numbers.end(), iteration) != numbers.end();
}
bool is_thrown(const Case& asked, int iteration) {
  return asked.options.value("throws", -1) == iteration;
}
bool has_backward(const Case& asked, int iteration) {
  return asked.options.value("backward", true) && !is_thrown(asked, iteration) &&
         !is_among(asked, "evaluations", iteration) && !is_among(asked, "abandoned", iteration);
}

Passes play(const Case& asked, const Handout::Options& options) {
  Handout handout(options);
  const auto orders = asked.options.at("orders").get<std::vector<Numbers>>();
  const int micro_steps = asked.options.value("micro_steps", 1);
  const int per_reduction = asked.options.value("per_reduction", 1);
  int micro_step = 0;
  Passes passes;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const auto number = static_cast<int>(i);
    const bool evaluates = is_among(asked, "evaluations", number);
    passes.forward.push_back(
        handout.forward(orders[i], {.tape = options.tape && !evaluates,
                                    .resets = !evaluates && micro_step == 0,
                                    .throws_before = is_thrown(asked, number) ? 1 : -1}));
    passes.records.push_back(handout.recorded);
    passes.backward.emplace_back();
    if (!has_backward(asked, number)) continue;
    passes.backward.back() = handout.backward((micro_step + 1) % per_reduction == 0);
    micro_step = (micro_step + 1) % micro_steps;
  }
  return passes;
}

/// How a message names a slip.
struct Told {
  Slip slip;
  const char* text;
};
constexpr Told kForwardSlips[] = {
    {Slip::starts_nothing, "nothing is gathered ahead"},
    {Slip::one_ahead, "one unit is gathered ahead, whatever the depth"},
    {Slip::one_more, "one unit more than the depth is started"},
    {Slip::unlimited, "the limit of gathers in flight is not respected"},
    {Slip::waits,
     "a unit gathered ahead is waited for at once, by finish_unshard() instead of start_unshard()"},
    {Slip::from_itself, "gathers are started before the cursor moves past the unit that computes"},
    {Slip::next_but_one, "the wrong neighbor is gathered: the unit after the next one"},
    {Slip::never_gives_up, "stale units are not resharded"},
    {Slip::one_more_in_flight, "one gather more than the limit is in flight"},
    {Slip::stale_last, "the next units are started before the stale ones are resharded"},
    {Slip::first_is_guessed,
     "units are gathered ahead in the first forward, although there is no guess before the first "
     "record"},
    {Slip::needs_tape, "nothing is gathered ahead in a forward without a tape"},
    {Slip::frozen_left_out, "units that are not trained are left out of the record"},
};
constexpr Told kBackwardSlips[] = {
    {Slip::starts_nothing, "nothing is gathered ahead"},
    {Slip::one_ahead, "one unit is gathered ahead, whatever the depth"},
    {Slip::one_more, "one unit more than the depth is started"},
    {Slip::unlimited, "the limit of gathers in flight is not respected"},
    {Slip::waits,
     "a unit gathered ahead is waited for at once, by finish_unshard() instead of start_unshard()"},
    {Slip::next_but_one, "the wrong neighbor is gathered: the unit after the next one"},
    {Slip::same_order, "the order is that of forward, not its reverse"},
    {Slip::order_before, "the order is that of the previous forward, not of this one"},
    {Slip::kept_in_order, "units kept until backward take a place in the order"},
    {Slip::kept_silent, "the report of a kept unit starts nothing"},
    {Slip::guess_once, "the guess is made in the first iteration only"},
    {Slip::first_record, "the order is that of the first forward, not of the last one"},
    {Slip::all_units_backward, "the order holds all units, not only those that forward called"},
    {Slip::no_repeats_backward, "a unit that forward called twice is in the order only once"},
    {Slip::begins_at_first,
     "the first unit that reports in backward is assumed to be the first one of the guess, but it "
     "is a later one if the last layers have no backward. advance() finds it, and the units "
     "gathered before it are stale"},
    {Slip::one_more_in_flight, "one gather more than the limit is in flight"},
    {Slip::never_gives_up, "stale units are not resharded"},
    {Slip::frozen_left_out, "units that are not trained are left out of the order"},
};

/// The model of a case, as it calls its layers in one iteration.
std::unique_ptr<Program> program_of(const Case& asked, int iteration) {
  auto model = std::make_unique<Program>(config_of(asked.options.value("width", 5),
                                                   asked.options.value("layers", 5),
                                                   asked.options.value("frozen", Numbers{})));
  model->order = asked.options.at("orders").at(static_cast<std::size_t>(iteration)).get<Numbers>();
  return model;
}

/// The gradients of one iteration by a single process, by unit.
std::map<std::string, std::vector<float>> gradients_of(const Case& asked, int iteration) {
  Context context(rank_options(asked.device, asked.seed));
  const ContextScope scope(context);
  const auto owned = program_of(asked, iteration);
  Program& model = *owned;
  std::vector<std::pair<std::string, Variable>> parameters;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    if (each.variable.requires_grad()) parameters.emplace_back(each.path, each.variable);
  }
  optim::LocalGradients engine(parameters);
  engine.begin_step({.micro_steps = asked.world_size});
  for (int j = 0; j < asked.world_size; ++j) {
    toy_loss(model, asked.options.value("width", 5), iteration, j).backward();
    engine.end_micro_step();
  }
  engine.finish_gradients();
  std::map<std::string, std::vector<float>> gradients;
  for (const optim::Piece& piece : engine.pieces()) {
    auto& flat = gradients[piece.key.substr(0, piece.key.rfind('.'))];
    const auto values = piece.grad.to_vector<float>();
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return gradients;
}

float loss_of(const Case& asked, int iteration, int rank) {
  Context context(rank_options(asked.device, asked.seed));
  const ContextScope scope(context);
  const auto owned = program_of(asked, iteration);
  Program& model = *owned;
  const NoGradScope no_grad;
  const std::int64_t width = asked.options.value("width", 5);
  return static_cast<float>(toy_loss(model, width, iteration, rank).data().item());
}

class IterationJudge {
 public:
  IterationJudge(const char* step, const Observations& seen) : step_(step), seen_(seen) {
    const Case& asked = seen.asked();
    const Handout::Options options = Handout::options_of(asked);
    right_ = play(asked, options);
    const auto add = [&](const Told& told) {
      Handout::Options slipped = options;
      slipped.slip = told.slip;
      slips_.emplace_back(told.text, play(asked, slipped));
    };
    if (step_ == "6.4") std::for_each(std::begin(kForwardSlips), std::end(kForwardSlips), add);
    if (step_ == "6.5") std::for_each(std::begin(kBackwardSlips), std::end(kBackwardSlips), add);
  }

  void check_forward(int rank, int i) {
    const std::string name = "forward " + std::to_string(i);
    check_lines(rank, name, i, &Passes::forward);
    const auto index = static_cast<std::size_t>(i);
    check_held(rank, name, right_.forward[index].most);
    Check record(step_, "the record is the order of the last complete forward", seen_);
    const auto as_text = [](const Numbers& numbers) {
      return fmt::format("[{}]", fmt::join(numbers, ", "));
    };
    const std::string recorded =
        as_text(seen_.at(rank, "record " + std::to_string(i)).get<Numbers>());
    Numbers trained = right_.records[index];
    const Numbers frozen = seen_.asked().options.value("frozen", Numbers{});
    std::erase_if(trained, [&](int unit) {
      return std::find(frozen.begin(), frozen.end(), unit) != frozen.end();
    });
    Numbers once;
    for (const int unit : right_.records[index]) {
      if (std::find(once.begin(), once.end(), unit) == once.end()) once.push_back(unit);
    }
    record.at(rank).equal(
        "recorded_order() after " + name, recorded, as_text(right_.records[index]),
        {{recorded == as_text(trained), "units that are not trained are left out of the record"},
         {recorded == as_text(once), "a unit that is called twice is recorded only once"},
         {recorded == "[]" && is_without_tape(i),
          "a forward without a tape is not recorded, but it counts like any other forward"}});
    if (is_thrown(seen_.asked(), i)) return;
    Check value(step_, "prefetching changes no bit of the result", seen_);
    value.at(rank).bits("the loss of iteration " + std::to_string(i),
                        seen_.floats(rank, "loss " + std::to_string(i)),
                        {loss_of(seen_.asked(), i, rank)});
  }

  void check_backward(int rank, int i) {
    const std::string name = "backward " + std::to_string(i);
    check_lines(rank, name, i, &Passes::backward);
    check_held(rank, name, right_.backward[static_cast<std::size_t>(i)].most);
    Check left(step_, "after backward every unit is sharded", seen_);
    const Lines states = seen_.lines(rank, "states after " + name);
    left.at(rank).equal("the states after " + name, states, Lines(states.size(), "sharded"));
    if (!std::has_single_bit(static_cast<unsigned>(seen_.world_size()))) return;
    if (seen_.asked().options.value("micro_steps", 1) > 1) return;  // task 4 looks at sums of steps
    Check value(step_, "prefetching changes no bit of the result", seen_);
    for (const auto& [unit, whole] : gradients_of(seen_.asked(), i)) {
      const auto shard = seen_.floats(rank, "grad " + std::to_string(i) + " " + unit);
      std::vector<float> expected(shard.size(), 0.0F);
      const auto begin = std::min(whole.size(), static_cast<std::size_t>(rank) * shard.size());
      const auto count = std::min(shard.size(), whole.size() - begin);
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(begin), count, expected.begin());
      value.at(rank, unit).bits("shard_grad", shard, expected, static_cast<std::int64_t>(count));
    }
  }

 private:
  void check_lines(int rank, const std::string& name, int i,
                   std::vector<Handout::Pass> Passes::*pass) {
    const Lines observed = in_order(seen_.lines(rank, name));
    const Lines expected = in_order((right_.*pass)[static_cast<std::size_t>(i)].lines);
    Check check(
        step_,
        "unit k + 1 (k - 1 in backward) is gathered before unit k computes, in the recorded order",
        seen_);
    const std::string causes = observed == expected ? "" : slips_of(rank, pass);
    check.at(rank).equal(name, observed, expected, {{!causes.empty(), causes}});
  }

  /// The slips that lead to all that is seen on this rank, not in this iteration only.
  std::string slips_of(int rank, std::vector<Handout::Pass> Passes::*pass) const {
    std::vector<std::string> found;
    const std::string kind = pass == &Passes::forward ? "forward " : "backward ";
    for (const auto& [text, passes] : slips_) {
      bool same = true;
      for (std::size_t i = 0; i < (passes.*pass).size(); ++i) {
        const std::string name = kind + std::to_string(i);
        if (!seen_.has(rank, name)) continue;
        same = same && in_order(seen_.lines(rank, name)) == in_order((passes.*pass)[i].lines);
      }
      if (same) found.push_back(text);
    }
    return fmt::format("{}", fmt::join(found, "; or "));
  }

  void check_held(int rank, const std::string& name, int bound) {
    if (seen_.asked().options.value("group", 0) > 1) return;  // parts are counted too
    Check check(step_, "at most `depth` units are unsharded ahead of the one that computes", seen_);
    const std::int64_t most = seen_.number(rank, "held in " + name);
    check.at(rank).at_most("the number of units in memory at once in " + name, most, bound);
  }

  bool is_without_tape(int i) const {
    return !seen_.asked().options.value("tape", true) || is_among(seen_.asked(), "evaluations", i);
  }

  std::string step_;
  const Observations& seen_;
  Passes right_;
  std::vector<std::pair<std::string, Passes>> slips_;
};

}  // namespace

void judge_iterations(const char* step, const Setup& setup) {
  Setup asked = setup;
  const bool backward = std::string(step) == "6.5";
  asked.options["backward"] = backward;
  const Observations& seen = run("iterations", asked);
  IterationJudge judge(step, seen);
  const auto count = static_cast<int>(seen.asked().options.at("orders").size());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    for (int i = 0; i < count; ++i) {
      if (!backward) judge.check_forward(rank, i);
      if (has_backward(seen.asked(), i)) judge.check_backward(rank, i);
    }
  }
}

}  // namespace fsdp::graded
