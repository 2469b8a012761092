#include "oracle/oracle_run.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "optim/local_gradients.h"
#include "tensor/ops.h"

#include <cmath>
#include <utility>

namespace fsdp::testing {
namespace {

Tensor clone(const Tensor& from) {
  const Tensor copy = Tensor::empty(from.shape(), from.dtype());
  ops::copy(copy, from);
  return copy;
}

Tensor batch_of(const Tensor& batches, std::int64_t step) {
  return clone(batches.narrow(0, step, 1).view({batches.shape().at(1), batches.shape().at(2)}));
}

}  // namespace

OracleNumbers run_like_the_oracle(nn::TransformerLM& model, const Tensor& tokens,
                                  const Tensor& targets, double lr,
                                  const optim::AdamW::Options& adamw) {
  OracleNumbers numbers;
  {
    const NoGradScope no_grad;
    numbers.logits = model(Variable(batch_of(tokens, 0))).data();
  }
  optim::LocalGradients gradients(model.variables());
  optim::AdamW optimizer(adamw);
  for (std::int64_t step = 0; step < tokens.shape().at(0); ++step) {
    gradients.begin_step({1, 1});
    const Variable loss =
        cross_entropy(model(Variable(batch_of(tokens, step))), batch_of(targets, step));
    numbers.losses.push_back(static_cast<float>(loss.data().item()));
    loss.backward();
    gradients.end_micro_step();
    gradients.finish_gradients();
    if (step == 0) {
      for (const auto& [path, variable] : model.variables()) {
        numbers.gradients[path] = clone(variable.grad());
      }
    }
    optimizer.step(gradients.pieces(), lr);
    gradients.zero_grad();
  }
  for (const auto& [path, variable] : model.variables()) {
    numbers.parameters[path] = clone(variable.data());
  }
  return numbers;
}

std::map<std::string, Tensor> step_on_gradients(
    nn::TransformerLM& model, const std::map<std::string, std::vector<Tensor>>& gradients,
    double lr, const optim::AdamW::Options& adamw) {
  std::map<std::string, Tensor> parameters;
  optim::AdamW optimizer(adamw);
  std::vector<optim::Piece> pieces;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    parameters[each.path] = clone(each.variable.data());
    const std::int64_t numel = each.variable.data().numel();
    pieces.push_back(
        {.key = each.path, .param = parameters[each.path].view({numel}), .grad = {}, .unit = {}});
  }
  const std::size_t steps = gradients.begin()->second.size();
  for (std::size_t step = 0; step < steps; ++step) {
    for (optim::Piece& piece : pieces) {
      piece.grad = gradients.at(piece.key).at(step).view({piece.param.numel()});
    }
    optimizer.step(pieces, lr);
  }
  return parameters;
}

double relative_difference(const Tensor& a, const Tensor& b, const Tensor& start) {
  FSDP_CHECK(a.shape() == b.shape() && a.shape() == start.shape(),
             "shapes {}, {} and {} to compare", to_string(a.shape()), to_string(b.shape()),
             to_string(start.shape()));
  const auto x = a.to_vector<float>();
  const auto y = b.to_vector<float>();
  const auto from = start.to_vector<float>();
  double difference = 0;
  double whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    whole += std::pow(static_cast<double>(y[i]) - static_cast<double>(from[i]), 2);
  }
  return std::sqrt(difference / whole);
}

double relative_difference(const Tensor& a, const Tensor& b) {
  return relative_difference(a, b, Tensor::zeros(b.shape()));
}

}  // namespace fsdp::testing
