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
    {Slip::starts_nothing, "You gathered nothing ahead"},
    {Slip::one_ahead, "You gathered one unit ahead, whatever the depth"},
    {Slip::one_more, "You started one unit more than the depth"},
    {Slip::unlimited, "You did not respect the limit of gathers in flight"},
    {Slip::waits,
     "You waited for the units gathered ahead before this one computes, so nothing overlaps"},
    {Slip::from_itself, "You started gathers before the cursor moved past the unit that computes"},
    {Slip::next_but_one, "You gathered the wrong neighbor: the unit after the next one"},
    {Slip::never_gives_up, "You did not reshard stale units"},
    {Slip::one_more_in_flight, "You had one gather more than the limit in flight"},
    {Slip::stale_last, "You started the next units before you resharded the stale ones"},
    {Slip::nothing_if_stale, "You started nothing after a wrong guess"},
    {Slip::oldest_stale_only,
     "You resharded at most one of several stale units: a wrong guess leaves all of them"},
    {Slip::first_is_guessed,
     "You gathered units ahead in the first forward, which has no record to guess from"},
    {Slip::needs_tape, "You gathered nothing ahead in a forward without a tape"},
    {Slip::frozen_left_out, "You left out units that are not trained from the record"},
};
constexpr Told kBackwardSlips[] = {
    {Slip::starts_nothing, "You gathered nothing ahead"},
    {Slip::one_ahead, "You gathered one unit ahead, whatever the depth"},
    {Slip::one_more, "You started one unit more than the depth"},
    {Slip::unlimited, "You did not respect the limit of gathers in flight"},
    {Slip::waits,
     "You waited for the units gathered ahead before this one computes, so nothing overlaps"},
    {Slip::next_but_one, "You gathered the wrong neighbor: the unit after the next one"},
    {Slip::same_order, "You guessed the order of forward, not its reverse"},
    {Slip::order_before, "You guessed the order of the previous forward, not of this one"},
    {Slip::kept_in_order, "You gave units that are kept until backward a place in the order"},
    {Slip::one_kept_only,
     "You left only one of the units that are kept until backward out of the order"},
    {Slip::kept_silent, "You started nothing when a kept unit reported"},
    {Slip::guess_once, "You made the guess in the first iteration only"},
    {Slip::first_record, "You guessed the order of the first forward, not of the last one"},
    {Slip::all_units_backward, "You guessed all units, not only those that forward called"},
    {Slip::no_repeats_backward,
     "You put a unit that forward called twice into the order only once"},
    {Slip::begins_at_first,
     "You assumed that the first unit to report in backward is the first one of the guess, but it "
     "is a later one if the last layers have no backward; the units gathered for them are stale"},
    {Slip::one_more_in_flight, "You had one gather more than the limit in flight"},
    {Slip::never_gives_up, "You did not reshard stale units"},
    {Slip::stale_last, "You started the next units before you resharded the stale ones"},
    {Slip::nothing_if_stale, "You started nothing after a wrong guess"},
    {Slip::oldest_stale_only,
     "You resharded at most one of several stale units: a wrong guess leaves all of them"},
    {Slip::guess_every_time, "You made the guess at every call, not once per backward"},
    {Slip::frozen_left_out, "You left out units that are not trained from the order"},
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
      if (told.slip == Slip::starts_nothing && !options.tape) return;  // other cases show it first
      Handout::Options slipped = options;
      slipped.slip = told.slip;
      slips_.emplace_back(told.text, play(asked, slipped));
    };
    if (step_ == "6.4") std::for_each(std::begin(kForwardSlips), std::end(kForwardSlips), add);
    if (step_ == "6.5") std::for_each(std::begin(kBackwardSlips), std::end(kBackwardSlips), add);
  }

  void check_forward(int rank, int i) {
    const std::string name = "forward " + std::to_string(i);
    check_lines(rank, name + dropped_in(i), i, &Passes::forward);
    const auto index = static_cast<std::size_t>(i);
    check_held(rank, name, right_.forward[index].most);
    check_states(rank, name, right_.forward[index].states);
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
    Numbers passing = right_.records[index];
    const Numbers kept = seen_.asked().options.value("keep", Numbers{});
    std::erase_if(
        passing, [&](int unit) { return std::find(kept.begin(), kept.end(), unit) != kept.end(); });
    Numbers once;
    for (const int unit : right_.records[index]) {
      if (std::find(once.begin(), once.end(), unit) == once.end()) once.push_back(unit);
    }
    record.at(rank).equal(
        "recorded_order() after " + name, recorded, as_text(right_.records[index]),
        {{recorded == as_text(trained), "You left out units that are not trained from the record"},
         {recorded == as_text(passing),
          "You left out units that are kept until backward from the record"},
         {recorded == as_text(once), "You recorded a unit once that was called twice"},
         {recorded == "[]" && is_without_tape(i),
          "You did not record a forward without a tape, but it counts like any other forward"},
         {recorded == "[]" && index == 0, "You recorded nothing"}});
    if (is_thrown(seen_.asked(), i)) return;
    Check value(step_, "prefetching changes no bit of the result", seen_);
    value.at(rank).bits("the loss of iteration " + std::to_string(i),
                        seen_.floats(rank, "loss " + std::to_string(i)),
                        {loss_of(seen_.asked(), i, rank)});
  }

  void check_backward(int rank, int i) {
    const std::string name = "backward " + std::to_string(i);
    check_lines(rank, name + dropped_in(i), i, &Passes::backward);
    check_held(rank, name, right_.backward[static_cast<std::size_t>(i)].most);
    check_states(rank, name, right_.backward[static_cast<std::size_t>(i)].states);
    Check record(step_, "backward is not recorded: the record is that of a forward", seen_);
    record.at(rank).that(
        seen_.at(rank, "record after " + name) == right_.records[static_cast<std::size_t>(i)],
        fmt::format("recorded_order() after {} is {}", name,
                    seen_.at(rank, "record after " + name).dump()),
        fmt::format("[{}]", fmt::join(right_.records[static_cast<std::size_t>(i)], ", ")),
        {{true, "You changed the record in backward"}});
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
    const Lines observed = in_order(seen_.lines(rank, name.substr(0, name.find(','))));
    const Lines expected = in_order((right_.*pass)[static_cast<std::size_t>(i)].lines);
    Check check(
        step_,
        "unit k + 1 (k - 1 in backward) is gathered before unit k computes, in the recorded order",
        seen_);
    const std::string causes = observed == expected ? "" : slips_of(rank, pass);
    check.at(rank).equal(name, observed, expected,
                         {{!causes.empty(), causes},
                          {without_phases(observed) == without_phases(expected),
                           "You started gathers under the wrong phase"}});
  }

  void check_states(int rank, const std::string& name, const Lines& expected) {
    Check check(step_,
                "no unit is left ahead after a pass; what is kept until backward stays unsharded",
                seen_);
    check.at(rank).equal(
        "the units' states after " + name, seen_.lines(rank, "states after " + name), expected,
        {{is_kept_resharded(rank, name, expected),
          "You resharded a unit that is kept until backward: after it had computed, "
          "it was still in ahead_"}});
  }

  /// Whether units are sharded that should be kept, and no others differ.
  bool is_kept_resharded(int rank, const std::string& name, const Lines& expected) const {
    const Lines states = seen_.lines(rank, "states after " + name);
    bool any = false;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (states[i] == expected[i]) continue;
      if (states[i] != "sharded" || expected[i] != "unsharded") return false;
      any = true;
    }
    return any;
  }

  static Lines without_phases(Lines lines) {
    for (std::string& line : lines) {
      if (line.find("all_gather") != std::string::npos) line.resize(line.rfind('/'));
    }
    return lines;
  }

  /// ", in which the outputs of layers.3 (103 in `orders`) are not used"
  std::string dropped_in(int i) const {
    std::string text;
    for (const int call : seen_.asked().options.at("orders").at(static_cast<std::size_t>(i))) {
      if (call < kDropped) continue;
      text += fmt::format("{} {} ({} in `orders`)", text.empty() ? "" : " and",
                          unit_name(call - kDropped), call);
    }
    return text.empty() ? text : fmt::format(", in which nothing uses the output of{}", text);
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
    return any_of(found);
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
