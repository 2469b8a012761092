/// @file
/// @ingroup comm
/// What ranks and the coordinator tell each other.
#pragma once

#include "comm/control_state.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fsdp::processes {

/// One control message. Each kind uses some of the fields.
struct Message {
  enum class Kind : std::uint8_t {
    // A rank tells what it does.
    call,      ///< group, call, choice, unwinding
    waits,     ///< group, sequence, unwinding
    asks,      ///< group, sequence, unwinding, times
    computes,  ///< no longer polls
    goes_on,   ///< unwinding
    aborts,    ///< text, have_devices_failed
    returned,  ///< text: the operation of a Work that it has leaked, if any
    threw,     ///< text, type
    // Either to the other.
    beat,  ///< the sender's process is there
    // The coordinator answers.
    agreed,  ///< group, sequence; of a split also part and members: the rank's new group
    stop,    ///< text: the reason; is_provisional: the rank's own exception may be a better one;
             ///< have_devices_failed: what they were given may never end
    end,     ///< all ranks have ended. rank: that threw text of type; -1: text is the reason, or ""
  };

  Kind kind = Kind::call;
  int world = 0;  ///< of its process's worlds, by number: what belongs to an earlier one is late
  int group = 0;  ///< 0 = the world; others are numbered by the coordinator
  std::int64_t sequence = 0;
  /// Without its pointers; `on_device` only says whether it is null.
  Collective call{.op = CollectiveOp::barrier};
  control::SplitChoice choice{};
  bool unwinding = false;
  std::int64_t times = 0;
  std::string text{};
  std::string type{};
  bool is_provisional = false;
  bool have_devices_failed = false;
  int rank = -1;
  int part = 0;
  std::vector<int> members{};  ///< world ranks
};

std::vector<std::byte> to_bytes(const Message& message);
/// @throws Error if `bytes` are no message: another version of this program
Message from_bytes(std::span<const std::byte> bytes);

}  // namespace fsdp::processes
