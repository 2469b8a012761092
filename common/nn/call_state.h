/// @file
/// @ingroup nn
/// CallState: the moments of a module's call.
#pragma once

#include <string_view>

namespace fsdp::nn {

/// The eight moments of a module's life in one iteration, in this order.
enum class CallState {
  before_pre_forward,
  after_pre_forward,
  before_post_forward,
  after_post_forward,
  before_pre_backward,
  after_pre_backward,
  before_post_backward,
  after_post_backward,
};
inline constexpr int kCallStates = 8;
std::string_view name_of(CallState state);  ///< "BEF_PRE_FW", "AFT_PRE_FW", …

}  // namespace fsdp::nn
