#include "paper/framework.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fsdp::paper {

namespace {

constexpr std::array<std::pair<Framework, std::string_view>, 4> kNames{
    {{Framework::unshard, "unshard"},
     {Framework::pytorch, "pytorch"},
     {Framework::pytorch_2024, "pytorch-2024"},
     {Framework::deepspeed, "deepspeed"}}};

}  // namespace

std::string_view name_of(Framework framework) {
  return std::ranges::find(kNames, framework, &decltype(kNames)::value_type::first)->second;
}

std::string_view meaning_of(Framework framework) {
  switch (framework) {
    case Framework::pytorch:
      return "FSDP2 with torchtitan's Llama as of 2025, by rules that PyTorch's own memory tracker "
             "confirms";
    case Framework::pytorch_2024:
      return "FSDP2 with torchtitan's Llama as of 2024, by rules that PyTorch's own memory tracker "
             "confirms";
    case Framework::deepspeed:
      return "DeepSpeed's ZeRO as of 0.19 with Hugging Face's Llama, by the rules of its source";
    case Framework::unshard:
      break;
  }
  return "the engine of this course, to the byte; PyTorch holds more (--framework pytorch)";
}

std::vector<Framework> all_frameworks() {
  std::vector<Framework> all;
  all.reserve(kNames.size());
  for (const auto& each : kNames) all.push_back(each.first);
  return all;
}

std::optional<Framework> framework_named(std::string_view name) {
  for (const auto& [framework, its_name] : kNames) {
    if (its_name == name) return framework;
  }
  return std::nullopt;
}

TorchHabits habits_of(Framework framework) {
  if (framework == Framework::deepspeed) {
    return {.norm_in_float32 = true,
            .rotates_halves = true,
            .shares_heads = true,
            .shifts_labels = true,
            .keeps_logits = true};
  }
  const bool is_old = framework == Framework::pytorch_2024;
  return {.root_holds_ends = is_old, .keeps_last_block = is_old, .norm_in_float32 = is_old};
}

std::vector<std::pair<std::string_view, bool TorchHabits::*>> torch_habits(Framework framework) {
  if (framework == Framework::deepspeed) {
    return {{"attention is eager, product by product", &TorchHabits::attends_by_products},
            {"the model's output is kept", &TorchHabits::keeps_logits},
            {"RMSNorm is written out in float32", &TorchHabits::norm_in_float32}};
  }
  return {{"embedding, last norm and output are kept in the root", &TorchHabits::root_holds_ends},
          {"the last block stays gathered after forward", &TorchHabits::keeps_last_block},
          {"norm and output are resharded after forward", &TorchHabits::frees_head},
          {"RMSNorm is written out in float32", &TorchHabits::norm_in_float32},
          {"the prediction lives on in float32", &TorchHabits::keeps_prediction},
          {"blocks are compiled", &TorchHabits::compiles_blocks},
          {"the loss is compiled", &TorchHabits::compiles_loss},
          {"products of blocks are in float8", &TorchHabits::computes_float8},
          {"and that of the output", &TorchHabits::head_in_float8},
          {"weights are gathered in float8", &TorchHabits::gathers_float8}};
}

}  // namespace fsdp::paper
