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

  void run(const Variable& root, double gradient);
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
  struct LatestFirst {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence_ < b->sequence_;
    }
  };

  void reach(const std::shared_ptr<Node>& node);
  void find_reachable(const std::shared_ptr<Node>& root);
  void run_node(Node& node);
  void open_frames(CallFrame* frame);
  void close_frames(CallFrame* frame);
  void contributed(const std::shared_ptr<Variable::Impl>& leaf);

  BackwardPass* outer_;
  std::vector<std::shared_ptr<Node>> reached_;
  std::unordered_map<Variable::Impl*, int> leaf_awaits_;
  std::unordered_map<CallFrame*, FrameState> frames_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, LatestFirst>
      ready_;
  std::vector<std::function<void()>> callbacks_;
};

thread_local BackwardPass* BackwardPass::current = nullptr;

void BackwardPass::reach(const std::shared_ptr<Node>& node) {
  FSDP_CHECK(node->state_ == Node::State::recorded,
             "backward() reached {}, whose tape was already used: run forward again", node->name());
  node->state_ = Node::State::reached;
  reached_.push_back(node);
  for (CallFrame* frame = node->frame_.get(); frame; frame = frame->parent.get()) {
    ++frames_[frame].nodes;
  }
}

void BackwardPass::find_reachable(const std::shared_ptr<Node>& root) {
  reach(root);
  for (std::size_t i = 0; i < reached_.size(); ++i) {  // grows while it is walked
    for (const Node::Edge& edge : reached_[i]->edges_) {
      if (edge.leaf) ++leaf_awaits_[edge.leaf.get()];
      if (!edge.node) continue;
      ++edge.node->awaited_;
      if (edge.node->state_ != Node::State::reached) reach(edge.node);
    }
  }
}

void BackwardPass::run(const Variable& root, double gradient) {
  const Tensor& loss = root.data();
  FSDP_CHECK(loss.numel() == 1,
             "backward() starts at a single number, but this variable has shape {}",
             to_string(loss.shape()));
  FSDP_CHECK(root.requires_grad(),
             "backward() of a variable that does not require a gradient: it depends on no "
             "trainable parameter");
  const NoGradScope no_grad;
  const AllocationScope temporary(MemoryKind::temp, nullptr);
  const std::shared_ptr<Node>& last = root.impl()->node;
  FSDP_CHECK(
      last != nullptr,
      "backward() of a leaf: no operation computed it, so there is nothing to differentiate");
  find_reachable(last);
  last->grad_ = Tensor::empty(last->output_shape_, last->output_dtype_, last->output_device_);
  ops::fill(last->grad_, gradient);
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

void BackwardPass::run_node(Node& node) {
  const std::shared_ptr<CallFrame> frame = node.frame_;
  open_frames(frame.get());
  {
    const AllocationScope temporary(MemoryKind::temp, frame ? frame->owner : nullptr);
    const Tensor dout = std::move(node.grad_);
    node.grad_ = {};
    node.backward(dout);
    node.release();
  }
  const std::vector<Node::Edge> edges = std::move(node.edges_);
  node.finish();
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const Node::Edge& edge = edges[i];
    FSDP_CHECK(edge.is_contributed || (!edge.node && !edge.leaf),
               "{} did not contribute to the gradient of its input {}", node.name(), i);
    if (edge.leaf) contributed(edge.leaf);
    if (edge.node && --edge.node->awaited_ == 0) ready_.push(edge.node);
  }
  close_frames(frame.get());
}

void BackwardPass::contributed(const std::shared_ptr<Variable::Impl>& leaf) {
  if (--leaf_awaits_[leaf.get()] != 0) return;
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
    if (--frames_[frame].nodes == 0 && frame->after_last) frame->after_last();
  }
}

void backward(const Variable& root, double gradient) {
  BackwardPass engine;
  engine.run(root, gradient);
}

void queue_backward_callback(std::function<void()> callback) {
  FSDP_CHECK(BackwardPass::current != nullptr,
             "queue_backward_callback() was called outside a backward");
  BackwardPass::current->queue(std::move(callback));
}

bool in_backward() { return BackwardPass::current != nullptr; }

}  // namespace fsdp
