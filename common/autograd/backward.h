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
/// Hooks run on this thread; a leaf's post-accumulate hooks run when the node that made its last
/// contribution has run and let go of its tensors. A throw from a node or a hook leaves the tape
/// released and rethrows.
/// @throws Error if `root` has more than one element, needs no gradient, or its tape was used
/// before.
void backward(const Variable& root);

/// Runs `callback` when the current backward has finished (after all hooks), in the order queued.
/// Inside a backward that a node of another one runs, it waits for the outermost.
/// @throws Error outside a backward.
void queue_backward_callback(std::function<void()> callback);

/// True on a thread that is inside backward().
bool in_backward();

}  // namespace fsdp
