/// @file
/// @ingroup nn
/// LoRA (Hu et al. 2021): fine-tuning a model by a small addition to some of its linears.
///
///     y = W x  +  B (s A x)          s = alpha / rank
///
///         W (out, in)   frozen: no gradient, no optimizer state, no saved input
///         A (rank, in)  drawn       ┐ the adapter, which is trained
///         B (out, rank) zero        ┘ so at first nothing is added
///
/// After training, W + s·B·A is an ordinary weight again.
#pragma once

#include "base/lora.h"
#include "nn/layers.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::nn {

/// What is added to a linear: B (s A x), with children lora_A and lora_B.
class LoraBranch : public Module {
 public:
  LoraBranch(const Linear& base, std::int64_t rank, double scale);

 protected:
  Variable forward(const Variable& x) override;

 private:
  std::shared_ptr<Linear> a_, b_;
  double scale_;
};

/// Freezes all parameters of `model`, and gives every target an adapter. Paths stay; a target
/// "layers.0.q_proj" also has "layers.0.q_proj.lora_A.weight" and "….lora_B.weight". A is drawn
/// uniformly from ±1/√in, as PEFT does, after all that the model has drawn. Call it before
/// sharding, and within DeferredInit::build if the model is built there.
/// @param base_dtype in which frozen parameters are stored; none: as they are. Nothing updates
/// them, so they need no masters in float32 beside what the model reads.
/// @throws Error unless rank and alpha are positive and every target names a linear.
void add_lora(Module& model, const Lora& lora, std::optional<DType> base_dtype = {});

/// Without those of adapters.
std::vector<NamedParameter> without_lora(std::vector<NamedParameter> parameters);

/// W + s·(B·A), in float32, whatever the dtype of W.
Tensor merge_lora(const Tensor& weight, const Tensor& a, const Tensor& b, double scale);

}  // namespace fsdp::nn
