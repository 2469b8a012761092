/// @file
/// @ingroup autograd
/// The backward pass.
#pragma once

#include "autograd/node.h"
#include "autograd/variable.h"

#include <functional>

namespace fsdp {

/// Runs the tape from `root` (one element) back to the leaves, with d(root) = `gradient`.
///
/// Order: of the nodes whose output gradient is complete, the one recorded last runs first. So the
/// order is the reverse of the recording, and the same every time. After a node has run, its saved
/// tensors are released and its output's gradient is freed; the tape can be used once.
/// Allocations count as TEMP, leaf gradients as UNSHARDED_GRAD.
/// Hooks run on this thread. A leaf's post-accumulate hooks run after the node of its last
/// contribution has run and released its tensors. If a node or a hook throws, the tape is released
/// and the exception propagates.
/// @throws Error if `root` has more than one element, needs no gradient, or its tape was used
/// before.
void backward(const Variable& root, double gradient = 1);

/// Runs `callback` after the current backward has finished (after all hooks), in queue order. In a
/// nested backward (run by a node of another), it runs after the outermost.
/// @throws Error outside a backward.
void queue_backward_callback(std::function<void()> callback);

/// True on a thread that is inside backward().
bool in_backward();

}  // namespace fsdp
