#include "bench/cuda/kernel_rates.h"

#include "bench/cuda/timed.h"
#include "tensor/exact_norm.h"
#include "tensor/ops.h"

#include <functional>
#include <utility>

namespace fsdp::bench {
namespace {

constexpr DType kNarrow = DType::bfloat16;

/// Bytes of all tensors, each once.
template <class... Tensors>
double bytes_of(const Tensors&... tensors) {
  return (static_cast<double>(tensors.nbytes()) + ...);
}

/// Times kernels and keeps what it found.
class Rates {
 public:
  /// How often a step calls the kernels that follow.
  void set_per_step(double calls) { per_step_ = calls; }
  void add(std::string name, double nbytes, const std::function<void()>& call,
           double operations = 0) {
    rates_.push_back({std::move(name), per_step_, device_seconds(call), nbytes, operations});
  }
  std::vector<KernelRate> take() { return std::move(rates_); }

 private:
  double per_step_ = 0;
  std::vector<KernelRate> rates_;
};

/// How often a step runs what each block runs once.
struct Passes {
  double forward, backward;
};

void rate_attention(Rates& rates, const nn::TransformerConfig& model, std::int64_t batch,
                    std::int64_t length, Passes passes) {
  const std::int64_t heads = model.num_attention_heads, width = model.query_width() / heads;
  const Shape queries = {batch, length, heads, width};
  const Shape keys = {batch, length, model.effective_kv_heads(), width};
  const Tensor q = device_values(queries, kNarrow), dout = device_values(queries, kNarrow);
  const Tensor k = device_values(keys, kNarrow), v = device_values(keys, kNarrow);
  const Tensor out = Tensor::empty(queries, kNarrow), dq = Tensor::empty(queries, kNarrow);
  const Tensor dk = Tensor::empty(keys, kNarrow), dv = Tensor::empty(keys, kNarrow);
  const Tensor lse = Tensor::empty({batch, heads, length});
  // Each of two products (five in backward) has 2 T² D operations per head; half are masked.
  const double product = static_cast<double>(batch * heads * width) * static_cast<double>(length) *
                         static_cast<double>(length);
  rates.set_per_step(passes.forward);
  rates.add(
      "attention", bytes_of(q, k, v, out, lse), [&] { ops::attention(out, lse, q, k, v); },
      2 * product);
  rates.set_per_step(passes.backward);
  rates.add(
      "attention_backward", bytes_of(q, k, v, out, dout, dq, dk, dv, lse),
      [&] { ops::attention_backward(dq, dk, dv, dout, out, lse, q, k, v); }, 5 * product);

  const Tensor cos = Tensor::empty({length, width / 2}), sin = Tensor::empty({length, width / 2});
  ops::rope_tables(cos, sin, 10000);
  const double keys_of_queries = static_cast<double>(k.numel()) / static_cast<double>(q.numel());
  rates.set_per_step((passes.forward + passes.backward) * (1 + keys_of_queries));
  rates.add("rope", 2 * bytes_of(q), [&] { ops::rope(q, cos, sin, false); });
}

/// Products of linear layers with `from` inputs and `to` outputs, as often as the passes say:
/// forward, and backward to each.
void rate_linear(Rates& rates, const std::string& name, std::int64_t rows, std::int64_t from,
                 std::int64_t to, Passes passes) {
  using ops::Transpose;
  const Tensor x = device_values({rows, from}, kNarrow),
               weight = device_values({to, from}, kNarrow);
  const Tensor out = device_values({rows, to}, kNarrow);
  const double nbytes = bytes_of(x, weight, out);
  const double operations = 2 * static_cast<double>(rows * from) * static_cast<double>(to);
  const auto add = [&](const char* what, const Tensor& c, const Tensor& a, Transpose ta,
                       const Tensor& b, Transpose tb) {
    rates.add(
        name + what, nbytes, [&] { ops::matmul(c, a, ta, b, tb); }, operations);
  };
  rates.set_per_step(passes.forward);
  add(", forward", out, x, Transpose::no, weight, Transpose::yes);
  rates.set_per_step(passes.backward);
  add(", input's gradient", x, out, Transpose::no, weight, Transpose::no);
  add(", weight's gradient", weight, out, Transpose::yes, x, Transpose::no);
}

void rate_block(Rates& rates, const nn::TransformerConfig& model, std::int64_t rows,
                Passes passes) {
  const Shape narrow = {rows, model.hidden_size}, wide = {rows, model.intermediate_size};
  const Tensor x = device_values(narrow, kNarrow), dx = device_values(narrow, kNarrow);
  const Tensor out = Tensor::empty(narrow, kNarrow), sum = Tensor::empty(narrow, kNarrow);
  const Tensor weight = device_values({model.hidden_size}, kNarrow);
  const Tensor dweight = Tensor::empty({model.hidden_size}, kNarrow);
  const Tensor rstd = Tensor::empty({rows});
  rates.set_per_step(passes.forward);
  rates.add("add", 3 * bytes_of(x), [&] { ops::add(out, x, dx); });
  rates.add("add and rms_norm", 4 * bytes_of(x),
            [&] { ops::add_rms_norm(out, rstd, sum, x, dx, weight, 1e-5); });
  rates.set_per_step(passes.forward + 1);  // the last norm is the head's
  rates.add("rms_norm", bytes_of(x, out), [&] { ops::rms_norm(out, rstd, x, weight, 1e-5); });
  rates.set_per_step(2 * passes.backward);  // to the gradient that the residual has left
  rates.add("rms_norm_backward", 4 * bytes_of(x), [&] {
    ops::rms_norm_backward(out, ops::Write::add, dweight, ops::Write::set, dx, x, weight, rstd);
  });
  rates.set_per_step(1);
  rates.add("rms_norm_backward of the head", 3 * bytes_of(x), [&] {
    ops::rms_norm_backward(out, ops::Write::set, dweight, ops::Write::set, dx, x, weight, rstd);
  });

  const Tensor gate = device_values(wide, kNarrow), up = device_values(wide, kNarrow);
  const Tensor product = Tensor::empty(wide, kNarrow), dgate = Tensor::empty(wide, kNarrow);
  const Tensor dup = Tensor::empty(wide, kNarrow);
  rates.set_per_step(passes.forward);
  rates.add("swiglu", 3 * bytes_of(gate), [&] { ops::swiglu(product, gate, up); });
  rates.set_per_step(passes.backward);
  rates.add("swiglu_backward", 5 * bytes_of(gate),
            [&] { ops::swiglu_backward(dgate, dup, product, gate, up); });
}

/// The embedding, and the loss over logits of `rows` rows.
void rate_vocabulary(Rates& rates, const nn::TransformerConfig& model, std::int64_t rows) {
  rates.set_per_step(1);
  const Tensor on_card = Tensor::empty({rows}, DType::int32);
  fill_on_device(on_card, [&](const Tensor& tokens) {
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % model.vocab_size);
    }
  });
  const Tensor table = device_values({model.vocab_size, model.hidden_size}, kNarrow);
  const Tensor dtable = Tensor::empty(table.shape(), kNarrow);
  const Tensor out = device_values({rows, model.hidden_size}, kNarrow);
  rates.add("embedding", 2 * bytes_of(out), [&] { ops::embedding(out, table, on_card); });
  rates.add("embedding_backward", bytes_of(out, dtable),
            [&] { ops::embedding_backward(dtable, out, on_card, ops::Write::set); });

  const Tensor logits = device_values({rows, model.vocab_size}, kNarrow);
  const Tensor dlogits = Tensor::empty(logits.shape(), kNarrow);
  const Tensor loss = Tensor::empty({1}), losses = Tensor::empty({rows});
  rates.add("cross_entropy", bytes_of(logits, dlogits),
            [&] { ops::cross_entropy(loss, losses, logits, on_card, dlogits); });
}

/// Over n of the parameters; a step has as many `times`.
void rate_optimizer(Rates& rates, std::int64_t n, double times, bool has_mean_pass) {
  const Tensor param = device_values({n}), grad = device_values({n});
  const Tensor exp_avg = Tensor::zeros({n}), exp_avg_sq = Tensor::zeros({n});
  const Tensor half = Tensor::empty({n}, kNarrow);
  std::int64_t step = 0;
  rates.set_per_step(has_mean_pass ? times : 0);
  rates.add("scale", 2 * bytes_of(grad), [&] { ops::scale(grad, 0.5); });
  rates.set_per_step(times);
  rates.add("adamw", 7 * bytes_of(param), [&] {
    ops::update(param, grad, exp_avg, exp_avg_sq, {ops::Rule::adamw, 1e-3, ++step});
  });
  rates.add("cast to bfloat16", bytes_of(param, half), [&] { ops::copy(half, param); });
  rates.add("cast to float32", bytes_of(param, half), [&] { ops::copy(grad, half); });
  ExactSquareSum squares;
  rates.add("exact norm", bytes_of(grad), [&] { squares.add(grad); });
}

}  // namespace

std::vector<KernelRate> kernel_rates(const config::TrainConfig& config) {
  Rates rates;
  const nn::TransformerConfig& model = config.model;
  const std::int64_t batch = config.training.local_batch_size, length = config.sequence_length();
  const std::int64_t rows = batch * length, d = model.hidden_size;
  const std::int64_t queries = model.query_width(), keys = model.kv_width();
  const auto blocks = static_cast<double>(model.num_hidden_layers);
  const Passes each{config.recipe.checkpoints_blocks() ? 2 * blocks : blocks, blocks};
  const auto times = [&](double n) { return Passes{n * each.forward, n * each.backward}; };
  rate_linear(rates, "q, o", rows, d, queries, times(2));
  rate_linear(rates, "k, v", rows, d, keys, times(2));
  rate_linear(rates, "gate, up, down", rows, d, model.intermediate_size, times(3));
  rate_linear(rates, "head", rows, d, model.vocab_size, {1, 1});
  rate_attention(rates, model, batch, length, each);
  rate_block(rates, model, rows, each);
  rate_vocabulary(rates, model, rows);
  const std::int64_t table = model.vocab_size * d;
  const double tables = static_cast<double>(model.parameter_count()) / static_cast<double>(table) /
                        config.recipe.shards();
  rate_optimizer(rates, table, tables, config.recipe.has_mean_pass());
  return rates.take();
}

}  // namespace fsdp::bench
