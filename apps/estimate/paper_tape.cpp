#include "estimate/paper_tape.h"

#include "nn/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace fsdp::estimate {

namespace {

constexpr std::int64_t kFloat = 4;  // bytes of what is float32 in every format

/// What is held, and every change of it.
struct Meter {
  MemoryPoint now{"entry"};
  std::vector<MemoryPoint> points;
  void note() { points.push_back(now); }
};

/// The bytes of one tensor, counted while anything holds them.
class Buffer {
 public:
  Buffer(Meter& meter, bool is_temp, std::int64_t nbytes)
      : meter_(meter), is_temp_(is_temp), nbytes_(nbytes) {
    count(nbytes);
  }
  ~Buffer() { count(-nbytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void become_temp() {
    if (!std::exchange(is_temp_, true)) meter_.now.activation -= nbytes_;
    meter_.now.temp += nbytes_;
    meter_.note();
  }

 private:
  void count(std::int64_t nbytes) {
    (is_temp_ ? meter_.now.temp : meter_.now.activation) += nbytes;
    meter_.note();
  }
  Meter& meter_;
  bool is_temp_;
  std::int64_t nbytes_;
};
using Bytes = std::shared_ptr<Buffer>;

struct Operation {
  std::string name;
  std::int64_t output;  // bytes of its result, and of the gradient of that
  std::vector<Bytes> saved = {};
  Bytes gradient = {};  // d(result), summed so far
  std::function<void(Operation&, const Bytes& dout)> backward = {};
};
using Origin = std::shared_ptr<Operation>;  // null: needs no gradient

struct Value {
  Bytes bytes;
  Origin origin;
};

struct Weight {
  std::int64_t nbytes;
  bool is_trained;
};

/// One segment's tape. Each function is its namesake of autograd/functions.h.
class PaperTape {
 public:
  Value input(std::int64_t nbytes, bool needs_gradient) {
    Value value{activation(nbytes), nullptr};
    if (needs_gradient) source_ = value.origin = std::make_shared<Operation>("input", nbytes);
    return value;
  }

  Value embedding(const std::string& name, std::int64_t out, const Weight& table) {
    start(name);
    Value y{activation(out), nullptr};
    if (!table.is_trained) return y;
    record(name, out, {}, y)->backward = [this, table](Operation&, const Bytes&) {
      add_weight_gradient(table);
    };
    return y;
  }

  Value linear(const std::string& name, const Value& x, std::int64_t out, const Weight& weight) {
    start(name);
    Value y{activation(out), nullptr};
    if (x.origin == nullptr && !weight.is_trained) return y;
    const std::vector<Bytes> saved =
        weight.is_trained ? std::vector{x.bytes} : std::vector<Bytes>();
    record(name, out, saved, y)->backward = [this, weight, from = x.origin](Operation& self,
                                                                            const Bytes&) {
      if (weight.is_trained) add_weight_gradient(weight);
      self.saved.clear();
      target(from);
    };
    return y;
  }

  Value rms_norm(const std::string& name, const Value& x, std::int64_t out, std::int64_t rstd_bytes,
                 const Weight& weight) {
    start(name);
    Value y{activation(out), nullptr};
    const Bytes rstd = activation(rstd_bytes);
    if (x.origin == nullptr && !weight.is_trained) return y;
    record(name, out, {x.bytes, rstd}, y)->backward = [this, weight, from = x.origin](
                                                          Operation&, const Bytes&) {
      target(from);
      if (weight.is_trained) add_weight_gradient(weight);
    };
    return y;
  }

  Value attention(const Value& q, const Value& k, const Value& v, std::int64_t out,
                  std::int64_t lse_bytes, const std::vector<std::int64_t>& sizes) {
    start("attention");
    Value y{activation(out), nullptr};
    const Bytes lse = activation(lse_bytes);
    const std::vector<Origin> from{q.origin, k.origin, v.origin};
    if (q.origin == nullptr && k.origin == nullptr && v.origin == nullptr) return y;
    record("attention", out, {q.bytes, k.bytes, v.bytes, y.bytes, lse}, y)->backward =
        [this, from, sizes](Operation&, const Bytes&) {
          std::vector<Bytes> aside;  // the kernel writes all three
          for (std::size_t i = 0; i < from.size(); ++i) {
            from[i] ? target(from[i]) : aside.push_back(temp(sizes[i]));
          }
        };
    return y;
  }

  Value swiglu(const Value& gate, const Value& up, std::int64_t out) {
    start("swiglu");
    Value y{activation(out), nullptr};
    if (gate.origin == nullptr && up.origin == nullptr) return y;
    record("swiglu", out, {gate.bytes, up.bytes}, y)->backward =
        [this, out, gate_from = gate.origin, up_from = up.origin](Operation& self, const Bytes&) {
          const Bytes dgate = over_or_fresh(self.saved[0], out);
          const Bytes dup = over_or_fresh(self.saved[1], out);
          self.saved.clear();
          pass(gate_from, dgate);
          pass(up_from, dup);
        };
    return y;
  }

  /// The sum is written over y, which only this call holds.
  Value add(const Value& x, Value y, std::int64_t out) {
    start("add");
    Value sum{y.bytes, nullptr};
    if (x.origin == nullptr && y.origin == nullptr) return sum;
    record("add", out, {}, sum)->backward = [x_from = x.origin, y_from = y.origin, this](
                                                Operation&, const Bytes& dout) {
      pass(x_from, dout);
      pass(y_from, dout);
    };
    return sum;
  }

  Value scale(const Value& x, std::int64_t out) {
    start("scale");
    Value y{activation(out), nullptr};
    if (x.origin == nullptr) return y;
    record("scale", out, {}, y)->backward = [this, out, from = x.origin](Operation&,
                                                                         const Bytes& dout) {
      pass(from, dout.use_count() == 1 ? dout : temp(out));
    };
    return y;
  }

  /// Runs the segment: `forward` maps its input to its output.
  SegmentMemory run(Value x, std::int64_t out, const std::function<Value(const Value&)>& forward,
                    bool& needs_gradient) {
    SegmentMemory memory;
    start("entry");
    meter_.points = {meter_.now};
    Value y = forward(x);
    memory.forward = std::exchange(meter_.points, {});
    const std::int64_t before = meter_.now.activation;
    x = {};
    memory.dropped = before - meter_.now.activation;
    const Origin last = y.origin;
    needs_gradient = last != nullptr;
    y = {};
    if (!needs_gradient) return memory;
    last->gradient = temp(out);
    start("entry");
    meter_.points = {meter_.now};
    while (!operations_.empty()) run_backward();
    memory.backward = std::move(meter_.points);
    source_ = nullptr;
    return memory;
  }

 private:
  void start(const std::string& name) { meter_.now.after = name; }
  Bytes activation(std::int64_t n) { return std::make_shared<Buffer>(meter_, false, n); }
  Bytes temp(std::int64_t n) { return std::make_shared<Buffer>(meter_, true, n); }

  Operation* record(const std::string& name, std::int64_t out, std::vector<Bytes> saved, Value& y) {
    y.origin = std::make_shared<Operation>(name, out, std::move(saved));
    operations_.push_back(y.origin);
    return y.origin.get();
  }
  void run_backward() {
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

  void add_weight_gradient(const Weight& weight) {
    meter_.now.weight_grad += weight.nbytes;
    meter_.note();
  }
  void target(const Origin& origin) {
    if (origin == nullptr || origin->gradient.use_count() == 1) return;  // or it is added to
    origin->gradient = temp(origin->output);
  }
  void pass(const Origin& origin, const Bytes& gradient) {
    if (origin == nullptr) return;
    if (origin->gradient == nullptr) {
      origin->gradient = gradient;
    } else {
      target(origin);
    }
  }
  Bytes over_or_fresh(const Bytes& saved, std::int64_t nbytes) {
    if (saved.use_count() > 1) return temp(nbytes);
    saved->become_temp();
    return saved;
  }

  Meter meter_;
  Origin source_;
  std::vector<Origin> operations_;  // in the order of recording
};

/// The model, in bytes.
class PaperModel {
 public:
  PaperModel(const nn::TransformerConfig& config, const MemoryOptions& options, std::int64_t length)
      : config_(config),
        options_(options),
        element_(static_cast<std::int64_t>(
            size_of(options.mixed_precision.param_dtype_for(DType::float32)))),
        rows_(options.batch * length) {}

  std::vector<SegmentMemory> segments() {
    const std::int64_t x = row_bytes(config_.hidden_size);
    std::vector<SegmentMemory> all;
    bool needs_gradient = false;
    const auto run = [&](std::int64_t in, std::int64_t out, auto&& forward) {
      PaperTape tape;
      tape_ = &tape;
      all.push_back(tape.run(tape.input(in, needs_gradient), out, forward, needs_gradient));
    };
    run(0, x, [&](const Value&) {
      Weight table = weight("model.embed_tokens", config_.vocab_size * config_.hidden_size);
      if (config_.tie_word_embeddings) table.nbytes = 0;  // the head has made its gradient
      return tape_->embedding("embed_tokens", x, table);
    });
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      path_ = fmt::format("model.layers.{}.", i);
      run(x, x, [&](const Value& input) { return block(input); });
    }
    run(x, row_bytes(config_.vocab_size), [&](const Value& input) { return head(input); });
    return all;
  }

 private:
  // The scopes are those of nn/layers.cpp: a value that is still named, or within the same
  // expression, is still held.
  Value block(const Value& x) {
    const std::int64_t d = row_bytes(config_.hidden_size);
    Value middle;
    {
      const Value normed = norm(path_ + "input_layernorm", x);
      middle = tape_->add(x, attention(normed), d);
    }
    const Value normed = norm(path_ + "post_attention_layernorm", middle);
    Value branch = mlp(normed);
    return tape_->add(middle, std::move(branch), d);
  }
  Value attention(const Value& x) {
    const std::int64_t d = config_.hidden_size, q_width = config_.query_width();
    const std::int64_t kv_width = config_.kv_width();
    const std::string path = path_ + "self_attn.";
    Value mixed;
    {
      const Value q = linear(path + "q_proj", x, d, q_width);
      const Value k = linear(path + "k_proj", x, d, kv_width);
      const Value v = linear(path + "v_proj", x, d, kv_width);
      mixed = tape_->attention(q, k, v, row_bytes(q_width),
                               kFloat * rows_ * config_.num_attention_heads,
                               {row_bytes(q_width), row_bytes(kv_width), row_bytes(kv_width)});
    }
    return linear(path + "o_proj", mixed, q_width, d);
  }
  Value mlp(const Value& x) {
    const std::int64_t d = config_.hidden_size, f = config_.intermediate_size;
    Value hidden;
    {
      const Value gate = linear(path_ + "mlp.gate_proj", x, d, f);
      const Value up = linear(path_ + "mlp.up_proj", x, d, f);
      hidden = tape_->swiglu(gate, up, row_bytes(f));
    }
    return linear(path_ + "mlp.down_proj", hidden, f, d);
  }
  Value head(const Value& x) {
    const std::int64_t d = config_.hidden_size, v = config_.vocab_size;
    const Value normed = norm("model.norm", x);
    const bool is_tied = config_.tie_word_embeddings;
    return tape_->linear("lm_head", normed, row_bytes(v),
                         weight(is_tied ? "model.embed_tokens" : "lm_head", d * v));
  }

  Value linear(const std::string& path, const Value& x, std::int64_t in, std::int64_t out) {
    const std::string name = path.substr(path.rfind('.') + 1);
    Value y = tape_->linear(name, x, row_bytes(out), weight(path, in * out));
    if (!is_adapted(options_, path)) return y;
    const std::int64_t rank = options_.lora_rank;
    Value added;
    {
      const Value low =
          tape_->linear(name + ".lora_A", x, row_bytes(rank), weight(path + ".lora_A", in * rank));
      const Value scaled = tape_->scale(low, row_bytes(rank));
      added = tape_->linear(name + ".lora_B", scaled, row_bytes(out),
                            weight(path + ".lora_B", rank * out));
    }
    return tape_->add(y, std::move(added), row_bytes(out));
  }
  Value norm(const std::string& path, const Value& x) {
    return tape_->rms_norm(path.substr(path.rfind('.') + 1), x, row_bytes(config_.hidden_size),
                           kFloat * rows_, weight(path, config_.hidden_size));
  }

  std::int64_t row_bytes(std::int64_t width) const { return element_ * rows_ * width; }
  Weight weight(const std::string& module, std::int64_t numel) const {
    return {element_ * numel, is_trained(options_, module + ".weight")};
  }

  const nn::TransformerConfig& config_;
  const MemoryOptions& options_;
  std::int64_t element_;
  std::int64_t rows_;
  std::string path_;  // of the block, with a dot
  PaperTape* tape_ = nullptr;
};

}  // namespace

bool is_trained(const MemoryOptions& options, const std::string& path) {
  if (options.lora_rank > 0) return nn::is_lora(path);
  return !options.trains || options.trains(path);
}

bool is_adapted(const MemoryOptions& options, const std::string& path) {
  return options.lora_rank > 0 &&
         std::ranges::any_of(options.lora_targets, [&](const std::string& target) {
           return path == target || path.ends_with("." + target);
         });
}

std::vector<SegmentMemory> segments_on_paper(const nn::TransformerConfig& config,
                                             const MemoryOptions& options, std::int64_t length) {
  return PaperModel(config, options, length).segments();
}

}  // namespace fsdp::estimate
