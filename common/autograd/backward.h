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

/// The same from a tensor of any shape, with d(root) = `gradient` (the shape and dtype of root).
///
/// A node may call it in its own backward, for a tape that it has recorded there under
/// GradScope(true), at most once. This nested backward ends at the inputs of that node: at
/// Node::input(), and at leaves that are its inputs, such as the parameters of a module. What it
/// contributes to them counts as contributed by the node. So a leaf's hooks still run once, after
/// the last contribution to the leaf that the *outer* tape recorded, and not if there was none. Its
/// sums have the order, and so the bits, that they would have if the nested tape were a part of the
/// outer one. A root that needs no gradient contributes nothing.
///
/// Gives up what it can: `root`, before the first node runs, if the caller moves it in; and
/// `gradient`, if it is what Node::backward() was given (which is undefined then).
/// @throws Error also for a nested tape that leads to a node of the outer tape, or to a leaf with
/// hooks, that is not an input of the node.
void backward(Variable root, const Tensor& gradient);

/// Runs `callback` after the current backward has finished (after all hooks), in queue order. In a
/// nested backward (run by a node of another), it runs after the outermost.
/// @throws Error outside a backward.
void queue_backward_callback(std::function<void()> callback);

/// True on a thread that is inside backward().
bool in_backward();

}  // namespace fsdp
