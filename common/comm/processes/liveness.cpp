#include "comm/processes/liveness.h"

#include "base/check.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace fsdp::processes {

bool Liveness::is_beat_due(Clock::time_point now) {
  if (now < last_beat_ + kBeat) return false;
  last_beat_ = now;
  return true;
}

// Checks come every millisecond or so: a long pause between two is one of this process, in which
// it could hear nobody.
std::optional<int> Liveness::silent(Clock::time_point now) {
  const bool was_stopped = now > last_check_ + kBeat;
  last_check_ = now;
  if (limit_.count() == 0) return std::nullopt;
  for (auto& [peer, heard] : heard_) {
    if (was_stopped) heard = now;
    if (now > heard + limit_) return peer;
  }
  return std::nullopt;
}

std::chrono::milliseconds silence_limit() {
  constexpr const char* kVariable = "FSDP_MPI_SILENCE";
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return std::chrono::seconds{30};
  const std::string_view digits = text;
  unsigned seconds = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), seconds);
  if (error != std::errc() || end != digits.end() || seconds > 86'400) {
    throw InputError(
        fmt::format("{}: is '{}', but must be a number of seconds up to 86400; 0 = wait forever",
                    kVariable, digits));
  }
  return std::chrono::seconds{seconds};
}

}  // namespace fsdp::processes
