#include "grader/expect.h"
#include "optim/local_gradients.h"
#include "support/toy_model.h"
#include "task6/cases.h"
#include "task6/handout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>

namespace fsdp::graded {
namespace {

using Lines = std::vector<std::string>;

/// All passes of a case, as the handout says them.
struct Passes {
  std::vector<Handout::Pass> forward, backward;
  std::vector<Numbers> records;
};

Passes play(const Case& asked, const Handout::Options& options) {
  Handout handout(options);
  const auto orders = asked.options.at("orders").get<std::vector<Numbers>>();
  const int throws = asked.options.value("throws", -1);
  Passes passes;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const bool is_thrown = static_cast<int>(i) == throws;
    passes.forward.push_back(handout.forward(orders[i], is_thrown ? 1 : -1));
    passes.records.push_back(handout.recorded);
    passes.backward.push_back(is_thrown ? Handout::Pass{} : handout.backward());
  }
  return passes;
}

/// Whether some gather is waited for in the line after its issue, which would not be so by the
/// handout.
bool waits_at_once(const Lines& observed, const Lines& expected) {
  const auto count = [](const Lines& lines) {
    int times = 0;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      times += lines[i].starts_with("wait") && lines[i - 1] == "issue" + lines[i].substr(4);
    }
    return times;
  };
  return count(observed) > count(expected);
}

/// The gradients of one iteration by a single process, by unit.
std::map<std::string, std::vector<float>> gradients_of(const Case& asked, int iteration) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  const std::int64_t width = asked.options.value("width", 5);
  testing::Toy model({.width = width, .layers = asked.options.value("layers", 5)});
  model.order = asked.options.at("orders").at(static_cast<std::size_t>(iteration)).get<Numbers>();
  std::vector<std::pair<std::string, Variable>> parameters;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    parameters.emplace_back(each.path, each.variable);
  }
  optim::LocalGradients engine(parameters);
  engine.begin_step({.micro_steps = asked.world_size});
  for (int j = 0; j < asked.world_size; ++j) {
    toy_loss(model, width, iteration, j).backward();
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
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  const std::int64_t width = asked.options.value("width", 5);
  testing::Toy model({.width = width, .layers = asked.options.value("layers", 5)});
  model.order = asked.options.at("orders").at(static_cast<std::size_t>(iteration)).get<Numbers>();
  const NoGradScope no_grad;
  return static_cast<float>(toy_loss(model, width, iteration, rank).data().item());
}

class IterationJudge {
 public:
  IterationJudge(const char* step, const Seen& seen) : step_(step), seen_(seen) {
    const Case& asked = seen.asked();
    const Handout::Options options = Handout::options_of(asked);
    right_ = play(asked, options);
    const auto other = [&](int depth, int limit) {
      Handout::Options changed = options;
      changed.depth = depth;
      changed.limit = limit;
      return play(asked, changed);
    };
    // What well-known mistakes lead to.
    serial_ = other(0, 1);
    one_ = other(1, 1);
    unlimited_ = other(options.depth, 1000);
    deep_ = other(1000, 1000);
  }

  void check_forward(int rank, int i) {
    const std::string name = "forward " + std::to_string(i);
    check_lines(rank, name, i, &Passes::forward);
    const auto index = static_cast<std::size_t>(i);
    check_held(rank, name, right_.forward[index].most);
    Lesson record(step_, "the record is the order of the last complete forward", seen_);
    const auto as_text = [](const Numbers& numbers) {
      return fmt::format("[{}]", fmt::join(numbers, ", "));
    };
    record.at(rank).equal("recorded_order() after " + name,
                          as_text(seen_.at(rank, "record " + std::to_string(i)).get<Numbers>()),
                          as_text(right_.records[index]));
    if (i == seen_.asked().options.value("throws", -1)) return;
    Lesson value(step_, "prefetching changes no bit of the result", seen_);
    value.at(rank).bits("the loss of iteration " + std::to_string(i),
                        seen_.floats(rank, "loss " + std::to_string(i)),
                        {loss_of(seen_.asked(), i, rank)});
  }

  void check_backward(int rank, int i) {
    const std::string name = "backward " + std::to_string(i);
    check_lines(rank, name, i, &Passes::backward);
    check_held(rank, name, right_.backward[static_cast<std::size_t>(i)].most);
    Lesson left(step_, "when backward has ended every unit is sharded", seen_);
    const Lines states = seen_.lines(rank, "states after " + name);
    left.at(rank).equal("the states after " + name, states, Lines(states.size(), "sharded"));
    if (!std::has_single_bit(static_cast<unsigned>(seen_.world_size()))) return;
    Lesson value(step_, "prefetching changes no bit of the result", seen_);
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
    const auto index = static_cast<std::size_t>(i);
    const auto lines_of = [&](const Passes& passes) {
      return in_order((passes.*pass)[index].lines);
    };
    const Lines observed = in_order(seen_.lines(rank, name));
    const Lines expected = lines_of(right_);
    Lesson lesson(step_,
                  "unit k + 1 (in backward k - 1) is gathered before unit k computes, in the order "
                  "recorded before",
                  seen_);
    lesson.at(rank).equal(
        name, observed, expected,
        {{observed == lines_of(serial_),
          "nothing is gathered ahead: every gather is waited for where it is issued"},
         {observed == lines_of(one_), "depth 1 whatever was asked for"},
         {observed == lines_of(unlimited_), "the limit of gathers in flight is not kept"},
         {observed == lines_of(deep_), "the depth is not kept: all that follows is gathered"},
         {waits_at_once(observed, expected),
          "a gather is waited for where it is issued: finish_unshard instead of start_unshard"}});
  }

  void check_held(int rank, const std::string& name, int bound) {
    if (seen_.asked().options.value("group", 0) > 1) return;  // parts are counted too
    Lesson lesson(step_, "at most `depth` units are held ahead of the one that computes", seen_);
    const std::int64_t most = seen_.number(rank, "held in " + name);
    lesson.at(rank).at_most("units in memory at once in " + name, most, bound);
  }

  std::string step_;
  const Seen& seen_;
  Passes right_, serial_, one_, unlimited_, deep_;
};

}  // namespace

void judge_iterations(const char* step, const Ask& ask) {
  Ask asked = ask;
  const bool backward = std::string(step) == "6.5";
  asked.options["backward"] = backward;
  const Seen& seen = run("iterations", asked);
  IterationJudge judge(step, seen);
  const auto count = static_cast<int>(seen.asked().options.at("orders").size());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    for (int i = 0; i < count; ++i) {
      const bool is_thrown = i == seen.asked().options.value("throws", -1);
      if (!backward) judge.check_forward(rank, i);
      if (backward && !is_thrown) judge.check_backward(rank, i);
    }
  }
}

}  // namespace fsdp::graded
