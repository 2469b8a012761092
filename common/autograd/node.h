/// @file
/// @ingroup autograd
/// Node: one recorded operation. A new differentiable function implements one.
#pragma once

#include "autograd/variable.h"
#include "device/memory_tracker.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace fsdp {

/// The destination of one contribution to a gradient.
struct GradTarget {
  Tensor tensor;                       ///< undefined: this input needs no gradient
  ops::Write write = ops::Write::set;  ///< set for the first contribution, add for later ones
  explicit operator bool() const { return tensor.is_defined(); }
};

/// A frame brackets the nodes recorded while it was current (CallFrameScope). Module makes one per
/// call. In backward, `before_first` runs before the first of the frame's reachable nodes.
/// `after_last` runs after the last of them and all its accumulations and post-accumulate hooks.
/// Nested frames: outer before_first first, inner after_last first. Each at most once per backward.
struct CallFrame {
  std::function<void()> before_first;
  std::function<void()> after_last;
  std::shared_ptr<const Owner> owner;  ///< owner of its nodes' temporaries; may be null
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

/// True if no other tensor, variable or node shares this tensor's storage. Then its bytes may be
/// reused. Depends only on the program, not on timing: a tape belongs to one thread.
bool is_sole_holder(const Tensor& tensor);

/// One operation on the tape. A subclass keeps the tensors its backward needs as members. release()
/// drops them right after backward() has run, so saved activations are freed as backward proceeds.
class Node {
 public:
  Node() = default;
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual std::string_view name() const = 0;

  /// Computes the contributions to the inputs from `dout` = d(loss)/d(output). It is defined and
  /// contiguous, and may be overwritten if is_sole_holder(dout). Every input that needs a gradient
  /// gets exactly one contribution, through target() or pass().
  virtual void backward(const Tensor& dout) = 0;
  /// Drops saved tensors.
  virtual void release() = 0;
  // (A node may also record a tape of its own in backward() and run it: see backward.h.)

  /// Records `node` as the origin of `output`, if grad is enabled and any input requires grad.
  /// Otherwise the result is a plain leaf.
  static Variable record(std::shared_ptr<Node> node, std::vector<Variable> inputs, Tensor output);

 protected:
  /// Whether input i needs a gradient.
  bool wants(std::size_t i) const;
  /// Input i as a variable for a tape that backward() records itself. It holds `data`, and what the
  /// nested backward contributes to it goes where input i's gradient goes.
  Variable input(std::size_t i, Tensor data) const;
  /// The place for input i's next contribution: for leaves the gradient buffer or the grad, for
  /// others the gradient summed so far. Call it once per backward and input, right before you write
  /// all of it.
  GradTarget target(std::size_t i);
  /// Passes `grad` unchanged as input i's contribution: shares the first one, adds later ones.
  void pass(std::size_t i, const Tensor& grad);

 private:
  friend class BackwardPass;

  /// Where the gradient of one input goes: to the node that made it, or to the leaf it is; to
  /// neither if none is needed. Not a Variable: it would keep the input's data until backward.
  struct Edge {
    std::shared_ptr<Node> node;
    std::shared_ptr<Variable::Impl> leaf;
    bool is_contributed = false;
  };
  enum class State { recorded, reached, finished };

  bool has_edge_to(const Node* node) const;
  bool passes(const Variable& root, const Tensor& grad);  // if `root` is one of the inputs

  GradTarget output_gradient();
  void add_to_output_gradient(const Tensor& grad);
  void finish();  // drops everything except the name

  std::vector<Edge> edges_;
  std::shared_ptr<CallFrame> frame_;
  std::int64_t sequence_ = 0;  // order of recording on this thread
  Shape output_shape_;
  DType output_dtype_ = DType::float32;
  Device output_device_;
  State state_ = State::recorded;
  const BackwardPass* reached_by_ = nullptr;
  bool ran_nested_ = false;  // its inputs got their contributions from a nested backward
  Tensor grad_;              // d(loss)/d(output), summed so far
  int awaited_ = 0;          // contributions to grad_ still to come
};

}  // namespace fsdp
