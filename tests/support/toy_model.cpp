#include "support/toy_model.h"

#include "autograd/functions.h"
#include "base/philox.h"

namespace fsdp::testing {

namespace {
const InitSpec kInit = InitSpec::uniform(-0.5, 0.5);
}  // namespace

ToyLayer::ToyLayer(const ToyConfig& config, bool nested, const Variable& weight) {
  const std::int64_t d = config.width;
  if (weight.is_defined()) {
    weight_ = weight;
    register_shared_parameter("weight", weight_);
  } else {
    weight_ = register_parameter("weight", {d, d}, kInit);
  }
  bias_ = register_parameter("bias", {d}, kInit);
  if (config.unused) register_parameter("spare", {3}, kInit);
  if (nested) {
    inner_ = register_child("inner", std::make_shared<ToyLayer>(config, false, Variable()));
  }
}

Variable ToyLayer::forward(const Variable& x) {
  const Variable y = tanh(linear(x, weight_, bias_));
  return inner_ ? (*inner_)(y) : y;
}

Toy::Toy(const ToyConfig& config) {
  const std::int64_t d = config.width;
  if (config.root_weight) weight_ = register_parameter("weight", {d, d}, kInit);
  for (int i = 0; i < config.layers; ++i) {
    const bool is_tied = i > 0 && (config.shared || (config.tied && i == config.layers - 1));
    const Variable shared = is_tied ? layers_.front()->weight() : Variable();
    layers_.push_back(register_child("layers." + std::to_string(i),
                                     std::make_shared<ToyLayer>(config, config.nested, shared)));
    order.push_back(i);
  }
  for (const nn::NamedParameter& each : named_parameters()) {
    for (const std::string& prefix : config.frozen) {
      if (each.path.starts_with(prefix)) Variable(each.variable).set_requires_grad(false);
    }
  }
}

Variable Toy::forward(const Variable& x) {
  Variable y = weight_.is_defined() ? linear(x, weight_) : x;
  for (const int i : order) y = (*layers_.at(static_cast<std::size_t>(i)))(y);
  return weight_.is_defined() ? linear(y, weight_) : y;
}

Tensor noise(Shape shape, std::uint64_t stream) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < numel_of(shape); ++i) {
    const auto word = random_word(7, (stream << 20) + static_cast<std::uint64_t>(i));
    values.push_back(static_cast<float>(word >> 8) * 0x1p-23F - 1.0F);
  }
  return Tensor::from(values, std::move(shape));
}

Variable toy_loss(nn::Module& model, std::int64_t width, int step, int j, DType dtype) {
  const auto stream = static_cast<std::uint64_t>(2 * (1000 * std::int64_t{step} + j));
  Variable x(noise({4, width}, stream));
  Variable y(noise({4, width}, stream + 1));
  if (dtype != DType::float32) {
    x.convert(dtype);
    y.convert(dtype);
  }
  return mse_loss(model(x), y.data());
}

}  // namespace fsdp::testing
