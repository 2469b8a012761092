#include "oracle/oracle_run.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "tensor/cast.h"
#include "tensor/ops.h"
#include "train/ranks.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace fsdp::testing {
namespace {

Tensor clone(const Tensor& from) {
  const Tensor copy = Tensor::empty(from.shape(), from.dtype());
  ops::copy(copy, from);
  return copy;
}

// Which rows of a batch a rank takes.
struct Rows {
  std::int64_t begin;
  std::int64_t count;

  Rows(const Tensor& batches, ProcessGroup* group) {
    const std::int64_t ranks = group == nullptr ? 1 : group->size();
    const std::int64_t batch = batches.size(1);
    FSDP_CHECK(batch % ranks == 0, "{} rows cannot be divided among {} ranks", batch, ranks);
    count = batch / ranks;
    begin = group == nullptr ? 0 : group->rank() * count;
  }
  Tensor of(const Tensor& batches, std::int64_t step) const {
    const Tensor batch = batches.narrow(0, step, 1).view({batches.size(1), batches.size(2)});
    return clone(batch.narrow(0, begin, count));
  }
};

Tensor logits_of(nn::TransformerLM& model, ProcessGroup* group, const Tensor& tokens) {
  const NoGradScope no_grad;
  const Tensor mine = cast(model(Variable(tokens)).data(), DType::float32);  // as files hold them
  if (group == nullptr) return mine;
  const Tensor all = Tensor::empty({mine.numel() * group->size()}, mine.dtype());
  group->all_gather(all, mine.view({mine.numel()}), {"logits", Phase::none}).wait();
  return all.view({mine.size(0) * group->size(), mine.size(1), mine.size(2)});
}

float mean_over_ranks(ProcessGroup* group, float loss) {
  const std::vector<float> all = train::gather<float>(group, {loss}, {"loss", Phase::loss});
  return std::accumulate(all.begin(), all.end(), 0.0F) / static_cast<float>(all.size());
}

}  // namespace

OracleNumbers run_like_the_oracle(strategies::TrainedModel& trained, ProcessGroup* group,
                                  const Tensor& tokens, const Tensor& targets, double lr) {
  OracleNumbers numbers;
  const Rows rows(tokens, group);
  nn::TransformerLM& model = trained.model();
  numbers.logits = logits_of(model, group, rows.of(tokens, 0));
  if (!targets.is_defined()) return numbers;
  optim::GradientEngine& gradients = trained.gradients();
  for (std::int64_t step = 0; step < tokens.size(0); ++step) {
    trained.begin_step({1, 1});
    const Variable loss =
        cross_entropy(model(Variable(rows.of(tokens, step))), rows.of(targets, step));
    numbers.losses.push_back(mean_over_ranks(group, static_cast<float>(loss.data().item())));
    loss.backward();
    gradients.end_micro_step();
    gradients.finish_gradients();
    if (step == 0 && group == nullptr) {
      for (const auto& [path, variable] : model.variables()) {
        numbers.gradients[path] = clone(variable.grad());
      }
    }
    trained.step(lr);
    gradients.zero_grad();
  }
  trained.for_each_full_parameter(
      [&](const std::string& path, const Tensor& full) { numbers.parameters[path] = clone(full); });
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
