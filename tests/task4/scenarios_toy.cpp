#include "autograd/functions.h"
#include "comm/replicas.h"
#include "graded/device.h"
#include "graded/precision.h"
#include "support/reshard.h"
#include "task4/sharded_toy.h"
#include "tensor/ops.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fsdp::graded {
namespace {

using testing::noise;

/// Ends a backward that a scenario wants to see the first part of.
struct Stopped {};

DType dtype_of(const Recorder& recorder) {
  return recorder.option("double", false) ? DType::float64 : DType::float32;
}

/// In which flat parameter of its unit a parameter goes: trainable ones first.
int kind_of(const nn::NamedParameter& parameter, bool split) {
  if (!parameter.variable.requires_grad()) return 2;
  return split && parameter.path.ends_with("bias") ? 1 : 0;
}

/// Sums over the replicas of a mesh, one unit's shards at a time while the next unit computes.
class SumOfReplicas : public ReplicaSum {
 public:
  explicit SumOfReplicas(std::shared_ptr<ProcessGroup> replicas) : replicas_(std::move(replicas)) {}
  void start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit) override {
    const auto is_under_way = [&](const UnderWay& each) { return each.sums == &sums; };
    if (unit != unit_ || std::ranges::any_of(under_way_, is_under_way)) finish();
    unit_ = unit;
    under_way_.push_back(
        {&sums, shard, replicas_->all_reduce(shard, ReduceOp::sum, {unit, Phase::gradient})});
  }
  void finish() override {
    for (UnderWay& each : under_way_) {
      each.work.wait();
      each.sums->push(each.shard);
    }
    under_way_.clear();
  }
  void clear() override { under_way_.clear(); }

 private:
  struct UnderWay {
    TreeAccumulator* sums;
    Tensor shard;
    Work work;
  };
  std::shared_ptr<ProcessGroup> replicas_;
  std::string unit_;
  std::vector<UnderWay> under_way_;
};

std::shared_ptr<ProcessGroup> group_of(Recorder& recorder) {
  const int replicas = recorder.option("replicas", 1);
  if (replicas == 1) return recorder.shared_group();
  const int shards = recorder.world_size() / replicas;
  std::shared_ptr<ProcessGroup> group = recorder.group().split_contiguous(shards);
  group->set_replicas(recorder.group().split_strided(shards),
                      [](const auto& across) { return std::make_shared<SumOfReplicas>(across); });
  return group;
}

std::vector<std::unique_ptr<FlatParameter>> make_flats(
    const std::string& unit, const std::vector<nn::NamedParameter>& parameters,
    const ProcessGroup& group, Recorder& recorder) {
  std::vector<std::unique_ptr<FlatParameter>> flats;
  for (int kind = 0; kind < 3; ++kind) {
    std::vector<nn::NamedParameter> some;
    for (const nn::NamedParameter& each : parameters) {
      if (kind_of(each, recorder.option("split", false)) == kind) some.push_back(each);
    }
    if (some.empty()) continue;
    flats.push_back(std::make_unique<FlatParameter>(unit, some, group.rank(), group.size(),
                                                    device_of_rank(), copy_slice,
                                                    precision_of(recorder.asked().options)));
  }
  return flats;
}

}  // namespace

ShardedToy::ShardedToy(Recorder& recorder)
    : recorder_(recorder),
      model_({.width = recorder.option("width", 5),
              .layers = recorder.option("layers", 3),
              .root_weight = recorder.option("root", false),
              .tied = recorder.option("tied", false),
              .unused = recorder.option("spare", false),
              .nested = recorder.option("nested", false),
              .frozen = recorder.option("frozen", std::vector<std::string>{}),
              .shared = recorder.option("shared", false)}),
      group_(group_of(recorder)),
      plan_{recorder.option("micro_steps", 1), recorder.option("per_reduction", 1),
            recorder.option("loss_scale", 1.0)} {
  model_.order = recorder.option("order", model_.order);
  if (dtype_of(recorder) != DType::float32) {
    for (const nn::NamedParameter& each : model_.named_parameters()) {
      Variable(each.variable).convert(dtype_of(recorder));
    }
  }
  const int group = recorder.option("group", 0);
  std::shared_ptr<ProcessGroup> subgroup;
  if (group > 1) subgroup = recorder.group().split_contiguous(group);
  const auto kept = recorder.option("keep", std::vector<std::string>{});

  std::vector<nn::Module*> modules;
  for (const auto& layer : model_.layers()) modules.push_back(layer.get());
  auto lists = parameters_of_units(model_, modules);
  modules.insert(modules.begin(), &model_);
  std::rotate(lists.begin(), lists.end() - 1, lists.end());  // the root comes last, and goes first
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (lists[i].empty()) continue;
    const std::string name = modules[i] == &model_ ? "root" : modules[i]->path();
    const bool keeps =
        modules[i] == &model_ || std::find(kept.begin(), kept.end(), name) != kept.end();
    units_.push_back(std::make_unique<ShardedUnit>(
        name, *modules[i], make_flats(name, lists[i], *group_, recorder), group_, subgroup,
        ShardedUnit::Options{.reshard_after_forward = testing::reshard_of(group),
                             .keep_until_backward = keeps}));
    units_.back()->install_hooks();
  }
  std::vector<ShardedUnit*> units;
  for (const auto& unit : units_) units.push_back(unit.get());
  reducer_ = std::make_unique<GradientReducer>(units, group_);
  reducer_->begin_step(plan_);
}

Variable ShardedToy::loss(int m, int step) {
  const auto j = plan_.micro_batch(m, recorder_.rank(), recorder_.world_size());
  const auto orders = recorder_.option("orders", std::vector<std::vector<int>>{});
  if (!orders.empty()) model_.order = orders.at(static_cast<std::size_t>(m) % orders.size());
  const auto asides = recorder_.option("aside", std::vector<std::vector<int>>{});
  if (!asides.empty()) {
    const Variable x(noise({4, recorder_.option("width", 5)}, 3));
    for (const int layer : asides.at(static_cast<std::size_t>(m) % asides.size())) {
      (void)(*model_.layers().at(static_cast<std::size_t>(layer)))(x);
    }
  }
  return toy_loss(model_, recorder_.option("width", 5), static_cast<int>(recorder_.seed()) + step,
                  static_cast<int>(j),
                  precision_of(recorder_.asked().options).param_dtype_for(dtype_of(recorder_)));
}

void ShardedToy::backward(const Variable& loss) {
  loss.backward();
  reducer_->end_of_backward();
}

std::vector<FlatParameter*> trainable_flats(const ShardedUnit& unit) {
  std::vector<FlatParameter*> flats;
  for (const auto& flat : unit.flat_parameters()) {
    if (flat->requires_grad()) flats.push_back(flat.get());
  }
  return flats;
}

std::vector<std::string> states_of(ShardedToy& toy) {
  std::vector<std::string> states;
  for (const auto& unit : toy.units()) {
    const bool is_sharded = unit->state() == ShardedUnit::State::sharded;
    states.push_back(unit->name() + (is_sharded ? " sharded" : " not sharded"));
  }
  return states;
}

Tensor given_gradient(const Recorder& recorder, Shape shape, std::size_t index) {
  auto values = noise(shape, 100 * recorder.seed() + index).to_vector<float>();
  values.front() = -0.0F;
  if (values.size() > 2) values[1] = std::numeric_limits<float>::infinity();
  return Tensor::from(values, std::move(shape));
}

void contribute(const Recorder& recorder, const FlatParameter& flat, std::size_t index) {
  const Variable& parameter = flat.parameters().at(index).variable;
  const Variable factor(given_gradient(recorder, parameter.shape(), index));
  sum(multiply(parameter, factor)).backward();
}

void fill_full_grad(const Recorder& recorder, const FlatParameter& flat, int m) {
  const auto stream = static_cast<std::uint64_t>(100 * recorder.rank() + m);
  flat.full_grad().storage()->allocate();
  const Tensor values = noise({flat.padded_numel()}, 10000 * recorder.seed() + stream);
  ops::copy(flat.full_grad(), values);
}

void inside_backward(const std::function<void()>& call) {
  Variable x(noise({2}, 1), true);
  x.register_post_accumulate_grad_hook([&](const Variable&) {
    call();
    throw Stopped{};
  });
  try {
    sum(x).backward();
  } catch (const Stopped&) {
  }
}

void backward_up_to(nn::Module& module, const Variable& loss) {
  const int hook = module.register_full_backward_hook([](nn::Module&) { throw Stopped{}; });
  try {
    loss.backward();
  } catch (const Stopped&) {
  }
  module.remove_hook(hook);
}

}  // namespace fsdp::graded
