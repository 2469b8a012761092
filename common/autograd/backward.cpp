#include "autograd/backward.h"

#include "autograd/variable_impl.h"
#include "base/check.h"
#include "device/memory_tracker.h"

#include <queue>
#include <unordered_map>
#include <utility>

namespace fsdp {

/// One run over a tape.
class BackwardPass {
 public:
  BackwardPass() : outer_(std::exchange(current, this)) {}
  ~BackwardPass() {
    // After an exception some nodes have not run: whatever they hold must go too.
    for (const std::shared_ptr<Node>& node : reached_) node->finish();
    current = outer_;
  }
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  void run(Variable root, Tensor gradient);
  bool is_nested() const { return host() != nullptr; }
  void queue(std::function<void()> callback) {
    if (outer_) return outer_->queue(std::move(callback));
    callbacks_.push_back(std::move(callback));
  }

  static thread_local BackwardPass* current;

 private:
  struct FrameState {
    int nodes = 0;  // reachable nodes of the frame and of the frames within, still to run
    bool is_open = false;
  };
  struct LeafState {
    int awaited = 0;  // edges to it whose nodes are still to run
    bool is_contributed = false;
  };
  struct LatestFirst {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence_ < b->sequence_;
    }
  };

  void reach(const std::shared_ptr<Node>& node);
  void find_reachable(const std::shared_ptr<Node>& root);
  void check_leaves() const;
  void run_node(Node& node);
  void open_frames(CallFrame* frame);
  void close_frames(CallFrame* frame);
  void settle(const std::shared_ptr<Variable::Impl>& leaf, bool is_contributed);
  /// The node of the outer tape in whose backward this one runs; null: none.
  Node* host() const { return outer_ == nullptr ? nullptr : outer_->running_; }
  bool ends_at(const Node* node) const { return host() != nullptr && host()->has_edge_to(node); }
  Node::Edge* edge_of_host_to(const Variable::Impl* leaf) const;

  BackwardPass* outer_;
  std::vector<std::shared_ptr<Node>> reached_;
  std::unordered_map<Variable::Impl*, LeafState> leaves_;
  std::unordered_map<CallFrame*, FrameState> frames_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, LatestFirst>
      ready_;
  std::vector<std::function<void()>> callbacks_;
  Node* running_ = nullptr;
  Tensor dout_;  // of running_
};

thread_local BackwardPass* BackwardPass::current = nullptr;

void BackwardPass::reach(const std::shared_ptr<Node>& node) {
  FSDP_CHECK(node->state_ != Node::State::reached,
             "a nested backward() reached {}, a node of the tape around it: make its output an "
             "input of the node that runs the nested tape, and read it by Node::input()",
             node->name());
  FSDP_CHECK(node->state_ == Node::State::recorded,
             "backward() reached {}, whose tape was already used: run forward again", node->name());
  node->state_ = Node::State::reached;
  node->reached_by_ = this;
  reached_.push_back(node);
  for (CallFrame* frame = node->frame_.get(); frame; frame = frame->parent.get()) {
    ++frames_[frame].nodes;
  }
}

void BackwardPass::find_reachable(const std::shared_ptr<Node>& root) {
  reach(root);
  for (std::size_t i = 0; i < reached_.size(); ++i) {  // grows while it is walked
    for (const Node::Edge& edge : reached_[i]->edges_) {
      if (edge.leaf) ++leaves_[edge.leaf.get()].awaited;
      if (!edge.node || ends_at(edge.node.get())) continue;
      ++edge.node->awaited_;
      if (edge.node->reached_by_ != this) reach(edge.node);
    }
  }
}

// The hooks of a leaf come once per outermost backward. So a nested one must know which leaves the
// tape around it awaits.
void BackwardPass::check_leaves() const {
  if (host() == nullptr) return;
  for (const auto& [leaf, state] : leaves_) {
    FSDP_CHECK(leaf->hooks.empty() || edge_of_host_to(leaf) != nullptr,
               "the nested backward of {} contributes to a leaf of shape {} that has hooks and is "
               "no input of it: record the leaf among its inputs",
               host()->name(), to_string(leaf->data.shape()));
  }
}

void BackwardPass::run(Variable root, Tensor gradient) {
  FSDP_CHECK(gradient.is_defined() && gradient.shape() == root.shape() &&
                 gradient.dtype() == root.data().dtype(),
             "backward() of a variable of shape {} needs a gradient of that shape and of its dtype",
             to_string(root.shape()));
  const NoGradScope no_grad;
  const AllocationScope temporary(MemoryKind::temp, nullptr);
  const std::shared_ptr<Node> last = root.impl()->node;
  if (host() != nullptr) {
    FSDP_CHECK(!std::exchange(host()->ran_nested_, true), "{} runs a second nested backward",
               host()->name());
    if (!root.requires_grad()) return;
    if (host()->passes(root, gradient)) return;  // forward returned one of its inputs
  }
  FSDP_CHECK(
      last != nullptr,
      "backward() of a leaf: no operation computed it, so there is nothing to differentiate");
  find_reachable(last);
  check_leaves();
  last->grad_ = std::move(gradient);
  root = {};
  if (outer_ != nullptr && outer_->dout_.is_defined() &&
      outer_->dout_.storage() == last->grad_.storage()) {
    outer_->dout_ = {};
  }
  ready_.push(last);
  while (!ready_.empty()) {
    const std::shared_ptr<Node> node = ready_.top();
    ready_.pop();
    run_node(*node);
  }
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    const std::function<void()> callback = std::move(callbacks_[i]);  // may queue another
    callback();
  }
}

// A node that a nested backward left without a gradient does nothing but pass that on.
void BackwardPass::run_node(Node& node) {
  const std::shared_ptr<CallFrame> frame = node.frame_;
  const bool is_used = node.grad_.is_defined();
  if (is_used) {
    open_frames(frame.get());
    const AllocationScope temporary(MemoryKind::temp, frame ? frame->owner : nullptr);
    dout_ = std::exchange(node.grad_, {});
    running_ = &node;
    node.backward(dout_);
    running_ = nullptr;
    node.release();
    dout_ = {};
  }
  const std::vector<Node::Edge> edges = std::move(node.edges_);
  const bool is_complete = is_used && !node.ran_nested_;
  node.finish();
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const Node::Edge& edge = edges[i];
    FSDP_CHECK(edge.is_contributed || !is_complete || (!edge.node && !edge.leaf),
               "{} did not contribute to the gradient of its input {}", node.name(), i);
    if (edge.leaf) settle(edge.leaf, edge.is_contributed);
    if (!edge.node || ends_at(edge.node.get())) continue;
    if (--edge.node->awaited_ == 0) ready_.push(edge.node);
  }
  close_frames(frame.get());
}

Node::Edge* BackwardPass::edge_of_host_to(const Variable::Impl* leaf) const {
  if (host() == nullptr) return nullptr;
  for (Node::Edge& edge : host()->edges_) {
    if (edge.leaf.get() == leaf) return &edge;
  }
  return nullptr;
}

// One edge less leads to this leaf. After the last, the leaf is complete, or, if the node that runs
// this pass has an edge to it, that edge is settled in the outer pass.
void BackwardPass::settle(const std::shared_ptr<Variable::Impl>& leaf, bool is_contributed) {
  LeafState& state = leaves_[leaf.get()];
  state.is_contributed |= is_contributed;
  if (--state.awaited != 0 || !state.is_contributed) return;
  if (Node::Edge* edge = edge_of_host_to(leaf.get())) {
    edge->leaf = nullptr;
    return outer_->settle(leaf, true);
  }
  Variable handle;
  handle.impl_ = leaf;
  const auto hooks = leaf->hooks;  // a hook may remove itself
  for (const auto& hook : hooks) hook.second(handle);
}

void BackwardPass::open_frames(CallFrame* frame) {
  if (!frame || frames_[frame].is_open) return;
  open_frames(frame->parent.get());
  frames_[frame].is_open = true;
  if (frame->before_first) frame->before_first();
}

void BackwardPass::close_frames(CallFrame* frame) {
  for (; frame; frame = frame->parent.get()) {
    FrameState& state = frames_[frame];
    if (--state.nodes == 0 && state.is_open && frame->after_last) frame->after_last();
  }
}

void backward(const Variable& root, double gradient) {
  FSDP_CHECK(root.data().numel() == 1,
             "backward() starts at a single number, but this variable has shape {}",
             to_string(root.shape()));
  FSDP_CHECK(root.requires_grad(),
             "backward() of a variable that does not require a gradient: it depends on no "
             "trainable parameter");
  BackwardPass engine;
  const AllocationScope temporary(MemoryKind::temp, nullptr);
  Tensor start = Tensor::empty(root.shape(), root.data().dtype(), root.data().device());
  ops::fill(start, gradient);
  engine.run(root, std::move(start));  // a copy: the caller keeps its root
}

void backward(Variable root, const Tensor& gradient) {
  BackwardPass engine;
  FSDP_CHECK(engine.is_nested() || root.requires_grad(),
             "backward() of a variable that does not require a gradient: it depends on no "
             "trainable parameter");
  engine.run(std::move(root), gradient);
}

void queue_backward_callback(std::function<void()> callback) {
  FSDP_CHECK(BackwardPass::current != nullptr,
             "queue_backward_callback() was called outside a backward");
  BackwardPass::current->queue(std::move(callback));
}

bool in_backward() { return BackwardPass::current != nullptr; }

}  // namespace fsdp
