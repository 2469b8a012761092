/// @file
/// @ingroup autograd
/// The backward pass.
#pragma once

#include "autograd/node.h"
#include "autograd/variable.h"

#include <functional>

namespace fsdp {

/// Runs the tape from `root` (one element) back to the leaves, with d(root) = 1.
///
/// Order: among nodes whose output gradient is complete, the one recorded last goes first; so the
/// order is that of the recording, reversed, and the same every time. A node's saved tensors are
/// released when it has run, and its output's gradient is freed; the tape can be used once.
/// Allocations count as TEMP, leaf gradients as UNSHARDED_GRAD.
/// Hooks run on this thread. A throw from a node or a hook leaves the tape released and rethrows.
void backward(const Variable& root);

/// Runs `callback` when the current backward has finished (after all hooks), in the order queued.
/// @throws Error outside a backward.
void queue_backward_callback(std::function<void()> callback);

/// True on a thread that is inside backward().
bool in_backward();

}  // namespace fsdp
