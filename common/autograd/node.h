/// @file
/// @ingroup autograd
/// Node: one recorded operation; what a new differentiable function implements.
#pragma once

#include "autograd/variable.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace fsdp {

/// Where one contribution to a gradient goes.
struct GradTarget {
  Tensor tensor;                          ///< undefined: this input wants no gradient
  ops::Write write = ops::Write::set;     ///< set for the first contribution, add for later ones
  explicit operator bool() const { return tensor.is_defined(); }
};

/// A frame brackets the nodes recorded while it was current (CallFrameScope): Module makes one for
/// each call. During backward, `before_first` runs before the first of the frame's reachable nodes,
/// `after_last` after the last of them and all its accumulations and post-accumulate hooks. Nested
/// frames: outer before_first first, inner after_last first. Each at most once a backward.
struct CallFrame {
  std::function<void()> before_first;
  std::function<void()> after_last;
  std::shared_ptr<CallFrame> parent;
};

/// Opens a frame on this thread.
class CallFrameScope {
 public:
  explicit CallFrameScope(std::shared_ptr<CallFrame> frame);  ///< sets frame->parent
  ~CallFrameScope();
  CallFrameScope(const CallFrameScope&) = delete;
  CallFrameScope& operator=(const CallFrameScope&) = delete;
  static std::shared_ptr<CallFrame> current();

 private:
  std::shared_ptr<CallFrame> previous_;
};

/// One operation on the tape. A subclass keeps the tensors its backward needs as members; release()
/// lets go of them, right after backward() has run, so saved activations go as backward proceeds.
class Node {
 public:
  virtual ~Node() = default;

  virtual std::string_view name() const = 0;

  /// Computes the contributions to the inputs from `dout` = d(loss)/d(output), which is defined,
  /// contiguous, and may be overwritten if grad_is_mine(dout) says so.
  virtual void backward(const Tensor& dout) = 0;
  /// Drops saved tensors.
  virtual void release() = 0;

  /// Records `node` as the origin of `output`, if grad is enabled and any input requires grad.
  /// Otherwise the result is a plain leaf.
  static Variable record(std::shared_ptr<Node> node, std::vector<Variable> inputs, Tensor output);

 protected:
  /// Whether input i wants a gradient.
  bool wants(std::size_t i) const;
  /// The place for input i's next contribution; call it once per backward and input, right before
  /// writing it completely. Leaves: the sink or the grad. Others: the gradient gathered so far.
  GradTarget target(std::size_t i);
  /// Passes `grad` on unchanged as input i's contribution: shares it if it is the first one, else adds.
  void pass(std::size_t i, const Tensor& grad);

 private:
  friend class Engine;
  std::vector<Variable> inputs_;
  std::shared_ptr<CallFrame> frame_;
  std::int64_t sequence_ = 0;  // order of recording on this thread
};

}  // namespace fsdp
