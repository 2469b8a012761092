#include "nn/lora.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "tensor/cast.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fsdp::nn {

namespace {

void freeze(Module& model, const std::optional<DType>& dtype) {
  for (NamedParameter& each : model.named_parameters()) {
    each.variable.set_requires_grad(false);
    if (dtype && each.variable.data().dtype() != *dtype) each.variable.convert(*dtype);
  }
}

}  // namespace

LoraBranch::LoraBranch(const Linear& base, std::int64_t rank, double scale) : scale_(scale) {
  const std::int64_t out = base.weight().shape()[0], in = base.weight().shape()[1];
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  a_ = register_child("lora_A", make_linear(in, rank, InitSpec::uniform(-bound, bound)));
  b_ = register_child("lora_B", make_linear(rank, out, InitSpec::zeros()));
}

// Scaled where it is smallest.
Variable LoraBranch::forward(const Variable& x) { return (*b_)(scale((*a_)(x), scale_)); }

void add_lora(Module& model, const Lora& lora, std::optional<DType> base_dtype) {
  FSDP_CHECK(lora.rank > 0 && lora.alpha > 0, "LoRA: rank {} and alpha {} must be positive",
             lora.rank, lora.alpha);
  freeze(model, base_dtype);
  std::vector<Linear*> linears;
  for (const std::string& target : lora.targets) {
    const std::size_t before = linears.size();
    for (Module* module : model.modules()) {
      auto* linear = dynamic_cast<Linear*>(module);
      if (linear == nullptr || !Lora::names(target, module->path())) continue;
      if (std::ranges::find(linears, linear) == linears.end()) linears.push_back(linear);
    }
    FSDP_CHECK(linears.size() > before, "LoRA: no further linear of the model is named {}", target);
  }
  // In the order of the model, so that the order of the targets changes nothing.
  for (Module* module : model.modules()) {
    const auto target = std::ranges::find(linears, module);
    if (target == linears.end()) continue;
    (*target)->attach(std::make_shared<LoraBranch>(**target, lora.rank, lora.scale()));
  }
}

std::vector<NamedParameter> without_lora(std::vector<NamedParameter> parameters) {
  std::erase_if(parameters, [](const NamedParameter& each) { return is_lora(each.path); });
  return parameters;
}

Tensor merge_lora(const Tensor& weight, const Tensor& a, const Tensor& b, double scale) {
  Tensor merged = Tensor::empty(weight.shape(), DType::float32, weight.device());
  ops::matmul(merged, b, ops::Transpose::no, a, ops::Transpose::no);
  ops::scale(merged, scale);
  ops::add(merged, merged, cast(weight, DType::float32));
  return merged;
}

}  // namespace fsdp::nn
