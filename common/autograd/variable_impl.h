/// @file
/// @ingroup autograd
/// The state of a Variable; for the files of this folder.
#pragma once

#include "autograd/node.h"
#include "autograd/variable.h"

#include <memory>
#include <utility>
#include <vector>

namespace fsdp {

struct Variable::Impl {
  Tensor data;
  bool requires_grad = false;
  std::shared_ptr<Node> node;  ///< that computed it; null for a leaf

  Tensor grad;
  Tensor grad_buffer;
  bool grad_written = false;
  std::vector<std::pair<int, GradHook>> hooks;
  int next_hook = 0;

  /// The place for the next contribution to a leaf's gradient.
  GradTarget grad_target();
};

}  // namespace fsdp
