#include "timed_stack.h"

#include "autograd/node.h"
#include "comm/fake_group.h"
#include "graded/decorated.h"
#include "nn/layers.h"
#include "support/toy.h"
#include "task8_beyond/checkpoint.h"

#include <cmath>
#include <memory>
#include <utility>

namespace fsdp::testing {

namespace {

constexpr std::int64_t kWidth = 8;  // d; also R, the rows of a micro-batch

class TimedStack : public nn::Module {
 public:
  explicit TimedStack(int units) {
    for (int i = 0; i < units; ++i) {
      layers_.push_back(register_child(
          "layers." + std::to_string(i),
          std::make_shared<nn::Linear>(nn::Linear::Options{.in = kWidth, .out = kWidth})));
    }
  }

 protected:
  Variable forward(const Variable& x) override {
    Variable y = x;
    for (const auto& layer : layers_) y = (*layer)(y);
    return y;
  }

 private:
  std::vector<std::shared_ptr<nn::Linear>> layers_;
};

/// A loss that takes no time, so that an iteration is its units and nothing else.
class FreeLoss : public Node {
 public:
  explicit FreeLoss(Shape shape) : shape_(std::move(shape)) {}
  std::string_view name() const override { return "free loss"; }
  void backward(const Tensor& dout) override {
    pass(0, Tensor::empty(shape_, dout.dtype(), dout.device()));
  }
  void release() override {}

 private:
  Shape shape_;
};

Variable free_loss(const Variable& y) {
  return Node::record(std::make_shared<FreeLoss>(y.shape()), {y}, Tensor::empty({1}));
}

/// Multiplies what reductions carry.
class HeavyReductions : public graded::Decorated {
 public:
  HeavyReductions(std::shared_ptr<Backend> inner, int factor)
      : Decorated(std::move(inner)), factor_(factor) {}
  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    Collective heavy = call;
    if (call.op == CollectiveOp::reduce_scatter) heavy.numel *= factor_;
    return inner().start(heavy);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override { return part; }
  int factor_;
};

}  // namespace

ScheduleCase costs_of(const TimedCase& timed) {
  ScheduleCase costs;
  costs.units = timed.units;
  costs.forward = static_cast<std::int64_t>(2 * kWidth * kWidth * kWidth * timed.ps_per_flop);
  costs.backward = 2 * costs.forward;
  const auto shard_bytes = static_cast<double>(4 * kWidth * kWidth / timed.world_size);
  const auto carried = static_cast<std::int64_t>(shard_bytes * timed.link_ps_per_byte);
  costs.gather = (timed.world_size - 1) * (timed.alpha_ps + carried);
  costs.reduce = (timed.world_size - 1) * (timed.alpha_ps + timed.reduce_factor * carried);
  costs.depth = timed.depth;
  costs.limit = timed.limit;
  const std::int64_t copy = std::llround(shard_bytes * timed.bus_ps_per_byte);
  if (timed.offload.params) costs.copy_in = copy;
  if (timed.offload.grads) costs.copy_out = copy;
  return costs;
}

ScheduleTimes time_iteration(const TimedCase& timed, int iteration) {
  Context context({.world_size = timed.world_size,
                   .device = kFake,
                   .cost_model = CostModel{.ps_per_flop = timed.ps_per_flop,
                                           .alpha_ps = timed.alpha_ps,
                                           .link_ps_per_byte = timed.link_ps_per_byte,
                                           .bus_ps_per_byte = timed.bus_ps_per_byte}});
  const ContextScope scope(context);
  const auto group = std::make_shared<ProcessGroup>(std::make_shared<HeavyReductions>(
      make_fake_backend(0, timed.world_size), timed.reduce_factor));

  TimedStack stack(timed.units);
  FullyShardOptions options;
  options.prefetch_depth = timed.depth;
  options.in_flight_limit = timed.limit;
  options.reshard_after_forward = timed.reshard;
  options.offload = timed.offload;
  const auto model = fully_shard(stack, group, options);
  for (const auto& unit : model->units()) {
    if (timed.checkpoints_inside) checkpoint(unit->module());
    if (timed.checkpoints_around) checkpoint_around(*unit);
  }

  ScheduleTimes times;
  for (int i = 0; i <= iteration; ++i) {
    // The input wants a gradient, so that the first unit has as many products as the others.
    const Variable x(Tensor::empty({kWidth, kWidth}), true);
    model->begin_step({});
    const std::int64_t begin = context.clock()->now();
    const Variable loss = free_loss(stack(x));
    const std::int64_t half = context.clock()->now();
    loss.backward();
    model->end_micro_step();
    times = {half - begin, context.clock()->now() - half};
    model->finish_gradients();  // its arithmetic takes time on the device, and none on the host
    if (timed.offload.params) times.backward = context.clock()->now() - half;
    model->zero_grad();
  }
  return times;
}

}  // namespace fsdp::testing
