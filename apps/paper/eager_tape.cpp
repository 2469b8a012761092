#include "paper/eager_tape.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

namespace {

// What torchtitan's policy for "op" says: attention, and every second product from the first on.
bool is_kept_by_policy(EagerTape::Node::Kind kind, int products) {
  using Kind = EagerTape::Node::Kind;
  return kind == Kind::attention || (kind == Kind::product && products % 2 == 1);
}

}  // namespace

// A checkpoint's second forward ends when the last operation has what it saves: it computes
// nothing, and neither does what would follow it.
Bytes EagerTape::result(std::int64_t nbytes) {
  if (pass_ != Pass::again) return activation(nbytes);
  return temp(saves_ < to_save_ ? nbytes : 0);
}

Bytes EagerTape::kept_result(std::int64_t nbytes) {
  if (pass_ == Pass::again) {
    // What comes after the end is not asked for, and stays.
    return saves_ < to_save_ ? std::exchange(kept_[next_kept_++], nullptr) : temp(0);
  }
  kept_.push_back(activation(nbytes));
  return kept_.back();
}

bool EagerTape::keeps(const Node& node) {
  if (node.kind == Node::Kind::product) ++products_;
  return checkpoint_ == BlockCheckpoint::operations && is_kept_by_policy(node.kind, products_);
}

Value EagerTape::apply(const std::string& name, const std::vector<Value>& inputs, std::int64_t out,
                       const Node& node) {
  start(name);
  std::vector<Origin> from;
  for (const Value& input : inputs) {
    if (input.origin != nullptr) from.push_back(input.origin);
  }
  const bool has_node = !from.empty() || node.weight_gradient > 0;
  const bool saves = !node.saves.empty() || node.saves_result || node.side_result > 0;
  if (has_node && saves) ++saves_;
  const bool is_kept = keeps(node);
  const auto make = [&](std::int64_t n) { return is_kept ? kept_result(n) : result(n); };
  Value y{make(out), nullptr};
  const Bytes side = node.side_result > 0 ? make(node.side_result) : nullptr;
  if (!has_node) return y;
  std::vector<Bytes> saved;
  if (pass_ != Pass::discarding) {
    for (const Value& each : node.saves) saved.push_back(each.bytes);
    if (node.saves_result) saved.push_back(y.bytes);
    if (side != nullptr) saved.push_back(side);
  }
  record(name, out, std::move(saved), y).backward =
      [this, name, from, weight = node.weight_gradient, adds = node.adds_gradient,
       scratch = node.scratch](Operation&, const Bytes&) {
        if (scratch > 0) temp(scratch);
        std::vector<Bytes> gradients;
        gradients.reserve(from.size());
        for (const Origin& each : from) gradients.push_back(temp(each->output));
        if (weight > 0) {
          const std::string after = std::exchange(meter_.now.after, name + ": weight");
          weight_gradients_.push_back(temp(weight));
          if (adds) to_add_ = weight;
          meter_.now.after = after;
        }
        for (std::size_t i = 0; i < from.size(); ++i) {
          if (from[i]->gradient == nullptr) from[i]->gradient = gradients[i];
        }
      };
  return y;
}

Value EagerTape::linear(const std::string& name, const Value& x, std::int64_t out,
                        const Weight& weight, Node::Kind kind) {
  Node node{.kind = kind};
  if (weight.is_trained) {
    node.saves.push_back(x);
    node.weight_gradient = weight.nbytes;
  }
  return apply(name, {x}, out, node);
}

Value EagerTape::add(const Value& x, const Value& y) {
  start("add");
  const std::int64_t out = y.bytes->nbytes();
  Value sum{result(std::max(out, x.bytes->nbytes())), nullptr};
  const std::vector<Origin> from{x.origin, y.origin};
  if (x.origin == nullptr && y.origin == nullptr) return sum;
  record("add", out, {}, sum).backward = [from](Operation&, const Bytes& dout) {
    for (const Origin& each : from) {
      if (each != nullptr && each->gradient == nullptr) each->gradient = dout;
    }
  };
  return sum;
}

// The gradients of a weight that two operations have, as one: of fake tensors, the sum is a third.
void EagerTape::add_gradients() {
  start("sum: weight");
  temp(std::exchange(to_add_, 0));
  weight_gradients_.pop_back();
}

SegmentMemory EagerTape::run(std::int64_t in, std::int64_t out,
                             const std::function<Value(const Value&)>& forward,
                             BlockCheckpoint checkpoint, bool& needs_gradient) {
  SegmentMemory memory;
  checkpoint_ = checkpoint;
  memory.is_checkpointed = checkpoint != BlockCheckpoint::none;
  pass_ = memory.is_checkpointed ? Pass::discarding : Pass::taped;
  Value x = input(in, needs_gradient);
  Value of_checkpoint = memory.is_checkpointed ? x : Value{};
  start("entry");
  meter_.points = {meter_.now};
  Value y = forward(x);
  memory.forward = std::exchange(meter_.points, {});
  const std::int64_t before = meter_.now.activation;
  x = {};
  memory.dropped = before - meter_.now.activation;
  needs_gradient = y.origin != nullptr;
  y = {};
  alive_.clear();
  if (!needs_gradient) return memory;
  Bytes gradient = temp(out);
  start("entry");
  meter_.points = {meter_.now};
  if (memory.is_checkpointed) {
    operations_.clear();
    to_save_ = std::exchange(saves_, 0);
    products_ = 0;
    pass_ = Pass::again;
    forward(of_checkpoint);
    start("its end");
    meter_.note();
    memory.again = std::exchange(meter_.points, {meter_.now});
  }
  operations_.back()->gradient = std::move(gradient);
  while (!operations_.empty()) {
    run_backward();
    if (to_add_ > 0) add_gradients();
  }
  start("exit");
  of_checkpoint = {};
  kept_.clear();
  memory.backward = std::exchange(meter_.points, {});
  return memory;
}

}  // namespace fsdp::paper
