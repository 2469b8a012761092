/// @file
/// @ingroup tensor
/// Rotary positions for contexts that are longer than the first training's.
#pragma once

#include <cstdint>

namespace fsdp {

/// How Llama 3.1 lowers the frequencies of its rotary positions ("llama3" of Hugging Face's
/// rope_scaling). With N = original_max_position_embeddings, a frequency f turns n = N·f / 2π times
/// within the original context, and becomes
///
///     n < low_freq_factor     f / factor
///     n > high_freq_factor    f
///     in between              (1 - s) · f / factor + s · f,   s = (n - low) / (high - low)
struct RopeScaling {
  double factor = 0;  ///< 0 = no scaling
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;

  bool is_on() const { return factor != 0; }
  bool operator==(const RopeScaling&) const = default;
};

}  // namespace fsdp
