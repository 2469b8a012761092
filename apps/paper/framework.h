/// @file
/// @ingroup paper
/// Framework: whose engine a walk is true of.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::paper {

/// Whose rules decide what a rank holds.
enum class Framework {
  unshard,       ///< those of this repository, to the byte
  pytorch,       ///< FSDP2 with torchtitan's Llama, from 2025 on
  pytorch_2024,  ///< the same as torchtitan used it in 2024
  deepspeed,     ///< ZeRO's stages 0 to 3 with Hugging Face's Llama
};
std::string_view name_of(Framework framework);     ///< "pytorch-2024"
std::string_view meaning_of(Framework framework);  ///< one sentence, without a full stop
std::vector<Framework> all_frameworks();
std::optional<Framework> framework_named(std::string_view name);

/// What PyTorch's programs do in one way or the other. torchtitan's source at its tags v0.1.0
/// (2025) and v0.0.2 (2024) has each.
struct TorchHabits {
  bool root_holds_ends = false;   ///< embedding, last norm and output are one unit, the root
  bool keeps_last_block = false;  ///< gathered, from its forward to its backward
  bool frees_head = false;        ///< after forward; else norm and output are kept
  bool norm_in_float32 = false;   ///< RMSNorm is written out, in float32; else F.rms_norm
  bool keeps_prediction = false;  ///< the logits in float32 live until the end of backward
  bool compiles_blocks = false;   ///< torch.compile of each block
  bool compiles_loss = false;     ///< and of the loss, which then makes no float32 of the logits
  bool computes_float8 = false;   ///< torchao: products of blocks round their operands to float8
  bool head_in_float8 = false;    ///< and that of the output
  bool gathers_float8 = false;    ///< their weights are rounded before they are gathered
  // What Hugging Face's Llama (transformers 5) does otherwise than torchtitan's.
  bool rotates_halves = false;       ///< queries and keys, in the model's format
  bool shares_heads = false;         ///< attention reads grouped keys and values as they are
  bool attends_by_products = false;  ///< attention "eager": each of its products is a tensor
  bool shifts_labels = false;        ///< the loss compares with a shifted copy of the labels
  bool keeps_logits = false;         ///< the model's output lives until the micro-step has ended
};
TorchHabits habits_of(Framework framework);
/// Each of them, as a sentence says it.
std::vector<std::pair<std::string_view, bool TorchHabits::*>> torch_habits(Framework framework);

}  // namespace fsdp::paper
