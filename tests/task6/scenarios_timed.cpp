// Task 6: an iteration on the virtual clock. K equal products, and nothing else that costs.
//
// One rank of `ranks` ranks that do not exist, on the fake device. Options: units, ranks, depth,
// limit, ps_per_flop, alpha, ps_per_byte (of the link), reduce_factor (a reduction carries so many
// times the bytes of a gather), backward.
#include "autograd/node.h"
#include "comm/fake_group.h"
#include "graded/decorated.h"
#include "nn/layers.h"
#include "task4_backward/backward.h"
#include "task6/stack.h"

namespace fsdp::graded {
namespace {

constexpr std::int64_t kWidth = 8;

class Chain : public nn::Module {
 public:
  explicit Chain(int length) {
    for (int i = 0; i < length; ++i) {
      links_.push_back(register_child(
          "layers." + std::to_string(i),
          std::make_shared<nn::Linear>(nn::Linear::Options{.in = kWidth, .out = kWidth})));
    }
  }
  const std::vector<std::shared_ptr<nn::Linear>>& links() const { return links_; }

 protected:
  Variable forward(const Variable& x) override {
    Variable y = x;
    for (const auto& link : links_) y = (*link)(y);
    return y;
  }

 private:
  std::vector<std::shared_ptr<nn::Linear>> links_;
};

/// A loss that takes no time.
class FreeLoss : public Node {
 public:
  std::string_view name() const override { return "free loss"; }
  void backward(const Tensor& dout) override {
    pass(0, Tensor::empty({kWidth, kWidth}, dout.dtype(), dout.device()));
  }
  void release() override {}
};

/// Multiplies what reductions carry.
class HeavyReductions : public Decorated {
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

void timed(Recorder& recorder) {
  const int ranks = recorder.option("ranks", 2);
  Context context(
      {.world_size = ranks,
       .device = kFake,
       .cost_model = CostModel{.ps_per_flop = recorder.option("ps_per_flop", 1.0),
                               .alpha_ps = recorder.option("alpha", std::int64_t{0}),
                               .link_ps_per_byte = recorder.option("ps_per_byte", 0.0)}});
  const ContextScope scope(context);
  const auto group = std::make_shared<ProcessGroup>(std::make_shared<HeavyReductions>(
      make_fake_backend(0, ranks), recorder.option("reduce_factor", 1)));

  Chain chain(recorder.option("units", 4));
  std::vector<std::unique_ptr<ShardedUnit>> units;
  std::vector<ShardedUnit*> all;
  for (const auto& link : chain.links()) {
    std::vector<std::unique_ptr<FlatParameter>> flats;
    flats.push_back(std::make_unique<FlatParameter>(link->path(), link->named_parameters(), 0,
                                                    ranks, kFake, copy_slice));
    units.push_back(std::make_unique<ShardedUnit>(
        link->path(), *link, std::move(flats), group, nullptr,
        ShardedUnit::Options{.keep_until_backward = link == chain.links().back()}));
    all.push_back(units.back().get());
  }
  Prefetcher prefetcher(all, {recorder.option("depth", 1), recorder.option("limit", 0)});
  chain.register_forward_pre_hook([&](nn::Module&) { prefetcher.forward_begins(); });
  for (ShardedUnit* unit : all) {
    unit->install_hooks();
    unit->scheduler = &prefetcher;
  }
  GradientReducer reducer(all, group);
  const bool backward = recorder.option("backward", true);
  chain.register_forward_hook([&](nn::Module&) { prefetcher.forward_ends(); });

  for (int i = 0; i < 2; ++i) {
    const std::string name = std::to_string(i);
    // The input wants a gradient, so that the first unit has as many products as the others.
    const Variable x(Tensor::empty({kWidth, kWidth}), true);
    reducer.begin_step({});
    const std::int64_t begin = context.clock()->now();
    const Variable y = chain(x);
    const Variable loss = Node::record(std::make_shared<FreeLoss>(), {y}, Tensor::empty({1}));
    const std::int64_t half = context.clock()->now();
    recorder.note("forward " + name, half - begin);
    if (!backward) continue;
    loss.backward();
    reducer.end_of_backward();
    recorder.note("backward " + name, context.clock()->now() - half);
    reducer.finish_gradients();
    for (ShardedUnit* unit : all) unit->flat_parameters().front()->set_shard_grad(Tensor());
  }
}

}  // namespace fsdp::graded
