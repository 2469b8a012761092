#include "paper/paper_tape.h"

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
  Value y{activation(out), nullptr};
  if (!table.is_trained) return y;
  record(name, out, {}, y).backward = [=, this](Operation&, const Bytes&) {
    add_weight_gradient(table);
  };
  return y;
}

Value PaperTape::linear(const std::string& name, const Value& x, std::int64_t out,
                        const Weight& weight) {
  start(name);
  Value y{result(name, out), nullptr};
  if (x.origin == nullptr && !weight.is_trained) return y;
  std::vector<Bytes> saved;
  if (weight.is_trained) saved.push_back(x.bytes);
  record(name, out, saved, y).backward = [=, this, from = x.origin](Operation& self, const Bytes&) {
    if (weight.is_trained) add_weight_gradient(weight);
    self.saved.clear();
    target(from);
  };
  return y;
}

Value PaperTape::rms_norm(const std::string& name, const Value& x, std::int64_t out,
                          std::int64_t rstd_bytes, const Weight& weight) {
  start(name);
  Value y{activation(out), nullptr};
  const Bytes rstd = activation(rstd_bytes);
  if (x.origin == nullptr && !weight.is_trained) return y;
  record(name, out, {x.bytes, rstd}, y).backward = [this, weight, from = x.origin](Operation&,
                                                                                   const Bytes&) {
    target(from);
    if (weight.is_trained) add_weight_gradient(weight);
  };
  return y;
}

Value PaperTape::attention(const Value& q, const Value& k, const Value& v, std::int64_t out,
                           std::int64_t lse_bytes, const std::vector<std::int64_t>& sizes) {
  start("attention");
  Value y{result("self_attn", out), nullptr};
  const Bytes lse = result("self_attn", lse_bytes);
  const std::vector<Origin> from{q.origin, k.origin, v.origin};
  if (q.origin == nullptr && k.origin == nullptr && v.origin == nullptr) return y;
  record("attention", out, {q.bytes, k.bytes, v.bytes, y.bytes, lse}, y).backward =
      [this, from, sizes](Operation&, const Bytes&) {
        std::vector<Bytes> aside;  // the kernel writes all three
        for (std::size_t i = 0; i < from.size(); ++i) {
          if (from[i] == nullptr) aside.push_back(temp(sizes[i]));
          target(from[i]);
        }
      };
  return y;
}

Value PaperTape::swiglu(const Value& gate, const Value& up, std::int64_t out) {
  start("swiglu");
  Value y{activation(out), nullptr};
  if (gate.origin == nullptr && up.origin == nullptr) return y;
  record("swiglu", out, {gate.bytes, up.bytes}, y).backward =
      [this, out, gate_from = gate.origin, up_from = up.origin](Operation& self, const Bytes&) {
        const Bytes dgate = over_or_fresh(self.saved[0], out);
        const Bytes dup = over_or_fresh(self.saved[1], out);
        self.saved.clear();
        pass(gate_from, dgate);
        pass(up_from, dup);
      };
  return y;
}

Value PaperTape::add(const Value& x, Value y) {
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

Value PaperTape::scale(const Value& x, std::int64_t out) {
  start("scale");
  Value y{activation(out), nullptr};
  if (x.origin == nullptr) return y;
  record("scale", out, {}, y).backward = [this, out, from = x.origin](Operation&,
                                                                      const Bytes& dout) {
    pass(from, dout.use_count() == 1 ? dout : temp(out));
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
  if (pass_ == Pass::second) return std::exchange(kept_[next_kept_++], nullptr);
  kept_.push_back(activation(nbytes));
  return kept_.back();
}

// The output is held until the points have been taken.
Value PaperTape::run_forward(const Value& x, const Forward& forward,
                             std::vector<MemoryPoint>& points) {
  start("entry");
  meter_.points = {meter_.now};
  Value y = forward(x);
  points = std::exchange(meter_.points, {});
  return y;
}

SegmentMemory PaperTape::run(std::int64_t in, std::int64_t out, const Forward& forward,
                             bool& needs_gradient) {
  SegmentMemory memory;
  memory.is_checkpointed = pass_ == Pass::first;
  Value x = input(in, needs_gradient);
  Bytes gradient;
  if (memory.is_checkpointed) {
    run_forward({x.bytes, nullptr}, forward, memory.forward);
    pass_ = Pass::second;
    gradient = temp(out);
  }
  Value y = run_forward(x, forward, memory.is_checkpointed ? memory.again : memory.forward);
  const std::int64_t before = meter_.now.activation;
  x = {};
  memory.dropped = before - meter_.now.activation;
  const Origin last = y.origin;
  needs_gradient = last != nullptr;
  y = {};
  if (memory.is_checkpointed) settle_checkpoint(needs_gradient, memory);
  if (!needs_gradient) return memory;
  last->gradient = gradient == nullptr ? temp(out) : std::move(gradient);
  start("entry");
  meter_.points = {meter_.now};
  while (!operations_.empty()) run_backward();
  memory.backward = std::exchange(meter_.points, {});
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
  origin->gradient = temp(origin->output);
}

void PaperTape::pass(const Origin& origin, const Bytes& gradient) {
  if (origin == nullptr) return;
  if (origin->gradient == nullptr) {
    origin->gradient = gradient;
  } else {
    target(origin);
  }
}

Bytes PaperTape::over_or_fresh(const Bytes& saved, std::int64_t nbytes) {
  if (saved.use_count() > 1) return temp(nbytes);
  saved->become_temp();
  return saved;
}

}  // namespace fsdp::paper
