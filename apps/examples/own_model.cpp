// A model that is no transformer: own modules, own units, own data.
//
//     make run FILE=apps/examples/own_model.cpp ARGS=4
//
// ARGS is the number of ranks. Four micro-batches make a step: one rank takes all of them, two take
// two each, and four take one each. So 1, 2 and 4 ranks end with the same weights, to the last bit.
#include "autograd/functions.h"
#include "base/check.h"
#include "comm/world.h"
#include "nn/layers.h"
#include "program/program.h"
#include "task7_integration/integration.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace {

using namespace fsdp;

constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kExamples = 16;  // of a micro-batch
constexpr int kMicroBatches = 4;        // of a step, over all ranks

/// y = x + out(tanh(in(x)))
class Layer : public nn::Module {
 public:
  Layer()
      : in_(register_child("in", linear_layer())), out_(register_child("out", linear_layer())) {}

 protected:
  Variable forward(const Variable& x) override { return add(x, (*out_)(tanh((*in_)(x)))); }

 private:
  static std::shared_ptr<nn::Linear> linear_layer() {
    return std::make_shared<nn::Linear>(
        nn::Linear::Options{.in = kWidth, .out = kWidth, .bias = true});
  }
  std::shared_ptr<nn::Linear> in_, out_;
};

/// Two numbers in, one out.
class Network : public nn::Module {
 public:
  explicit Network(int layers) {
    first_ = register_child("first", std::make_shared<nn::Linear>(nn::Linear::Options{
                                         .in = 2, .out = kWidth, .bias = true}));
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(register_child(fmt::format("layers.{}", i), std::make_shared<Layer>()));
    }
    last_ = register_child(
        "last", std::make_shared<nn::Linear>(nn::Linear::Options{.in = kWidth, .out = 1}));
  }
  /// Each layer is a unit. What is outside of them, `first` and `last`, belongs to the root.
  std::vector<nn::Module*> default_units() override {
    std::vector<nn::Module*> units;
    for (const auto& layer : layers_) units.push_back(layer.get());
    return units;
  }

 protected:
  Variable forward(const Variable& x) override {
    Variable h = (*first_)(x);
    for (const auto& layer : layers_) h = (*layer)(h);
    return (*last_)(h);
  }

 private:
  std::shared_ptr<nn::Linear> first_, last_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

/// Points of the plane, and sin(3x)·y of each. The global index of a micro-batch says which points,
/// so that they do not depend on the number of ranks.
std::pair<Tensor, Tensor> batch_of(std::int64_t index) {
  std::vector<float> points, values;
  for (std::int64_t i = 0; i < kExamples; ++i) {
    const auto place = static_cast<double>(index * kExamples + i);
    const double x = std::fmod(0.754877666 * place, 1.0), y = std::fmod(0.569840291 * place, 1.0);
    points.insert(points.end(), {static_cast<float>(x), static_cast<float>(y)});
    values.push_back(static_cast<float>(std::sin(3 * x) * y));
  }
  return {Tensor::from(points, {kExamples, 2}), Tensor::from(values, {kExamples, 1})};
}

/// A sum over the bits of all weights: equal weights have equal sums.
std::uint64_t fingerprint(ShardedModel& sharded) {
  std::uint64_t sum = 0;
  sharded.for_each_full_parameter([&](const nn::NamedParameter&, const Tensor& full) {
    for (const float value : full.to_vector<float>()) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      sum = sum * 31 + bits;
    }
  });
  return sum;
}

void train(ProcessGroup& group) {
  FSDP_CHECK(kMicroBatches % group.size() == 0, "{} ranks: use 1, 2 or 4, which divide {}",
             group.size(), kMicroBatches);
  Network model(3);
  auto sharded = fully_shard(model, borrowed(group));
  sharded->attach_optimizer([] { return std::make_shared<optim::AdamW>(optim::AdamW::Options()); });
  const optim::StepPlan plan{.micro_steps = kMicroBatches / group.size()};
  for (int step = 1; step <= 40; ++step) {
    sharded->begin_step(plan);
    double loss_of_rank = 0;
    for (int m = 0; m < plan.micro_steps; ++m) {
      const auto [points, values] = batch_of(plan.micro_batch(m, group.rank(), group.size()));
      const Variable loss = mse_loss(model(Variable(points)), values);
      loss.backward();
      sharded->end_micro_step();
      loss_of_rank += loss.data().item() / plan.micro_steps;
    }
    sharded->finish_gradients();
    sharded->step(3e-3);
    sharded->zero_grad();
    if (group.rank() == 0 && step % 10 == 0) {
      fmt::print("step {:2}  loss of rank 0 {:.5f}\n", step, loss_of_rank);
    }
  }
  const std::uint64_t sum = fingerprint(*sharded);
  if (group.rank() == 0) fmt::print("weights {:016x}\n", sum);
}

}  // namespace

int main(int argc, char** argv) {
  return program::run("own_model", [&] {
    run_ranks(argc > 1 ? std::atoi(argv[1]) : 4, train);
    return 0;
  });
}
