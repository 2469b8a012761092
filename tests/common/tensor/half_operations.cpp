// Operations on 16-bit floats: each gives what it gives on the same values in float32, rounded
// once. So its error is that of one rounding, beside that of float32.
#include "kernel_checks.h"
#include "tensor/tree_sum.h"

#include <cstddef>
#include <functional>
#include <string>

using namespace fsdp;
using namespace kernel_checks;
using ops::Transpose;
using ops::Write;

namespace {

// Calls operations with operands that hold the same values in every dtype: multiples of 1/16 below
// 4 are exact in all of them.
class HalfOperands {
 public:
  HalfOperands(const Placement& at, DType dtype) : at_(at), dtype_(dtype) {}
  Tensor values(const Shape& shape) { return filled(shape, dtype_); }
  Tensor wide_values(const Shape& shape) { return filled(shape, wide_of(dtype_)); }
  Tensor empty(const Shape& shape) const { return at_.empty(shape, dtype_); }
  Tensor wide(const Shape& shape) const { return at_.empty(shape, wide_of(dtype_)); }
  Tensor tokens(std::int64_t count, std::int32_t below) const {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<std::int32_t>(i * i + 1) % below);
    }
    return at_.indices(values);
  }

 private:
  Tensor filled(const Shape& shape, DType dtype) {
    std::vector<double> values = random_values(numel_of(shape), ++seed_, -63, 63);
    for (double& value : values) value = std::round(value) / 16;
    return at_.values(values, shape, dtype);
  }

  Placement at_;
  DType dtype_;
  std::uint64_t seed_ = 0;
};

struct Trial {
  std::string name;
  std::function<std::vector<Tensor>(HalfOperands&)> run;
};

void add_elementwise(std::vector<Trial>& cases) {
  const Shape n{40003};
  cases.push_back({"add, in place too", [=](HalfOperands& x) {
                     const Tensor out = x.empty(n), a = x.values(n), b = x.values(n);
                     ops::add(out, a, b);
                     ops::add(a, a, b);
                     return std::vector{out, a};
                   }});
  for (const Write write : {Write::set, Write::add}) {
    cases.push_back({"multiply, write, relu_backward, tanh_backward", [=](HalfOperands& x) {
                       std::vector<Tensor> out;
                       for (int i = 0; i < 4; ++i) out.push_back(x.values(n));
                       const Tensor a = x.values(n), b = x.values(n);
                       ops::multiply(out[0], a, b, write);
                       ops::write(out[1], a, write);
                       ops::relu_backward(out[2], a, b, write);
                       ops::tanh_backward(out[3], a, b, write);
                       return out;
                     }});
    cases.push_back({"sum_rows", [=](HalfOperands& x) {
                       const Tensor out = x.values({77}), in = x.values({201, 77});
                       ops::sum_rows(out, in, write);
                       return std::vector{out};
                     }});
  }
  cases.push_back({"scale, fill, relu, tanh", [=](HalfOperands& x) {
                     const Tensor a = x.values(n), one = x.empty(n), y = x.empty(n), z = x.empty(n);
                     ops::relu(y, a);
                     ops::tanh(z, a);
                     ops::scale(a, 0.1);
                     ops::fill(one, 0.1);
                     return std::vector{a, one, y, z};
                   }});
  cases.push_back({"add_row, sum", [=](HalfOperands& x) {
                     const Tensor out = x.values({301, 77}), total = x.wide({1});
                     ops::add_row(out, x.values({77}));
                     ops::sum(total, out);
                     return std::vector{out};
                   }});
}

void add_products(std::vector<Trial>& cases) {
  // Within a tile, a piece and a chunk, and beyond each of them.
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const Sizes e : {Sizes{1, 1, 1},
                        {7, 5, 3},
                        {64, 96, 256},
                        {241, 97, 257},
                        {61, 200, 700},
                        {500, 33, 64},
                        {3, 4, 0}}) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        for (const Write write : {Write::set, Write::add}) {
          cases.push_back(
              {"matmul", [=](HalfOperands& x) {
                 const Shape a = ta == Transpose::yes ? Shape{e.k, e.m} : Shape{e.m, e.k};
                 const Shape b = tb == Transpose::yes ? Shape{e.n, e.k} : Shape{e.k, e.n};
                 const Tensor out = x.values({e.m, e.n});
                 ops::matmul(out, x.values(a), ta, x.values(b), tb, write);
                 return std::vector{out};
               }});
        }
      }
    }
  }
}

void add_attention(std::vector<Trial>& cases) {
  struct Sizes {
    std::int64_t batch, length, heads, kv_heads, width;
  };
  for (const Sizes e : {Sizes{2, 1, 2, 1, 8},
                        {1, 65, 4, 2, 34},
                        {2, 150, 2, 2, 64},
                        {1, 131, 6, 2, 128},
                        {1, 40, 2, 1, 256}}) {
    cases.push_back({"attention", [=](HalfOperands& x) {
                       const Shape shape{e.batch, e.length, e.heads, e.width};
                       const Shape kv{e.batch, e.length, e.kv_heads, e.width};
                       const Tensor q = x.values(shape), k = x.values(kv), v = x.values(kv);
                       const Tensor out = x.empty(shape), dout = x.values(shape);
                       const Tensor lse = x.wide({e.batch, e.heads, e.length});
                       ops::attention(out, lse, q, k, v);
                       // The backward of one given output, so that all dtypes have the same.
                       const Tensor given = x.values(shape);
                       const Tensor dq = x.empty(shape), dk = x.empty(kv), dv = x.empty(kv);
                       ops::attention_backward(dq, dk, dv, dout, given, lse, q, k, v);
                       return std::vector{out, lse, dq, dk, dv};
                     }});
  }
}

void add_transformer(std::vector<Trial>& cases) {
  for (const Write write : {Write::set, Write::add}) {
    cases.push_back({"embedding", [=](HalfOperands& x) {
                       const Tensor table = x.values({37, 70}), tokens = x.tokens(301, 31);
                       const Tensor out = x.empty({301, 70}), dtable = x.values({37, 70});
                       ops::embedding(out, table, tokens);
                       ops::embedding_backward(dtable, x.values({301, 70}), tokens, write);
                       return std::vector{out, dtable};
                     }});
    cases.push_back({"rms_norm", [=](HalfOperands& x) {
                       const Shape shape{150, 77};
                       const Tensor in = x.values(shape), weight = x.values({77});
                       const Tensor out = x.empty(shape), rstd = x.wide({150});
                       ops::rms_norm(out, rstd, in, weight, 1e-5);
                       const Tensor dx = x.values(shape), dweight = x.values({77});
                       ops::rms_norm_backward(dx, write, dweight, write, x.values(shape), in,
                                              weight, rstd);
                       return std::vector{out, rstd, dx, dweight};
                     }});
  }
  cases.push_back({"add_rms_norm, in place", [=](HalfOperands& x) {
                     const Shape shape{150, 77};
                     const Tensor a = x.values(shape), b = x.values(shape);
                     const Tensor out = x.empty(shape), rstd = x.wide({150});
                     ops::add_rms_norm(out, rstd, b, a, b, x.values({77}), 1e-5);
                     return std::vector{out, rstd, b};
                   }});
  for (const bool inverse : {false, true}) {
    cases.push_back({"rope", [=](HalfOperands& x) {
                       const Tensor cos = x.wide({40, 17}), sin = x.wide({40, 17});
                       ops::rope_tables(cos, sin, 10000);
                       const Tensor in = x.values({2, 33, 3, 34});
                       ops::rope(in, cos, sin, inverse);
                       return std::vector{in};
                     }});
  }
  cases.push_back({"swiglu, in place too", [=](HalfOperands& x) {
                     using ops::Rule;
                     const Shape n{20011};
                     const Tensor gate = x.values(n), up = x.values(n), dout = x.values(n);
                     const Tensor out = x.empty(n), dgate = x.empty(n), dup = x.empty(n);
                     ops::swiglu(out, gate, up);
                     ops::swiglu_backward(dgate, dup, dout, gate, up);
                     ops::swiglu_backward(gate, up, dout, gate, up);
                     return std::vector{out, dgate, dup, gate, up};
                   }});
  cases.push_back({"cross_entropy, in place too", [=](HalfOperands& x) {
                     const Tensor logits = x.values({70, 2500}), targets = x.tokens(70, 2500);
                     const Tensor loss = x.wide({1}), losses = x.wide({70});
                     targets.data<std::int32_t>()[3] = ops::kIgnoredTarget;
                     const Tensor dlogits = x.empty({70, 2500});
                     ops::cross_entropy(loss, losses, logits, targets, dlogits, 0.7);
                     ops::cross_entropy(loss, losses, logits, targets, logits, 0.7);
                     return std::vector{loss, losses, dlogits, logits};
                   }});
}

void add_optimizers(std::vector<Trial>& cases) {
  using ops::Rule;
  const Shape n{20011};
  cases.push_back({"adamw", [=](HalfOperands& x) {
                     const Tensor param = x.values(n), grad = x.values(n), m = x.values(n);
                     const Tensor v = x.empty(n);
                     ops::fill(v, 0.25);
                     ops::update(param, grad, m, v, {Rule::adamw, 0.01, 3});
                     return std::vector{param, m, v};
                   }});
  cases.push_back({"sgd", [=](HalfOperands& x) {
                     const Tensor param = x.values(n), grad = x.values(n), buffer = x.values(n);
                     ops::update(param, grad, buffer, {}, {Rule::sgd, 0.01, 3, {.momentum = 0.9}});
                     return std::vector{param, buffer};
                   }});
  cases.push_back({"adam", [=](HalfOperands& x) {
                     const Tensor param = x.values(n), grad = x.values(n), m = x.values(n);
                     const Tensor v = x.empty(n);
                     ops::fill(v, 0.25);
                     ops::update(param, grad, m, v, {Rule::adam, 0.01, 3});
                     return std::vector{param, m, v};
                   }});
  cases.push_back({"adamax", [=](HalfOperands& x) {
                     const Tensor param = x.values(n), grad = x.values(n), m = x.values(n);
                     const Tensor u = x.empty(n);
                     ops::fill(u, 0.25);
                     ops::update(param, grad, m, u, {Rule::adamax, 0.01, 3});
                     return std::vector{param, m, u};
                   }});
  cases.push_back({"adagrad", [=](HalfOperands& x) {
                     const Tensor param = x.values(n), grad = x.values(n), sum = x.empty(n);
                     ops::fill(sum, 0.25);
                     ops::update(param, grad, sum, {},
                                 {Rule::adagrad, 0.01, 3, {.eps = 1e-10, .lr_decay = 0.5}});
                     return std::vector{param, sum};
                   }});
  cases.push_back(
      {"adadelta", [=](HalfOperands& x) {
         const Tensor param = x.values(n), grad = x.values(n);
         const Tensor squares = x.empty(n), deltas = x.empty(n);
         ops::fill(squares, 0.25);
         ops::fill(deltas, 0.5);
         ops::update(param, grad, squares, deltas, {Rule::adadelta, 0.5, 3, {.eps = 1e-6}});
         return std::vector{param, squares, deltas};
       }});
}

std::vector<Trial> all_cases() {
  std::vector<Trial> cases;
  add_elementwise(cases);
  add_products(cases);
  add_attention(cases);
  add_transformer(cases);
  add_optimizers(cases);
  return cases;
}

std::vector<Tensor> run_once(const Trial& each, DType dtype) {
  HalfOperands operands(Placement{}, dtype);
  return each.run(operands);
}

}  // namespace

TEST_CASE("an operation on 16-bit floats is the one in float32, rounded once, anywhere") {
  for (const Trial& each : all_cases()) {
    for (const DType dtype : kHalves) {
      INFO(each.name << " in " << name_of(dtype));
      const std::vector<Tensor> outputs = run_everywhere([&](const Placement& at) {
        HalfOperands operands(at, dtype);
        return each.run(operands);
      });
      const std::vector<Tensor> wide = run_once(each, DType::float32);
      REQUIRE(outputs.size() == wide.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Tensor expected = Tensor::empty(wide[i].shape(), outputs[i].dtype());
        ops::copy(expected, wide[i]);
        INFO("output " << i);
        CHECK(ops::equal_bits(outputs[i], expected));
      }
    }
  }
}

// |error| <= 2^-8 |value| of a bfloat16 and 2^-11 |value| of a float16, beside float32's own.
TEST_CASE("an operation on 16-bit floats is one rounding away from float64") {
  for (const Trial& each : all_cases()) {
    const std::vector<Tensor> exact = run_once(each, DType::float64);
    for (const DType dtype : kHalves) {
      const std::vector<Tensor> outputs = run_once(each, dtype);
      const double rounding = dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        INFO(each.name << " in " << name_of(dtype) << ", output " << i);
        const bool is_wide = outputs[i].dtype() == DType::float32;
        CHECK(distance(outputs[i], doubles_of(exact[i])) <=
              (is_wide ? 0 : rounding) + 5 * tolerance(DType::float32));
      }
    }
  }
}

TEST_CASE("vectors convert like single numbers") {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 70001; ++i) {
    values.push_back(std::bit_cast<float>(random_word(5, i)));  // all exponents, and NaNs
  }
  const auto count = static_cast<std::int64_t>(values.size());
  const auto check = [&]<class H>(H) {
    const Tensor halves = Tensor::empty({count}, dtype_of<H>()), wide = Tensor::empty({count});
    ops::copy(halves, Tensor::from(values, {count}));
    ops::copy(wide, halves);
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const H expected(values[i]);
      const auto back = std::bit_cast<std::uint32_t>(static_cast<float>(expected));
      if (halves.data<H>()[i].bits != expected.bits ||
          std::bit_cast<std::uint32_t>(wide.data<float>()[i]) != back) {
        wrong.push_back(i);
      }
    }
    CHECK(wrong == std::vector<std::size_t>{});
  };
  check(BFloat16{});
  check(Float16{});
}

TEST_CASE("every sum of two in the canonical tree rounds to its 16 bits") {
  for (const DType dtype : kHalves) {
    for (const std::size_t leaves : {1U, 2U, 3U, 4U, 5U, 8U, 13U}) {
      constexpr std::int64_t kNumel = 1003;
      std::vector<Tensor> in;
      std::vector<const std::byte*> bytes;
      for (std::size_t k = 0; k < leaves; ++k) {
        in.push_back(Placement{}.values(random_values(kNumel, k + 1), {kNumel}, dtype));
        bytes.push_back(in.back().raw());
      }
      const std::function<Tensor(std::size_t, std::size_t)> sum = [&](std::size_t first,
                                                                      std::size_t count) {
        if (count == 1) return in[first];
        const std::size_t split = std::bit_floor(count - 1);
        const Tensor out = Tensor::empty({kNumel}, dtype);
        ops::add(out, sum(first, split), sum(first + split, count - split));
        return out;
      };
      const Tensor out = Tensor::empty({kNumel}, dtype);
      tree_sum(out.raw(), bytes, kNumel, dtype);
      CHECK(ops::equal_bits(out, sum(0, leaves)));
    }
  }
}

TEST_CASE("operations name the operand that does not go with 16-bit floats") {
  const Tensor x = Tensor::zeros({2, 4}, DType::bfloat16),
               weight = Tensor::zeros({4}, DType::bfloat16);
  const Tensor narrow = Tensor::zeros({2}, DType::bfloat16), wide = Tensor::zeros({2});
  CHECK(message_of<Error>([&] { ops::rms_norm(x, narrow, x, weight, 1e-5); }) ==
        "rms_norm: rstd is bfloat16, expected float32 beside bfloat16");
  CHECK(message_of<Error>([&] { ops::rms_norm(x, wide, x, Tensor::zeros({4}), 1e-5); }) ==
        "rms_norm: weight is float32, the others bfloat16");
  CHECK(message_of<Error>([&] { ops::rope_tables(x, x, 10000); }) ==
        "rope_tables: the tables are bfloat16, but must be float32 or float64");
}
