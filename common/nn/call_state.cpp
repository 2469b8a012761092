#include "nn/call_state.h"

#include <array>
#include <cstddef>

namespace fsdp::nn {

std::string_view name_of(CallState state) {
  static constexpr std::array<std::string_view, kCallStates> kNames{
      "BEF_PRE_FW", "AFT_PRE_FW", "BEF_POST_FW", "AFT_POST_FW",
      "BEF_PRE_BW", "AFT_PRE_BW", "BEF_POST_BW", "AFT_POST_BW"};
  return kNames.at(static_cast<std::size_t>(state));
}

}  // namespace fsdp::nn
