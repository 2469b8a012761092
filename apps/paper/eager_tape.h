/// @file
/// @ingroup paper
/// EagerTape: what PyTorch's autograd keeps of one segment, operation by operation.
#pragma once

#include "optim/recipe.h"
#include "paper/paper_tape.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::paper {

/// A segment's tape by the rules of PyTorch's autograd: an operation's result is a new tensor, and
/// so is each gradient of its inputs; a node frees what it saved when it has run; of two gradients
/// of one tensor, the second is added to the first. What a forward makes is an activation. What
/// backward makes is temporary: gradients of weights too, and what a checkpoint computes again.
/// (So FSDPMemTracker of torch.distributed._tools counts them.)
class EagerTape : public Tape {
 public:
  /// What an operation is beside its inputs and its result.
  /// Elements of a product's operands that are rounded to float8 before it; 0: they are not.
  struct Rounded {
    std::int64_t input = 0, output = 0;
    std::int64_t weight = 0;  ///< of one that was not gathered so
    std::int64_t turned = 0;  ///< of the weight as backward reads it, by columns
    bool is_fused = false;    ///< a kernel does it at once; else by way of float32
  };
  struct Node {
    enum class Kind { other, product, attention } kind = Kind::other;
    std::vector<Value> saves = {};  ///< values that are kept for its backward
    bool saves_result = false;
    std::int64_t side_result = 0;      ///< bytes of a second result, which is kept as well
    std::int64_t weight_gradient = 0;  ///< bytes; 0: it has no weight, or a frozen one
    bool adds_gradient = false;        ///< of the weight, to that of another operation
    std::int64_t scratch = 0;          ///< bytes that its backward holds for a moment
    Rounded rounded = {};
  };
  /// The result of `inputs`, of `out` bytes. It needs a gradient if an input or its weight does.
  Value apply(const std::string& name, const std::vector<Value>& inputs, std::int64_t out,
              const Node& node);
  /// x·W. Only the gradient of W needs x; its operands are rounded again in backward.
  /// @param kind other: no checkpoint keeps its result
  Value linear(const std::string& name, const Value& x, std::int64_t out, const Weight& weight,
               Node::Kind kind, const Rounded& rounded);
  /// Both summands have the sum's gradient, which is one tensor.
  Value add(const Value& x, const Value& y);
  /// The program holds the value until the micro-step has ended.
  void keep_alive(const Value& value) { alive_.push_back(value.bytes); }

  /// Runs the segment forward and backward; `forward` maps its input to its output, of `out` bytes,
  /// and is called a second time for a checkpoint.
  /// @param needs_gradient whether the input does; set to whether the output does
  SegmentMemory run(std::int64_t in, std::int64_t out,
                    const std::function<Value(const Value&)>& forward,
                    optim::Checkpointing checkpoint, bool& needs_gradient);

 private:
  enum class Pass {
    taped,
    discarding,  ///< a checkpoint's forward: nothing is saved
    again,       ///< the second one, in backward
  };
  Bytes result(std::int64_t nbytes);
  Bytes round(std::int64_t elements, bool is_fused);
  void make_gradients(const std::string& name, const std::vector<Origin>& from, const Node& node);
  Bytes kept_result(std::int64_t nbytes);
  bool keeps(const Node& node);
  void add_gradients();

  optim::Checkpointing checkpoint_ = optim::Checkpointing::none;
  Pass pass_ = Pass::taped;
  bool is_backward_ = false;
  int products_ = 0;             // of this pass
  int saves_ = 0, to_save_ = 0;  // operations that saved something, in this pass and in the first
  std::vector<Bytes> kept_;      // results that a checkpoint keeps, in order
  std::size_t next_kept_ = 0;
  std::vector<Bytes> weight_gradients_;
  std::int64_t to_add_ = 0;  // bytes of the last one, if it is to be added to another
  std::vector<Bytes> alive_;
};

}  // namespace fsdp::paper
