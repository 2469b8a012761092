#include "autograd/functions.h"
#include "device/context.h"
#include "graded/device.h"
#include "graded/precision.h"
#include "graded/remember.h"
#include "optim/local_gradients.h"
#include "support/toy_model.h"
#include "task4/frames.h"
#include "task4/oracle.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

namespace fsdp::graded {
namespace {

std::vector<std::pair<std::string, Variable>> parameters_of(nn::Module& model) {
  std::vector<std::pair<std::string, Variable>> parameters;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    parameters.emplace_back(each.path, each.variable);
  }
  return parameters;
}

UnitLayout layout_of(const std::string& name, const std::vector<nn::NamedParameter>& parameters,
                     bool split) {
  UnitLayout unit{name, {}};
  for (int kind = 0; kind < 3; ++kind) {  // weights, biases if they are apart, frozen parameters
    FlatLayout flat{kind < 2, {}, {}, 0};
    for (const nn::NamedParameter& each : parameters) {
      const bool is_apart = split && each.path.ends_with("bias");
      const int its = !each.variable.requires_grad() ? 2 : is_apart ? 1 : 0;
      if (its != kind) continue;
      flat.paths.push_back(each.path);
      flat.sizes.push_back(numel_of(each.variable.shape()));
      flat.numel += flat.sizes.back();
    }
    if (flat.numel > 0) unit.flats.push_back(std::move(flat));
  }
  return unit;
}

/// The micro-step in which some rank has micro-batch j.
int micro_step_of(const Case& asked, int j) {
  const optim::StepPlan plan{asked.options.value("micro_steps", 1),
                             asked.options.value("per_reduction", 1)};
  for (int m = 0; m < plan.micro_steps; ++m) {
    for (int rank = 0; rank < asked.world_size; ++rank) {
      if (plan.micro_batch(m, rank, asked.world_size) == j) return m;
    }
  }
  return 0;
}

template <class T>
using ByPath = std::vector<std::pair<std::string, std::vector<T>>>;

/// Runs the backward of micro-batch j and returns the gradients by path.
template <class T>
ByPath<T> gradients_of(const Case& asked, int step, int j) {
  constexpr DType kDType = std::is_same_v<T, double> ? DType::float64 : DType::float32;
  Context context(rank_options(asked.device, asked.seed));
  const ContextScope scope(context);
  testing::Toy model(config_of(asked));
  for (auto& [path, parameter] : parameters_of(model)) {
    if (kDType != DType::float32) parameter.convert(kDType);
  }
  const optim::MixedPrecision precision = precision_of(asked.options);
  const optim::MasterWeights masters(parameters_of(model), precision);
  optim::LocalGradients engine(parameters_of(model), masters);
  engine.begin_step({1, 1});
  const Case now = in_micro_step(asked, micro_step_of(asked, j));
  model.order = now.options.value("order", model.order);
  testing::toy_loss(model, config_of(asked).width, static_cast<int>(asked.seed) + step, j,
                    precision.param_dtype_for(kDType))
      .backward();
  engine.end_micro_step();
  engine.finish_gradients();
  ByPath<T> gradients;
  for (const optim::Piece& piece : engine.pieces()) {
    gradients.emplace_back(piece.key, piece.grad.to_vector<T>());
  }
  return gradients;
}

/// The elements of a flat parameter, end to end.
template <class T>
std::vector<T> flatten(const FlatLayout& flat, const ByPath<T>& gradients) {
  std::vector<T> whole;
  for (const std::string& path : flat.paths) {
    const auto found = std::find_if(gradients.begin(), gradients.end(),
                                    [&](const auto& each) { return each.first == path; });
    whole.insert(whole.end(), found->second.begin(), found->second.end());
  }
  return whole;
}

/// "layers.2" for "layers.2.inner.weight"; "" for what is in no layer.
std::string layer_of_path(const std::string& path) {
  if (!path.starts_with("layers.")) return "";
  return path.substr(0, path.find('.', std::string("layers.").size()));
}

}  // namespace

testing::ToyConfig config_of(const Case& asked) {
  const Json& options = asked.options;
  return {.width = options.value("width", 5),
          .layers = options.value("layers", 3),
          .root_weight = options.value("root", false),
          .tied = options.value("tied", false),
          .unused = options.value("spare", false),
          .nested = options.value("nested", false),
          .frozen = options.value("frozen", std::vector<std::string>{}),
          .shared = options.value("shared", false)};
}

namespace {

std::vector<UnitLayout> find_units(const Case& asked) {
  Context context({.seed = asked.seed});
  const ContextScope scope(context);
  testing::Toy model(config_of(asked));
  // A layer of the tower is a unit. What two layers share, or none has, is the root's.
  std::map<const void*, std::set<std::string>> layers_of;
  for (const nn::NamedParameter& use : model.named_parameters_with_ties()) {
    layers_of[use.variable.id()].insert(layer_of_path(use.path));
  }
  std::map<std::string, std::vector<nn::NamedParameter>> lists;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    const std::set<std::string>& users = layers_of[each.variable.id()];
    lists[users.size() == 1 ? *users.begin() : ""].push_back(each);
  }
  const bool split = asked.options.value("split", false);
  std::vector<UnitLayout> units;
  if (!lists[""].empty()) units.push_back(layout_of("root", lists[""], split));
  for (const auto& layer : model.layers()) {
    if (!lists[layer->path()].empty()) {
      units.push_back(layout_of(layer->path(), lists[layer->path()], split));
    }
  }
  return units;
}

}  // namespace

int shards_of(const Case& asked) { return asked.world_size / asked.options.value("replicas", 1); }

std::int64_t FlatLayout::padded(int world_size) const {
  return (numel + world_size - 1) / world_size * world_size;
}

std::vector<FlatLayout> UnitLayout::trainable() const {
  std::vector<FlatLayout> some;
  for (const FlatLayout& flat : flats) {
    if (flat.trainable) some.push_back(flat);
  }
  return some;
}

std::vector<UnitLayout> units_of(const Case& asked) {
  return remembered(asked, [&] { return find_units(asked); });
}

std::int64_t full_grad_bytes(const UnitLayout& unit, int world_size) {
  std::int64_t total = 0;
  for (const FlatLayout& flat : unit.trainable()) total += 4 * flat.padded(world_size);
  return total;
}

std::int64_t shard_grad_bytes(const UnitLayout& unit, int world_size) {
  return full_grad_bytes(unit, world_size) / world_size;
}

DType reduce_dtype_of(const Case& asked) {
  return precision_of(asked.options).reduce_dtype_for(DType::float32);
}

template <class T>
std::vector<T> tree(const std::vector<std::vector<T>>& leaves, DType dtype) {
  if (leaves.size() == 1) return leaves.front();
  std::size_t half = 1;
  while (2 * half < leaves.size()) half *= 2;
  const auto middle = leaves.begin() + static_cast<std::ptrdiff_t>(half);
  std::vector<T> sum = tree<T>({leaves.begin(), middle}, dtype);
  const std::vector<T> right = tree<T>({middle, leaves.end()}, dtype);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += right[i];
    if constexpr (std::is_same_v<T, float>) sum[i] = rounded(sum[i], dtype);
  }
  return sum;
}
template Floats tree(const std::vector<Floats>& leaves, DType dtype);
template std::vector<double> tree(const std::vector<std::vector<double>>& leaves, DType dtype);

Floats noise_of(std::int64_t numel, std::uint64_t stream) {
  return testing::noise({numel}, stream).to_vector<float>();
}

Floats given_gradient_of(const Case& asked, std::int64_t numel, std::size_t index) {
  Floats values = noise_of(numel, 100 * asked.seed + index);
  values.front() = -0.0F;
  if (values.size() > 2) values[1] = std::numeric_limits<float>::infinity();
  return values;
}

Floats filled_full_grad(const Case& asked, const FlatLayout& flat, int rank, int m) {
  Floats values = noise_of(flat.padded(shards_of(asked)),
                           10000 * asked.seed + static_cast<std::uint64_t>(100 * rank + m));
  const DType param_dtype = precision_of(asked.options).param_dtype_for(DType::float32);
  for (float& value : values) value = rounded(rounded(value, param_dtype), reduce_dtype_of(asked));
  return values;
}

template <class T>
GradientsOf<T>::GradientsOf(const Case& asked, int step)
    : asked_(asked),
      micro_steps_(asked.options.value("micro_steps", 1)),
      per_reduction_(asked.options.value("per_reduction", 1)) {
  for (int j = 0; j < micro_steps_ * asked.world_size; ++j) {
    leaves_.push_back(gradients_of<T>(asked, step, j));
  }
}

template <class T>
std::vector<T> GradientsOf<T>::of(const FlatLayout& flat, int groups, T factor) const {
  const optim::StepPlan plan{micro_steps_, per_reduction_};
  if (groups < 0) groups = micro_steps_ / per_reduction_;
  const DType dtype = reduce_dtype_of(asked_);
  std::vector<std::vector<T>> of_groups;
  for (int group = 0; group < groups; ++group) {
    std::vector<std::vector<T>> of_ranks;
    for (int rank = 0; rank < asked_.world_size; ++rank) {
      std::vector<std::vector<T>> micro_steps;
      for (int m = group * per_reduction_; m < (group + 1) * per_reduction_; ++m) {
        const auto j = plan.micro_batch(m, rank, asked_.world_size);
        micro_steps.push_back(flatten<T>(flat, leaves_.at(static_cast<std::size_t>(j))));
      }
      of_ranks.push_back(tree(micro_steps, dtype));
    }
    of_groups.push_back(tree(of_ranks, dtype));
  }
  std::vector<T> sum = tree(of_groups, dtype);
  if (factor != 1) {
    for (T& value : sum) value *= factor;
  }
  sum.resize(static_cast<std::size_t>(flat.padded(shards_of(asked_))), 0);
  return sum;
}

template class GradientsOf<float>;
template class GradientsOf<double>;

std::int64_t valid_of(const FlatLayout& flat, int rank, int world_size) {
  const std::int64_t n = flat.shard(world_size);
  return std::clamp<std::int64_t>(flat.numel - rank * n, 0, n);
}

}  // namespace fsdp::graded
