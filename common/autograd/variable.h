/// @file
/// @ingroup autograd
/// Variable: a tensor that remembers how it was computed.
#pragma once

#include "tensor/ops.h"
#include "tensor/tensor.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

class Node;
class BackwardPass;
class Variable;

/// Called with the leaf whose gradient is complete.
using GradHook = std::function<void(Variable)>;

/// A handle: copies share data, gradient and hooks.
///
/// A *leaf* was made by the user (a parameter, an input). Backward writes its gradient to `grad()`.
/// Other variables are outputs of a Node of the tape.
class Variable {
 public:
  Variable() = default;  ///< Undefined.
  explicit Variable(Tensor data, bool requires_grad = false);

  bool is_defined() const { return impl_ != nullptr; }
  const Tensor& data() const;
  const Shape& shape() const { return data().shape(); }
  bool requires_grad() const;
  void set_requires_grad(bool value);  ///< @throws Error unless this is a leaf
  bool is_leaf() const;

  /// The gradient accumulated by backward, undefined before the first contribution. The first
  /// contribution overwrites; it is never added to zeros (0 + (-0) is +0). Later ones add in place,
  /// in tape order.
  const Tensor& grad() const;
  /// Replaces the gradient. An undefined `grad` drops it (and frees it, if nothing else holds it):
  /// the next contribution overwrites.
  void set_grad(Tensor grad);

  /// Makes `view` the data: same shape; same dtype, or on a leaf another floating one; and the same
  /// device unless the variable was on meta. FSDP calls this once, with a view of the unit's flat
  /// storage, which is freed and allocated later. @throws Error if `view` does not fit.
  void set_data(Tensor view);
  /// Replaces the data of a leaf by a copy of another element type (checks in float64).
  void convert(DType dtype);
  /// Writes gradients to `view` (of the data's shape) instead of their own tensor; undefined ends
  /// that. It need only be allocated while backward writes. The first contribution after
  /// reset_grad_buffer() (or set_grad_buffer) overwrites; later ones add in place.
  void set_grad_buffer(Tensor view);
  const Tensor& grad_buffer() const;
  /// The next contribution overwrites the buffer. grad() is undefined until then.
  void reset_grad_buffer();
  /// True if a contribution has been written since reset_grad_buffer().
  bool grad_written() const;

  /// Called once per backward, after the last contribution to this leaf that the tape recorded, on
  /// the thread that called backward. Not called without a contribution. Returns a handle.
  int register_post_accumulate_grad_hook(GradHook hook);
  void remove_post_accumulate_grad_hook(int handle);

  /// Runs the tape backwards from this scalar (see autograd/backward.h).
  /// @param gradient d(self): 1, or the scale of a scaled loss
  void backward(double gradient = 1) const;

  /// A leaf with the same data and no history.
  Variable detach() const;

  /// Identity of the variable: equal for copies of one handle (tied weights share it).
  const void* id() const { return impl_.get(); }
  friend bool operator==(const Variable& a, const Variable& b) { return a.impl_ == b.impl_; }

  /// The number of handles to this variable.
  long use_count() const { return impl_.use_count(); }

  struct Impl;
  Impl* impl() const { return impl_.get(); }  ///< for the engine only

 private:
  friend class Node;
  friend class BackwardPass;
  std::shared_ptr<Impl> impl_;
};

/// Whether operations on this thread are recorded: true unless a scope below says otherwise.
bool grad_enabled();

/// While it lives, this thread records a tape, or none. The innermost scope decides: inside a
/// backward, where nothing is recorded, GradScope(true) records again.
class GradScope {
 public:
  explicit GradScope(bool is_enabled);
  ~GradScope();
  GradScope(const GradScope&) = delete;
  GradScope& operator=(const GradScope&) = delete;

 private:
  bool previous_;
};

/// While it lives, this thread records no tape.
class NoGradScope : public GradScope {
 public:
  NoGradScope() : GradScope(false) {}
};

}  // namespace fsdp
