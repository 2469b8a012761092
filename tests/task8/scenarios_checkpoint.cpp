// Task 8: what a runner can be asked to do with checkpoints. Options: task7/models.h.
#include "autograd/functions.h"
#include "graded/device.h"
#include "nn/transformer.h"
#include "optim/local_gradients.h"
#include "support/numbers.h"
#include "task7/models.h"
#include "task7_integration/integration.h"
#include "task8/blocks.h"
#include "task8/scenarios.h"
#include "task8_beyond/checkpoint.h"

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp::graded {
namespace {

// ------------------------------------------------------------------------------------------- 8.4

/// A call that is counted.
struct Counted {
  nn::Module& module;
  int calls = 0;
  int with_tape = 0;
  int of_copies = 0;  // of another tensor than `x`

  nn::Call of(const Variable& x) {
    return [this, storage = x.data().storage()](const Variable& input) {
      ++calls;
      with_tape += grad_enabled() ? 1 : 0;
      of_copies += input.data().storage() == storage ? 0 : 1;
      return module(input);
    };
  }
};

/// Options besides: rows, input_requires_grad.
void checkpoint_forward(Recorder& recorder) {
  take_scratch();  // its arena is no part of any measurement
  const Json& options = recorder.asked().options;
  const auto root = make_model(options);
  freeze(*root, options);
  const Variable x(input_of(recorder.asked()), options.value("input_requires_grad", true));
  {
    const NoGradScope no_grad;
    const Variable y = (*root)(x);
    recorder.values("plain", y.data());
  }
  Counted counted{*root};
  const auto note = [&](const std::string& name, const Variable& y) {
    recorder.note("calls " + name, counted.calls);
    recorder.note("with a tape " + name, counted.with_tape);
    recorder.note("of copies " + name, counted.of_copies);
    recorder.note("requires a gradient " + name, y.requires_grad());
    recorder.values("y " + name, y.data());
    counted.calls = counted.with_tape = counted.of_copies = 0;
  };
  {
    recorder.memory("before");
    const Variable y = Checkpoint::run(*root, x, counted.of(x));
    recorder.memory("after");
    note("with a tape", y);
  }
  recorder.memory("dropped");
  const NoGradScope no_grad;
  note("without a tape", Checkpoint::run(*root, x, counted.of(x)));
}

// ------------------------------------------------------------------------------------------- 8.5

/// One backward of a model whose blocks are checkpointed, by one process.
void checkpoint_backward(Recorder& recorder) {
  take_scratch();
  const Json& options = recorder.asked().options;
  const auto root = make_model(options);
  freeze(*root, options);
  std::map<std::string, int> hooks;
  for (const nn::NamedParameter& each : root->named_parameters()) {
    if (!each.variable.requires_grad()) continue;
    hooks[each.path] = 0;
    Variable(each.variable)
        .register_post_accumulate_grad_hook(
            [&hooks, path = each.path](const Variable&) { ++hooks[path]; });
  }
  Json forwards = Json::array();
  for (nn::Module* block : blocks_of(*root)) {
    checkpoint(*block);
    const std::string path = block->path();
    first_child_of(*block).register_forward_pre_hook([&forwards, path](nn::Module&) {
      forwards.push_back(
          {{"block", path}, {"tape", grad_enabled()}, {"kind", name_of(AllocationScope::kind())}});
    });
  }
  nn::Module& first = *blocks_of(*root).front();
  first_child_of(first).register_full_backward_hook(
      [&](nn::Module&) { recorder.memory("end of the first block"); });
  optim::LocalGradients engine(root->variables());
  engine.begin_step({.micro_steps = 1});
  {
    const Variable loss = loss_of(*root, options, recorder.seed(), 0, 0);
    recorder.note("loss", loss.data().item());
    recorder.note("forwards before backward", std::exchange(forwards, Json::array()));
    recorder.memory("after forward");
    loss.backward();
  }
  engine.end_micro_step();
  recorder.memory("after backward");
  recorder.note("forwards in backward", std::exchange(forwards, Json::array()));
  engine.finish_gradients();
  for (const optim::Piece& piece : engine.pieces()) {
    recorder.values("grad/" + piece.key, piece.grad);
  }
  Json counts = Json::object();
  for (const auto& [path, count] : hooks) counts[path] = count;
  recorder.note("hooks", std::move(counts));
}

// ------------------------------------------------------------------------------------------- 8.6

/// Stands in both slots of a unit, writes down who calls, and passes the call on.
class Spy : public UnshardScheduler, public UnitBackward {
 public:
  Spy(ShardedUnit& unit, std::vector<std::string>& seen)
      : name_(unit.name()), scheduler_(unit.scheduler), backward_(unit.backward), seen_(seen) {
    unit.scheduler = this;
    unit.backward = this;
  }
  void before_forward(ShardedUnit& unit) override {
    note("scheduler before_forward");
    if (scheduler_ != nullptr) scheduler_->before_forward(unit);
  }
  void before_backward(ShardedUnit& unit) override {
    note("scheduler before_backward");
    if (scheduler_ != nullptr) scheduler_->before_backward(unit);
  }
  void after_forward() override {
    note("reducer after_forward");
    backward_->after_forward();
  }
  void pre_backward() override {
    note("reducer pre_backward");
    backward_->pre_backward();
  }
  void post_backward() override {
    note("reducer post_backward");
    backward_->post_backward();
  }

 private:
  void note(const char* what) { seen_.push_back(name_ + ": " + what); }
  std::string name_;
  UnshardScheduler* scheduler_;
  UnitBackward* backward_;
  std::vector<std::string>& seen_;
};

/// Options besides: depth, order (the layers that forward calls).
void around(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  const auto root = make_model(options);
  auto& toy = dynamic_cast<testing::Toy&>(*root);
  if (options.contains("order")) toy.order = options.at("order").get<std::vector<int>>();
  FullyShardOptions sharding;
  sharding.prefetch_depth = options.value("depth", 1);
  const auto model = fully_shard(*root, recorder.shared_group(), sharding);
  std::vector<std::string> seen;
  std::vector<std::unique_ptr<Spy>> spies;
  Names names;
  for (const auto& unit : model->units()) {
    names.push_back(unit->name());
    spies.push_back(std::make_unique<Spy>(*unit, seen));
    checkpoint_around(*unit);
  }
  recorder.note("units", names);
  const auto iterate = [&](int step, const std::string& name) {
    model->begin_step({.micro_steps = 1});
    seen.clear();
    Variable loss;
    recorder.events(
        "forward " + name,
        [&] { loss = loss_of(*root, options, recorder.seed(), step, recorder.rank()); },
        {EventKind::issue, EventKind::wait, EventKind::forward_begin, EventKind::forward_end});
    recorder.note("seen in forward " + name, std::exchange(seen, {}));
    recorder.events("backward " + name,
                    [&] {
                      loss.backward();
                      model->end_micro_step();
                    },
                    {EventKind::issue, EventKind::wait, EventKind::forward_begin,
                     EventKind::forward_end, EventKind::backward_begin, EventKind::backward_end});
    recorder.note("seen in backward " + name, std::exchange(seen, {}));
    model->finish_gradients();
    model->zero_grad();
  };
  for (int step = 0; step < 2; ++step) iterate(step, std::to_string(step));
  {
    const NoGradScope no_tape;  // an evaluation
    loss_of(*root, options, recorder.seed(), 0, recorder.rank());
    recorder.note("seen in evaluation", std::exchange(seen, {}));
  }
  iterate(2, "2");
  // Units in which nothing stands in the slots: each call alone, and a forward.
  const auto empty = make_model(options);
  const auto unused = fully_shard(*empty, recorder.shared_group(), sharding);
  ShardedUnit& without = *unused->units().front();
  without.scheduler = nullptr;
  without.backward = nullptr;
  CheckpointedUnit alone(without);
  const auto call_alone = [&](const char* name, const std::function<void()>& call) {
    recorder.attempt(std::string("alone ") + name, call);
  };
  call_alone("before_forward", [&] { alone.before_forward(without); });
  call_alone("before_backward", [&] { alone.before_backward(without); });
  call_alone("after_forward", [&] { alone.after_forward(); });
  call_alone("pre_backward", [&] { alone.pre_backward(); });
  call_alone("post_backward", [&] { alone.post_backward(); });
  const auto bare = make_model(options);
  const auto other = fully_shard(*bare, recorder.shared_group(), sharding);
  for (const auto& unit : other->units()) {
    unit->scheduler = nullptr;
    unit->backward = nullptr;
    checkpoint_around(*unit);
  }
  recorder.attempt("empty slots", [&] {
    const Variable loss = loss_of(*bare, options, recorder.seed(), 0, recorder.rank());
  });
}

}  // namespace

Scenarios checkpoint_scenarios() {
  return {{"checkpoint_forward", checkpoint_forward},
          {"checkpoint_backward", checkpoint_backward},
          {"around", around}};
}

}  // namespace fsdp::graded
