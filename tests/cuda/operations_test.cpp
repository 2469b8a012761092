// Operations on tensors of a CUDA device that give the CPU's bits, each once: that the right kernel
// gets the right operands. The kernels' own tests try them in every way.
#include "cuda/on_device.h"
#include "tensor/cast.h"
#include "tensor/exact_norm.h"
#include "tensor/init.h"

#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Context;
using fsdp::ContextScope;
using fsdp::DType;
using fsdp::Error;
using fsdp::Float16;
using fsdp::InitSpec;
using fsdp::Shape;
using fsdp::Tensor;
namespace ops = fsdp::ops;
using ops::Write;

namespace {

constexpr std::int64_t kRows = 7, kWidth = 43, kElements = kRows * kWidth;

/// Runs `program` on the CPU and on the device: its outputs must agree to the last bit.
void same_bits_on_both(const std::function<Outputs()>& program) {
  const Outputs expected = program();
  const Outputs outputs = on_device_in_some_plans([&] {
    Outputs on_cpu;
    for (const Tensor& tensor : program()) on_cpu.push_back(fsdp::on_host(tensor));
    return on_cpu;
  });
  REQUIRE(outputs.size() == expected.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    INFO("output " << i);
    CHECK(ops::equal_bits(outputs[i], expected[i]));
  }
}

template <class T>
Tensor thirds(std::int64_t salt, const Shape& shape = {kRows, kWidth}) {
  const Tensor made = Tensor::from(values<T>(fsdp::numel_of(shape), salt), shape);
  ops::scale(made, 1.0 / 3);
  return made;
}

/// Positive, as the squares are that optimizers keep.
template <class T>
Tensor squares(std::int64_t salt) {
  const Tensor made = thirds<T>(salt);
  ops::multiply(made, made, made);
  return made;
}

}  // namespace

TEMPLATE_TEST_CASE("elementwise operations on a CUDA device give the CPU's bits", "[operations]",
                   float, BFloat16, Float16) {
  same_bits_on_both([] {
    const Tensor a = thirds<TestType>(1), b = thirds<TestType>(2);
    Outputs outputs;
    const auto out = [&] { return outputs.emplace_back(thirds<TestType>(9)); };
    ops::add(out(), a, b);
    ops::multiply(out(), a, b);
    ops::multiply(out(), a, b, Write::add);
    ops::write(out(), a, Write::set);
    ops::write(out(), a, Write::add);
    ops::scale(out(), 0.3);
    ops::add_row(out(), thirds<TestType>(3, {kWidth}));
    ops::relu(out(), a);
    ops::relu_backward(out(), a, b, Write::set);
    ops::relu_backward(out(), a, b, Write::add);
    ops::tanh(out(), a);
    ops::tanh_backward(out(), a, b, Write::set);
    ops::tanh_backward(out(), a, b, Write::add);
    ops::fill(out(), 0.7);
    return outputs;
  });
}

TEMPLATE_TEST_CASE("sums and numbers on a CUDA device give the CPU's bits", "[operations]", float,
                   BFloat16, Float16) {
  same_bits_on_both([] {
    const Tensor a = thirds<TestType>(1);
    const Tensor rows = thirds<TestType>(2, {kWidth}), more = thirds<TestType>(2, {kWidth});
    ops::sum_rows(rows, a, Write::set);
    ops::sum_rows(more, a, Write::add);
    const Tensor total = Tensor::empty({1}, fsdp::wide_of(a.dtype()));
    ops::sum(total, a);
    const Tensor filled = thirds<TestType>(4), scaled = thirds<TestType>(5);
    ops::fill_with(filled, total);
    for (int over = 3; over < 20; over += 2) ops::scale_by(scaled, total, 20, over);
    CHECK(ops::all_finite(a));
    CHECK(ops::equal_bits(a, thirds<TestType>(1)));
    CHECK_FALSE(ops::equal_bits(a, scaled));
    ops::fill(filled.narrow(0, 3, 1), INFINITY);
    CHECK_FALSE(ops::all_finite(filled));
    return Outputs{rows, more, total, filled, scaled};
  });
}

// A product would make a quiet NaN of a signaling one.
TEST_CASE("a factor of one on a CUDA device takes no pass over memory", "[operations]") {
  same_bits_on_both([] {
    const float signaling = std::bit_cast<float>(0x7f800001U);
    const Tensor x = Tensor::from(std::vector<float>(70, signaling), {70});
    ops::scale_by(x, Tensor::from(std::vector<float>{0.1F}, {1}), 1, 0.1F);
    ops::scale(x, 1 + 1e-12);
    const std::vector<float> after = x.to_vector<float>();
    for (const float each : after) CHECK(std::bit_cast<std::uint32_t>(each) == 0x7f800001U);
    return Outputs{x};
  });
}

TEST_CASE("products and scatters on a CUDA device take the operands that were meant",
          "[operations]") {
  // Values of few bits: every sum is exact, so no order of additions can matter.
  same_bits_on_both([] {
    const auto of = [](std::int64_t salt, const Shape& shape) {
      return Tensor::from(values<float>(fsdp::numel_of(shape), salt), shape);
    };
    Outputs outputs;
    for (const Write write : {Write::set, Write::add}) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          const Tensor a = of(1, ta ? Shape{5, 3} : Shape{3, 5});
          const Tensor b = of(2, tb ? Shape{4, 5} : Shape{5, 4});
          ops::matmul(outputs.emplace_back(of(3, {3, 4})), a,
                      ta ? ops::Transpose::yes : ops::Transpose::no, b,
                      tb ? ops::Transpose::yes : ops::Transpose::no, write);
        }
      }
      const Tensor tokens = Tensor::from(std::vector<std::int32_t>{4, 0, 4}, {3});
      ops::embedding(outputs.emplace_back(of(4, {3, 2})), of(5, {6, 2}), tokens);
      ops::embedding_backward(outputs.emplace_back(of(6, {6, 2})), of(7, {3, 2}), tokens, write);
    }
    return outputs;
  });
}

TEST_CASE("the backward of norms and rotation on a CUDA device takes what was meant",
          "[operations]") {
  const auto program = [] {
    Outputs outputs;
    const auto keep = [&](const Tensor& tensor) { return outputs.emplace_back(tensor); };
    const Tensor x = thirds<float>(1), weight = thirds<float>(2, {kWidth});
    const Tensor dout = thirds<float>(3);
    const Tensor out = Tensor::empty(x.shape()), rstd = Tensor::empty({kRows});
    ops::rms_norm(out, rstd, x, weight, 1e-5);
    for (const Write write_dx : {Write::set, Write::add}) {
      for (const Write write_dweight : {Write::set, Write::add}) {
        ops::rms_norm_backward(keep(thirds<float>(4)), write_dx, keep(thirds<float>(5, {kWidth})),
                               write_dweight, dout, x, weight, rstd);
      }
    }
    ops::rms_norm_backward({}, Write::set, keep(thirds<float>(5, {kWidth})), Write::set, dout, x,
                           weight, rstd);
    const Tensor cos = Tensor::empty({9, 3}), sin = Tensor::empty({9, 3});
    ops::rope_tables(cos, sin, 10000);
    for (const bool inverse : {false, true}) {
      ops::rope(keep(thirds<float>(6, {2, 5, 3, 6})), cos, sin, inverse);
    }
    outputs.insert(outputs.end(), {out, rstd, cos, sin});
    return outputs;
  };
  const Outputs expected = program();
  const Outputs outputs = on_device_in_some_plans([&] {
    Outputs on_cpu;
    for (const Tensor& tensor : program()) on_cpu.push_back(fsdp::on_host(tensor));
    return on_cpu;
  });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("output " << i);
    CHECK(largest_error(outputs[i], expected[i]) <= 1e-5);
  }
}

TEST_CASE("copies on a CUDA device give the CPU's bits", "[operations]") {
  same_bits_on_both([] {
    const Tensor a = thirds<float>(1);
    const Tensor half = Tensor::empty(a.shape(), DType::bfloat16);
    const Tensor turned = Tensor::empty({kWidth, kRows}, DType::float16);
    const Tensor same = Tensor::empty(a.shape());
    ops::copy(half, a);
    ops::copy(turned, a.transpose(0, 1));
    ops::copy(same, a);
    const Tensor integers = Tensor::from(std::vector<std::int32_t>{-7, 3}, {2});
    const Tensor wider = Tensor::empty({2}, DType::int64);
    ops::copy(wider, integers);
    return Outputs{half, turned, same, wider};
  });
}

TEMPLATE_TEST_CASE("optimizers on a CUDA device give the CPU's bits", "[operations]", float,
                   BFloat16) {
  same_bits_on_both([] {
    Outputs outputs;
    const auto next = [&](const Tensor& tensor) { return outputs.emplace_back(tensor); };
    const Tensor grad = thirds<TestType>(1);
    const auto param = [&] { return next(thirds<TestType>(2)); };
    const auto mean = [&] { return next(thirds<TestType>(3)); };
    const auto square = [&](std::int64_t salt) { return next(squares<TestType>(salt)); };
    using ops::Rule;
    ops::update(param(), grad, mean(), square(4), {Rule::adamw, 1e-2, 3});
    ops::update(param(), grad, {}, {}, {Rule::sgd, 1e-2, 1});
    ops::update(param(), grad, mean(), {}, {Rule::sgd, 1e-2, 3, {.momentum = 0.9}, 0.3});
    ops::update(param(), grad, mean(), square(4), {Rule::adamax, 1e-2, 3});
    ops::update(param(), grad, square(4), {}, {Rule::adagrad, 1e-2, 3, {.lr_decay = 1e-3}});
    ops::update(param(), grad, square(4), square(5), {Rule::adadelta, 1e-2, 3, {.eps = 1e-6}});
    return outputs;
  });
}

TEST_CASE("initial values and norms on a CUDA device are the CPU's", "[operations]") {
  std::vector<double> norms;
  same_bits_on_both([&] {
    const Tensor normal = Tensor::empty({kElements}), uniform = Tensor::empty({kElements});
    const Tensor ones = Tensor::empty({kElements});
    fsdp::init_slice(normal, InitSpec::truncated_normal(0.02), 5, 1000, 3);
    fsdp::init_slice(uniform, InitSpec::uniform(-1, 3), 5, 1000, 3);
    fsdp::init_slice(ones, InitSpec::ones(), 5, 1000, 3);
    fsdp::ExactSquareSum sum;
    sum.add(normal);
    sum.add(uniform);
    norms.push_back(sum.value());
    return Outputs{normal, uniform, ones};
  });
  for (const double norm : norms) CHECK(norm == norms[0]);
  CHECK(norms[0] > 0);
}

TEST_CASE("a wrong token is an error at the next wait of the host", "[operations]") {
  for (const std::size_t segment_nbytes : kSegments) {
    for (const Plan& plan : some_plans()) {
      Session session(plan);
      {
        Context context(cuda_options(segment_nbytes));
        const ContextScope scope(context);
        const Tensor table = thirds<float>(1, {5, 3}), out = Tensor::zeros({2, 3});
        const Tensor good = Tensor::from(std::vector<std::int32_t>{4, 0}, {2});
        const Tensor bad = Tensor::from(std::vector<std::int32_t>{4, 9}, {2});
        ops::embedding(out, table, good);
        CHECK_NOTHROW(out.to_vector<float>());
        ops::embedding(out, table, bad);
        ops::embedding(out, table, good);
        CHECK_THAT(message_of<Error>([&] { out.to_vector<float>(); }),
                   contains("embedding: token 9 at position 1 is outside the vocabulary [0, 5)"));
        CHECK_NOTHROW(out.to_vector<float>());  // reported once
        const Tensor loss = Tensor::zeros({1}), losses = Tensor::zeros({2});
        const Tensor logits = thirds<float>(2, {2, 5});
        ops::cross_entropy(loss, losses, logits, bad, logits);
        CHECK_THAT(
            message_of<Error>([&] { loss.item(); }),
            contains("cross_entropy: target 9 at position 1 is outside the vocabulary [0, 5)"));
        ops::embedding_backward(table, out, bad, Write::add);
        CHECK_THAT(message_of<Error>([&] { context.rank_device().synchronize(); }),
                   contains("embedding_backward: token 9 at position 1"));
      }
      CHECK_NOTHROW(session.finish());
    }
  }
}

TEST_CASE("a wrong token is reported before the note of it is used again", "[operations]") {
  for (const Plan& plan : some_plans()) {
    INFO(text_of(plan));
    Session session(plan);
    {
      Context context(cuda_options(0));
      const ContextScope scope(context);
      const Tensor good = Tensor::from(std::vector<std::int32_t>{0}, {1});
      const Tensor bad = Tensor::from(std::vector<std::int32_t>{-3}, {1});
      const Tensor out = Tensor::zeros({1, 1});
      std::vector<Tensor> tables;
      for (std::int64_t size = 1; size <= 66; ++size) tables.push_back(Tensor::zeros({size, 1}));
      // There are 64 notes, one for each kind of check. Nothing waits while they last.
      const auto waits = cuda_on_host::host_waits();
      for (std::size_t i = 0; i < 64; ++i) ops::embedding(out, tables[i], i == 0 ? bad : good);
      CHECK(cuda_on_host::host_waits() == waits);
      CHECK_THAT(message_of<Error>([&] { ops::embedding(out, tables[64], good); }),
                 contains("embedding: token -3 at position 0 is outside the vocabulary [0, 1)"));
      for (const std::size_t i : {64U, 65U, 0U}) {
        ops::embedding(out, tables[i], good);
        CHECK_NOTHROW(out.to_vector<float>());
      }
      ops::embedding(out, tables[65], bad);
      CHECK_THAT(message_of<Error>([&] { out.to_vector<float>(); }), contains("[0, 66)"));
    }
    CHECK_NOTHROW(session.finish());
  }
}
