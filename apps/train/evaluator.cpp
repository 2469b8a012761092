#include "train/evaluator.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "base/fixed_math.h"
#include "tensor/tree_sum.h"
#include "train/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace fsdp::train {

double perplexity(float loss) { return fixed::exp(static_cast<double>(loss)); }

Evaluator::Evaluator(const TokenData& data, std::int64_t batch, std::int64_t sequence_length,
                     ProcessGroup* group)
    : data_(data),
      batch_(batch),
      sequence_length_(sequence_length),
      group_(group),
      windows_((data.size() - 1) / sequence_length) {
  FSDP_CHECK(windows_ > 0, "{} tokens, but windows of {}", data.size(), sequence_length);
}

MicroBatch Evaluator::windows_from(std::int64_t first) const {
  MicroBatch made = MicroBatch::empty(batch_, sequence_length_);
  for (std::int64_t i = 0; i < batch_; ++i) {
    fill(made, i, data_, std::min(first + i, windows_ - 1) * sequence_length_);
  }
  return made.on_device();
}

std::vector<float> Evaluator::losses_of(nn::Module& model, const MicroBatch& micro) const {
  const Variable logits = model(Variable(micro.tokens));
  std::vector<float> losses;
  for (std::int64_t i = 0; i < batch_; ++i) {
    const Variable loss =
        cross_entropy(Variable(logits.data().narrow(0, i, 1)), micro.targets.narrow(0, i, 1));
    losses.push_back(static_cast<float>(loss.data().item()));
  }
  return losses;
}

float Evaluator::mean_loss(nn::Module& model) const {
  const NoGradScope no_grad;
  const std::int64_t rank = group_ == nullptr ? 0 : group_->rank();
  const std::int64_t ranks = group_ == nullptr ? 1 : group_->size();
  std::vector<float> losses;  // by window
  for (std::int64_t first = 0; first < windows_; first += ranks * batch_) {
    const std::vector<float> mine = losses_of(model, windows_from(first + rank * batch_));
    const std::vector<float> all = gather(group_, mine, {"validation loss", Phase::loss});
    losses.insert(losses.end(), all.begin(), all.end());
  }
  losses.resize(static_cast<std::size_t>(windows_));  // without those that filled places
  return tree_sum(losses) * (1.0F / static_cast<float>(windows_));
}

}  // namespace fsdp::train
