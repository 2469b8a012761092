#include "paper/paper_tape.h"

#include "paper/formats.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

Value Tape::input(std::int64_t nbytes, bool needs_gradient) {
  Value value{activation(nbytes), nullptr};
  if (needs_gradient)
    source_ = value.origin = std::make_shared<Operation>(Operation{"input", nbytes});
  return value;
}

Value PaperTape::embedding(const std::string& name, std::int64_t out, const Weight& table) {
  start(name);
  const std::int64_t n = rows_ * out;
  Value y{activation(row_bytes(out)), nullptr};
  compute(costs::embedding(n, size()));
  if (!table.is_trained) return y;
  record(name, row_bytes(out), {}, y).backward = [=, this](Operation&, const Bytes&) {
    compute(costs::embedding_backward(n, table.nbytes / element_, size()));
    add_weight_gradient(table);
  };
  return y;
}

Value PaperTape::linear(const std::string& name, const Value& x, std::int64_t in, std::int64_t out,
                        const Weight& weight) {
  start(name);
  const Cost product = costs::matmul(rows_, out, in, size());  // of the gradients too
  Value y{result(name, row_bytes(out)), nullptr};
  if (!y.bytes->is_taken()) compute(product);
  if (x.origin == nullptr && !weight.is_trained) return y;
  std::vector<Bytes> saved;
  if (weight.is_trained) saved.push_back(x.bytes);
  record(name, row_bytes(out), saved, y).backward = [=, this, from = x.origin](Operation& self,
                                                                               const Bytes&) {
    if (weight.is_trained) {
      compute(product);
      add_weight_gradient(weight);
    }
    self.saved.clear();
    target(from);
    if (from != nullptr) compute(product);
  };
  return y;
}

Value PaperTape::rms_norm(const std::string& name, const Value& x, std::int64_t width,
                          const Weight& weight, bool with_sum) {
  start(name);
  Value y{activation(row_bytes(width)), nullptr};
  const Bytes rstd = activation(kFloatBytes * rows_);
  compute(with_sum ? costs::add_rms_norm(rows_ * width, size())
                   : costs::rms_norm(rows_ * width, size()));
  if (x.origin == nullptr && !weight.is_trained) return y;
  record(name, row_bytes(width), {x.bytes, rstd}, y).backward = [=, this, from = x.origin](
                                                                    Operation&, const Bytes&) {
    target(from);
    compute(costs::rms_norm_backward(rows_ * width, size()));
    if (weight.is_trained) add_weight_gradient(weight);
  };
  return y;
}

Value PaperTape::attention(const Value& q, const Value& k, const Value& v,
                           const costs::Heads& heads) {
  start("attention");
  const std::int64_t q_width = heads.heads * heads.width, kv_width = heads.kv_heads * heads.width;
  const auto turn = [this](std::int64_t width) { compute(costs::rope(rows_ * width, size())); };
  Value y{result("self_attn", row_bytes(q_width)), nullptr};
  const Bytes lse = result("self_attn", kFloatBytes * rows_ * heads.heads);
  if (!q.bytes->is_taken()) turn(q_width);
  if (!k.bytes->is_taken()) turn(kv_width);
  if (!y.bytes->is_taken()) compute(costs::attention(heads, size()));
  const std::vector<Origin> from{q.origin, k.origin, v.origin};
  if (q.origin == nullptr && k.origin == nullptr && v.origin == nullptr) return y;
  record("attention", row_bytes(q_width), {q.bytes, k.bytes, v.bytes, y.bytes, lse}, y).backward =
      [=, this](Operation&, const Bytes&) {
        std::vector<Bytes> aside;  // the kernel writes all three
        for (std::size_t i = 0; i < from.size(); ++i) {
          if (from[i] == nullptr) aside.push_back(temp(row_bytes(i == 0 ? q_width : kv_width)));
          target(from[i]);
        }
        compute(costs::attention_backward(heads, size()));
        turn(q_width);
        turn(kv_width);
      };
  return y;
}

Value PaperTape::swiglu(const Value& gate, const Value& up, std::int64_t width) {
  start("swiglu");
  const std::int64_t out = row_bytes(width);
  Value y{activation(out), nullptr};
  compute(costs::swiglu(rows_ * width, size()));
  if (gate.origin == nullptr && up.origin == nullptr) return y;
  record("swiglu", out, {gate.bytes, up.bytes}, y).backward =
      [=, this, gate_from = gate.origin, up_from = up.origin](Operation& self, const Bytes&) {
        const Bytes dgate = over_or_fresh(self.saved[0], out);
        const Bytes dup = over_or_fresh(self.saved[1], out);
        compute(costs::swiglu_backward(rows_ * width, size()));
        self.saved.clear();
        pass(gate_from, dgate);
        pass(up_from, dup);
      };
  return y;
}

Value PaperTape::add(const Value& x, Value y) {
  Value sum = deferred_sum(x, std::move(y));
  compute(costs::add(sum.bytes->nbytes() / element_, size()));
  return sum;
}

Value PaperTape::deferred_sum(const Value& x, Value y) {
  start("add");
  const std::int64_t out = y.bytes->nbytes();
  Value sum{y.bytes.use_count() > 1 ? activation(out) : y.bytes, nullptr};
  if (x.origin == nullptr && y.origin == nullptr) return sum;
  record("add", out, {}, sum).backward = [this, x_from = x.origin, y_from = y.origin](
                                             Operation&, const Bytes& dout) {
    pass(x_from, dout);
    pass(y_from, dout);
  };
  return sum;
}

Value PaperTape::scale(const Value& x, std::int64_t width) {
  start("scale");
  const std::int64_t out = row_bytes(width);
  Value y{activation(out), nullptr};
  compute(costs::copy(out, out));
  compute(costs::scale(rows_ * width, size()));
  if (x.origin == nullptr) return y;
  record("scale", out, {}, y).backward = [=, this, from = x.origin](Operation&, const Bytes& dout) {
    const bool is_over = dout.use_count() == 1;
    const Bytes dx = is_over ? dout : temp(out);
    if (!is_over) compute(costs::copy(out, out));
    compute(costs::scale(rows_ * width, size()));
    pass(from, dx);
  };
  return y;
}

Value PaperTape::cross_entropy(const Value& logits, std::int64_t vocabulary) {
  is_loss_ = true;
  start("loss");
  Value y{activation(kFloatBytes), nullptr};
  start("cross_entropy");
  const Bytes losses = activation(kFloatBytes * rows_);
  const bool with_gradient = logits.origin != nullptr;
  compute(costs::cross_entropy(rows_ * vocabulary, with_gradient, size()));
  if (!with_gradient) return y;
  // The gradient takes the memory of the logits, which nobody needs any more.
  record("cross_entropy", kFloatBytes, {logits.bytes}, y).backward =
      [=, this, from = logits.origin](Operation& self, const Bytes&) {
        const Bytes dlogits = over_or_fresh(self.saved[0], row_bytes(vocabulary));
        self.saved.front() = nullptr;
        pass(from, dlogits);
      };
  return y;
}

void PaperTape::checkpoint(std::vector<std::string> kept_operations) {
  pass_ = Pass::first;
  kept_operations_ = std::move(kept_operations);
}

Bytes PaperTape::result(const std::string& operation, std::int64_t nbytes) {
  const bool is_kept = pass_ != Pass::taped &&
                       std::ranges::find(kept_operations_, operation) != kept_operations_.end();
  if (!is_kept) return activation(nbytes);
  if (pass_ == Pass::second) {
    kept_[next_kept_]->take();
    return std::exchange(kept_[next_kept_++], nullptr);
  }
  kept_.push_back(activation(nbytes));
  return kept_.back();
}

// The output is held until the points have been taken.
Value PaperTape::run_forward(const Value& x, const Forward& forward,
                             std::vector<MemoryPoint>& points, std::vector<Kernel>& kernels) {
  start("entry");
  meter_.points.clear();
  meter_.note();
  Value y = forward(x);
  points = std::exchange(meter_.points, {});
  kernels = std::exchange(meter_.kernels, {});
  return y;
}

SegmentMemory PaperTape::run(std::int64_t in, std::int64_t out, const Forward& forward,
                             bool& needs_gradient) {
  SegmentMemory memory;
  SegmentMemory::Kernels& kernels = memory.kernels;
  memory.is_checkpointed = pass_ == Pass::first;
  Value x = input(in, needs_gradient);
  Bytes gradient;
  if (memory.is_checkpointed) {
    run_forward({x.bytes, nullptr}, forward, memory.forward, kernels.forward);
    pass_ = Pass::second;
    gradient = temp(out);
  }
  Value y = memory.is_checkpointed ? run_forward(x, forward, memory.again, kernels.again)
                                   : run_forward(x, forward, memory.forward, kernels.forward);
  const std::int64_t before = meter_.now.activation;
  x = {};
  memory.dropped = before - meter_.now.activation;
  const Origin last = y.origin;
  needs_gradient = last != nullptr;
  y = {};
  if (memory.is_checkpointed) settle_checkpoint(needs_gradient, memory);
  if (!needs_gradient) return memory;
  start("entry");
  if (gradient == nullptr && !is_loss_) gradient = temp(out);
  meter_.points.clear();
  meter_.note();
  if (is_loss_) {
    start("d(loss)");
    gradient = temp(out);
    compute(costs::fill(1, kFloatBytes));
  }
  last->gradient = std::move(gradient);
  while (!operations_.empty()) run_backward();
  memory.backward = std::exchange(meter_.points, {});
  kernels.backward = std::move(meter_.kernels);
  return memory;
}

// A checkpoint keeps its input and results, unless nobody will call it again.
void PaperTape::settle_checkpoint(bool needs_gradient, SegmentMemory& memory) const {
  if (needs_gradient) {
    memory.dropped = 0;
    memory.again.push_back({"its end", meter_.now.activation, meter_.now.temp});
    return;
  }
  const std::int64_t kept = memory.again.front().activation - memory.forward.front().activation;
  if (kept > 0) {
    MemoryPoint end = memory.forward.back();
    end.after = "its end";
    end.activation -= kept;
    memory.forward.push_back(std::move(end));
  }
  memory.again.clear();
}

Operation& Tape::record(const std::string& name, std::int64_t out, std::vector<Bytes> saved,
                        Value& y) {
  y.origin = std::make_shared<Operation>(Operation{name, out, std::move(saved)});
  operations_.push_back(y.origin);
  return *y.origin;
}

void Tape::run_backward() {
  const Origin operation = std::move(operations_.back());
  operations_.pop_back();
  start(operation->name);
  {
    const Bytes dout = std::move(operation->gradient);
    operation->backward(*operation, dout);
    operation->saved.clear();
  }
  meter_.note();  // here the hooks of its weight run
}

void PaperTape::add_weight_gradient(const Weight& weight) {
  meter_.now.weight_grad += weight.nbytes;
  meter_.note();
}

// A gradient that nothing else holds is added to.
void PaperTape::target(const Origin& origin) {
  if (origin == nullptr || origin->gradient.use_count() == 1) return;
  if (origin->gradient != nullptr) compute(costs::copy(origin->output, origin->output));
  origin->gradient = temp(origin->output);
}

void PaperTape::pass(const Origin& origin, const Bytes& gradient) {
  if (origin == nullptr) return;
  if (origin->gradient == nullptr) {
    origin->gradient = gradient;
  } else {
    if (origin->gradient.use_count() > 1) origin->gradient = temp(origin->output);
    compute(costs::add(origin->output / element_, size()));
  }
}

Bytes PaperTape::over_or_fresh(const Bytes& saved, std::int64_t nbytes) {
  if (saved.use_count() > 1) return temp(nbytes);
  saved->become_temp();
  return saved;
}

}  // namespace fsdp::paper
