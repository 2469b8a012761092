// Task 6: what a runner can be asked to do with a stack of sharded layers and a prefetcher.
//
// Options of "iterations": orders (for each iteration the layers that forward calls, in turn),
// backward, tape, and those of the stack. Of the iterations, by number: throws (its forward throws
// before its second layer), evaluations (without a tape, outside of any step), abandoned (no
// backward comes). micro_steps, per_reduction: iterations of a step, and of a reduction.
#include "autograd/functions.h"
#include "base/check.h"
#include "task4_backward/backward.h"
#include "task6/stack.h"

namespace fsdp::graded {
namespace {

const std::vector<EventKind> kWire = {EventKind::issue, EventKind::wait, EventKind::forward_begin,
                                      EventKind::backward_begin};

class Iterations {
 public:
  explicit Iterations(Recorder& recorder)
      : recorder_(recorder),
        stack_(recorder),
        backward_(recorder.option("backward", true)),
        throws_(recorder.option("throws", -1)),
        plan_{.micro_steps = recorder.option("micro_steps", 1),
              .micro_steps_per_reduction = recorder.option("per_reduction", 1)} {
    // As task 7 will hang them: the borders around everything else.
    Program& model = stack_.model();
    model.register_forward_pre_hook([this](nn::Module&) { stack_.prefetcher().forward_begins(); });
    for (ShardedUnit* unit : stack_.all()) {
      unit->install_hooks();
      unit->scheduler = &stack_.prefetcher();
    }
    reducer_ = std::make_unique<GradientReducer>(stack_.all(), recorder.shared_group());
    model.register_forward_hook([this](nn::Module&) { stack_.prefetcher().forward_ends(); });
  }

  void run(int number, const Numbers& order) {
    const std::string name = std::to_string(number);
    stack_.model().order = order;
    const bool evaluates = is_among("evaluations", number);
    if (!evaluates && !in_step_) reducer_->begin_step(plan_);
    in_step_ = false;
    Variable loss;
    held([&] {
      recorder_.events(
          "forward " + name, [&] { loss = forward(number); }, kWire);
    });
    recorder_.note("held in forward " + name, most_);
    recorder_.note("record " + name, stack_.numbers_of(stack_.prefetcher().recorded_order()));
    recorder_.note("states after forward " + name, stack_.states());
    if (loss.is_defined()) recorder_.values("loss " + name, loss.data());
    const bool is_trained = loss.is_defined() && !evaluates && !is_among("abandoned", number);
    if (backward_ && is_trained) backward(name, loss);
  }

 private:
  bool is_among(const char* option, int number) const {
    const Numbers numbers = recorder_.option(option, Numbers{});
    return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
  }

  Variable forward(int number) {
    const std::int64_t width = recorder_.option("width", 5);
    const auto pass = [&] { return toy_loss(stack_.model(), width, number, recorder_.rank()); };
    if (number == throws_) {
      const auto call = static_cast<std::size_t>(stack_.model().order.at(1) % kDropped);
      nn::Module& second = *stack_.model().layers().at(call);
      const int hook = second.register_forward_pre_hook([](nn::Module&) { fail("not today"); });
      recorder_.attempt("thrown", [&] { without_tape(is_among("evaluations", number), pass); });
      second.remove_hook(hook);
      return {};
    }
    return without_tape(!recorder_.option("tape", true) || is_among("evaluations", number), pass);
  }

  template <class Pass>
  static Variable without_tape(bool really, const Pass& pass) {
    if (!really) return pass();
    const NoGradScope no_grad;
    return pass();
  }

  void backward(const std::string& name, const Variable& loss) {
    held([&] {
      recorder_.events(
          "backward " + name,
          [&] {
            loss.backward();
            reducer_->end_of_backward();
          },
          kWire);
    });
    recorder_.note("held in backward " + name, most_);
    recorder_.note("states after backward " + name, stack_.states());
    recorder_.note("record after backward " + name,
                   stack_.numbers_of(stack_.prefetcher().recorded_order()));
    in_step_ = reducer_->micro_step() < plan_.micro_steps;
    if (in_step_) return;
    reducer_->finish_gradients();
    for (ShardedUnit* unit : stack_.all()) {
      FlatParameter& flat = *unit->flat_parameters().front();
      if (!flat.requires_grad()) continue;
      recorder_.values("grad " + name + " " + unit->name(), flat.shard_grad());
      flat.set_shard_grad(Tensor());
    }
  }

  /// The most units that had memory at once during `call`.
  template <class Call>
  void held(const Call& call) {
    const auto& lines = recorder_.log().lines();
    const std::size_t begin = lines.size();
    for (const std::string& state : stack_.states()) now_ += state == "sharded" ? 0 : 1;
    most_ = now_;
    call();
    for (std::size_t i = begin; i < lines.size(); ++i) {
      if (lines[i].text.find(" unsharded_param ") == std::string::npos) continue;
      if (lines[i].kind == EventKind::alloc) most_ = std::max(most_, ++now_);
      if (lines[i].kind == EventKind::free) --now_;
    }
    now_ = 0;
  }

  Recorder& recorder_;
  Stack stack_;
  bool backward_;
  int throws_;
  optim::StepPlan plan_;
  bool in_step_ = false;  // more micro-steps of it come
  std::unique_ptr<GradientReducer> reducer_;
  int now_ = 0;
  int most_ = 0;
};

void iterations(Recorder& recorder) {
  Iterations all(recorder);
  int number = 0;
  for (const Numbers& order : recorder.option("orders", std::vector<Numbers>{})) {
    all.run(number++, order);
  }
}

}  // namespace

Scenarios scenarios() {
  return {{"walk", walk},     {"stale", stale},           {"start", start},
          {"border", border}, {"iterations", iterations}, {"timed", timed}};
}

}  // namespace fsdp::graded
