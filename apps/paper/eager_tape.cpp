#include "paper/eager_tape.h"

#include "paper/formats.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

namespace {

// What torchtitan's policy for "op" says: attention, and every second product from the first on.
bool is_kept_by_policy(EagerTape::Node::Kind kind, int products) {
  using Kind = EagerTape::Node::Kind;
  return kind == Kind::attention || (kind == Kind::product && products % 2 == 1);
}

EagerTape::Node without_values(EagerTape::Node node) {
  node.saves.clear();
  return node;
}

}  // namespace

// A checkpoint's second forward ends when the last operation has what it saves: it computes
// nothing, and neither does what would follow it.
Bytes EagerTape::result(std::int64_t nbytes) {
  if (pass_ != Pass::again) return activation(nbytes);
  return temp(saves_ < to_save_ ? nbytes : 0);
}

// Scaled in float32, then cut off at the ends of the format.
Bytes EagerTape::round(std::int64_t elements, bool is_fused) {
  if (elements == 0) return nullptr;
  const auto make = [&](std::int64_t n) { return is_backward_ ? temp(n) : result(n); };
  if (is_fused) return make(elements);
  const Bytes scaled = make(kFloatBytes * elements), cut = make(kFloatBytes * elements);
  return make(elements);
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
  return checkpoint_ == optim::Checkpointing::operations && is_kept_by_policy(node.kind, products_);
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
  // torchao's product saves what it needs when it has its result, torch's own before.
  const bool saves_late = node.rounded.input > 0;
  if (has_node && saves && !saves_late) ++saves_;
  const bool is_kept = keeps(node);
  const auto make = [&](std::int64_t n) { return is_kept ? kept_result(n) : result(n); };
  Value y{make(out), nullptr};
  if (has_node && saves && saves_late) ++saves_;
  const Bytes side = node.side_result > 0 ? make(node.side_result) : nullptr;
  if (!has_node) return y;
  std::vector<Bytes> saved;
  if (pass_ != Pass::discarding) {
    for (const Value& each : node.saves) saved.push_back(each.bytes);
    if (node.saves_result) saved.push_back(y.bytes);
    if (side != nullptr) saved.push_back(side);
  }
  record(name, out, std::move(saved), y).backward = [this, name, from, made = without_values(node)](
                                                        Operation&, const Bytes&) {
    make_gradients(name, from, made);
  };
  return y;
}

// torchao's float8 linear rounds the output's gradient a second time for the weight's, where no
// compiler sees that it has been; and its product wants each of the two operands another way round.
void EagerTape::make_gradients(const std::string& name, const std::vector<Origin>& from,
                               const Node& node) {
  const Rounded& rounded = node.rounded;
  if (node.scratch > 0) temp(node.scratch);
  std::vector<Bytes> held, gradients;
  gradients.reserve(from.size());
  if (rounded.output > 0) {
    held = {round(rounded.output, rounded.is_fused), round(rounded.weight, rounded.is_fused)};
  }
  for (const Origin& each : from) {
    const Bytes turned = rounded.turned > 0 ? temp(rounded.turned) : nullptr;
    gradients.push_back(temp(each->output));
  }
  if (node.weight_gradient > 0) {
    if (rounded.output > 0) {
      held.push_back(round(rounded.output, rounded.is_fused));
      held.push_back(round(rounded.input, rounded.is_fused));
      if (!rounded.is_fused) held.push_back(temp(rounded.output + rounded.input));
    }
    const std::string after = std::exchange(meter_.now.after, name + ": weight");
    weight_gradients_.push_back(temp(node.weight_gradient));
    if (node.adds_gradient) to_add_ = node.weight_gradient;
    meter_.now.after = after;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i]->gradient == nullptr) from[i]->gradient = gradients[i];
  }
}

Value EagerTape::linear(const std::string& name, const Value& x, std::int64_t out,
                        const Weight& weight, Node::Kind kind, const Rounded& rounded) {
  Node node{.kind = kind, .rounded = rounded};
  if (weight.is_trained) {
    node.saves.push_back(x);
    node.weight_gradient = weight.nbytes;
  }
  start(name);
  const Bytes of_input = round(rounded.input, rounded.is_fused);
  const Bytes of_weight = round(rounded.weight, rounded.is_fused);
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
                             optim::Checkpointing checkpoint, bool& needs_gradient) {
  SegmentMemory memory;
  checkpoint_ = checkpoint;
  memory.is_checkpointed = checkpoint != optim::Checkpointing::none;
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
  is_backward_ = true;
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
