#include "autograd/node.h"

#include "autograd/variable_impl.h"
#include "base/check.h"

#include <algorithm>
#include <utility>

namespace fsdp {

namespace {
thread_local std::shared_ptr<CallFrame> current_frame;
thread_local std::int64_t next_sequence = 0;
}  // namespace

CallFrameScope::CallFrameScope(std::shared_ptr<CallFrame> frame) : previous_(current_frame) {
  FSDP_CHECK(frame != nullptr, "CallFrameScope needs a frame");
  frame->parent = previous_;
  current_frame = std::move(frame);
}
CallFrameScope::~CallFrameScope() { current_frame = std::move(previous_); }
std::shared_ptr<CallFrame> CallFrameScope::current() { return current_frame; }

bool is_sole_holder(const Tensor& tensor) { return tensor.storage().use_count() == 1; }

// A tape that never ran is a chain of owners as long as the program: let go of it link by link,
// since letting the destructors recurse would overflow the stack.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> chain;
  auto take = [&chain](Node& node) {
    for (Edge& edge : node.edges_) {
      if (edge.node) chain.push_back(std::move(edge.node));
    }
  };
  take(*this);
  while (!chain.empty()) {
    const std::shared_ptr<Node> node = std::move(chain.back());
    chain.pop_back();
    if (node.use_count() == 1) take(*node);
  }
}

Variable Node::record(std::shared_ptr<Node> node, std::vector<Variable> inputs, Tensor output) {
  Variable result(std::move(output));
  auto wants_grad = [](const Variable& v) { return v.is_defined() && v.requires_grad(); };
  if (!grad_enabled() || std::none_of(inputs.begin(), inputs.end(), wants_grad)) return result;
  const Tensor& data = result.data();
  FSDP_CHECK(is_floating(data.dtype()), "{} has a {} output, which cannot have a gradient",
             node->name(), name_of(data.dtype()));
  for (const Variable& input : inputs) {
    Edge& edge = node->edges_.emplace_back();
    if (!wants_grad(input)) continue;
    edge.node = input.impl_->node;
    if (!edge.node) edge.leaf = input.impl_;
  }
  node->frame_ = current_frame;
  node->sequence_ = next_sequence++;
  node->output_shape_ = data.shape();
  node->output_dtype_ = data.dtype();
  node->output_device_ = data.device();
  result.impl_->requires_grad = true;
  result.impl_->node = std::move(node);
  return result;
}

bool Node::wants(std::size_t i) const { return edges_.at(i).node || edges_.at(i).leaf; }

bool Node::has_edge_to(const Node* node) const {
  return std::any_of(edges_.begin(), edges_.end(),
                     [&](const Edge& edge) { return edge.node.get() == node; });
}

bool Node::passes(const Variable& root, const Tensor& grad) {
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    const Edge& edge = edges_[i];
    const bool is_input = edge.leaf ? edge.leaf == root.impl_ : edge.node == root.impl_->node;
    if (!wants(i) || !is_input) continue;
    pass(i, grad);
    return true;
  }
  return false;
}

// The producer of the input becomes the producer of this variable: the nested tape ends there, and
// adds its contributions to the gradient that the tape around it has summed so far.
Variable Node::input(std::size_t i, Tensor data) const {
  const Edge& edge = edges_.at(i);
  Variable variable;
  if (edge.leaf) {
    variable.impl_ = edge.leaf;
    return variable;
  }
  variable = Variable(std::move(data));
  variable.impl_->requires_grad = edge.node != nullptr;
  variable.impl_->node = edge.node;
  return variable;
}

GradTarget Node::target(std::size_t i) {
  if (!wants(i)) return {};
  Edge& edge = edges_[i];
  FSDP_CHECK(!std::exchange(edge.is_contributed, true),
             "{} contributes twice to the gradient of its input {}", name(), i);
  return edge.leaf ? edge.leaf->grad_target() : edge.node->output_gradient();
}

void Node::pass(std::size_t i, const Tensor& grad) {
  if (!wants(i)) return;
  if (edges_[i].leaf) {
    const GradTarget leaf = target(i);
    ops::write(leaf.tensor, grad.view(leaf.tensor.shape()), leaf.write);
    return;
  }
  FSDP_CHECK(!std::exchange(edges_[i].is_contributed, true),
             "{} contributes twice to the gradient of its input {}", name(), i);
  edges_[i].node->add_to_output_gradient(grad);
}

GradTarget Node::output_gradient() {
  if (!grad_.is_defined()) {
    grad_ = Tensor::empty(output_shape_, output_dtype_, output_device_);
    return {grad_, ops::Write::set};
  }
  if (!is_sole_holder(grad_)) {  // passed on from elsewhere and still in use there
    Tensor own = Tensor::empty(output_shape_, output_dtype_, output_device_);
    ops::copy(own, grad_);
    grad_ = std::move(own);
  }
  return {grad_, ops::Write::add};
}

void Node::add_to_output_gradient(const Tensor& grad) {
  const Tensor contribution = grad.view(output_shape_);
  if (!grad_.is_defined()) {
    grad_ = contribution;
  } else if (is_sole_holder(grad_)) {
    ops::write(grad_, contribution, ops::Write::add);
  } else {
    const Tensor sum = Tensor::empty(output_shape_, output_dtype_, output_device_);
    ops::add(sum, grad_, contribution);
    grad_ = sum;
  }
}

void Node::finish() {
  state_ = State::finished;
  reached_by_ = nullptr;
  release();
  edges_.clear();
  frame_.reset();
  grad_ = {};
}

}  // namespace fsdp
