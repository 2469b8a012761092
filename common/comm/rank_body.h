/// @file
/// @ingroup comm
/// What every world does on a rank's thread.
#pragma once

#include "comm/world.h"

#include <functional>
#include <memory>

namespace fsdp {

/// Calls `body` with a group over `backend`, in a Context of its own.
void run_body(const RankOptions& options, std::shared_ptr<Backend> backend,
              const std::function<void(ProcessGroup&)>& body);

}  // namespace fsdp
