// What ZeRO-1 and ZeRO-2 cost beside DDP, on the virtual clock: two boxes with a slow link between.
#include "autograd/functions.h"
#include "comm/fake_group.h"
#include "optim/optimizer.h"
#include "parallel/zero.h"
#include "support/catch.h"

#include <memory>
#include <string>

namespace fsdp::testing::zero_time {
namespace {

constexpr int kRanks = 8;  // in boxes of 4
constexpr std::int64_t kAlpha = 1000, kLink = 10, kParameters = 16, kNumel = 32;
constexpr std::int64_t kBytes = 4 * kParameters * kNumel;

struct StepCost {
  std::int64_t time = 0;   // of a step in which only communication takes time
  std::int64_t state = 0;  // bytes of the optimizer on this rank
};

StepCost cost_of(const std::string& strategy, double momentum, std::size_t reduce_buffer = 0) {
  Context context({.world_size = kRanks,
                   .device = kFake,
                   .cost_model = CostModel{
                       .ranks_per_box = 4, .far_alpha_ps = kAlpha, .far_link_ps_per_byte = kLink}});
  const ContextScope scope(context);
  const auto group = std::make_shared<ProcessGroup>(make_fake_backend(0, kRanks));
  std::vector<std::pair<std::string, Variable>> parameters;
  for (int i = 0; i < kParameters; ++i) {
    parameters.emplace_back(std::to_string(i),
                            Variable(Tensor::empty({kNumel}, DType::float32, kFake), true));
  }
  std::unique_ptr<optim::GradientEngine> engine;
  parallel::ZeroGradients* zero = nullptr;
  if (strategy == "ddp") {
    engine = std::make_unique<parallel::DdpGradients>(parameters, group);
  } else {
    std::unique_ptr<parallel::ZeroGradients> made;
    if (strategy == "zero1") {
      made = std::make_unique<parallel::Zero1Gradients>(parameters, group);
    } else {
      made = std::make_unique<parallel::Zero2Gradients>(
          parameters, group, optim::ZeroOptions{.reduce_buffer_bytes = reduce_buffer});
    }
    zero = made.get();
    engine = std::move(made);
  }
  optim::Sgd optimizer({.momentum = momentum});
  engine->begin_step({});
  Variable loss = sum(parameters[0].second);
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    loss = add(loss, sum(parameters[i].second));
  }
  loss.backward();
  engine->end_micro_step();
  engine->finish_gradients();
  optimizer.step(engine->pieces(), 0.1);
  if (zero != nullptr) zero->broadcast_parameters();
  return {context.clock()->now(), context.tracker().current()[MemoryKind::optimizer]};
}

}  // namespace

TEST_CASE("SGD without momentum across boxes is slower with ZeRO-1, and saves nothing") {
  const StepCost ddp = cost_of("ddp", 0), zero1 = cost_of("zero1", 0);
  constexpr std::int64_t kHop = (kRanks - 1) * kAlpha;
  CHECK(ddp.time == kHop + 2 * (kRanks - 1) * kBytes / kRanks * kLink);
  // One broadcast from each owner: together all parameters.
  CHECK(zero1.time == ddp.time + kRanks * kHop + kBytes * kLink);
  CHECK(ddp.state == 0);
  CHECK(zero1.state == 0);
  // With a momentum, the same time buys 7/8 of the state.
  CHECK(cost_of("ddp", 0.9).state == kBytes);
  CHECK(cost_of("zero1", 0.9).state == kBytes / kRanks);
  CHECK(cost_of("zero1", 0.9).time == zero1.time);
}

TEST_CASE("ZeRO-2 receives fewer bytes than ZeRO-1, and waits for more hops unless it buffers") {
  constexpr std::int64_t kHop = (kRanks - 1) * kAlpha;
  constexpr std::int64_t kBroadcast = kRanks * kHop + kBytes * kLink;
  CHECK(cost_of("zero2", 0).time == kParameters * kHop + kBytes * kLink + kBroadcast);
  CHECK(cost_of("zero2", 0, 2 * 4 * kNumel).time == kRanks * kHop + kBytes * kLink + kBroadcast);
}

}  // namespace fsdp::testing::zero_time
