/// @file
/// @ingroup base
/// Lora: which linears have an adapter, and of what rank. The modules are nn/lora.h's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// LoRA: only small adapters beside a few linears are trained.
struct Lora {
  std::int64_t rank = 0;  ///< 0 = off
  double alpha = 16;      ///< adapters count alpha / rank times
  /// Names of linears ("q_proj"), or paths.
  std::vector<std::string> targets = {"q_proj", "v_proj"};

  double scale() const { return alpha / static_cast<double>(rank); }
  /// As in PEFT: whether `target` is the whole path of this linear, or its end.
  static bool names(std::string_view target, std::string_view path) {
    return path == target ||
           (path.ends_with(target) && path.substr(0, path.size() - target.size()).ends_with('.'));
  }
  /// Whether the linear of this path has an adapter.
  bool adapts(std::string_view path) const {
    return rank > 0 &&
           std::ranges::any_of(targets, [&](const std::string& each) { return names(each, path); });
  }
};

/// Whether the parameter of this path belongs to an adapter.
inline bool is_lora(std::string_view path) {
  return path.ends_with(".lora_A.weight") || path.ends_with(".lora_B.weight");
}

}  // namespace fsdp
