// Pointwise kernels over more than 2^31 elements.
#include "cuda/many_elements.h"
#include "tensor/cuda/copy.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/exact_norm.h"
#include "tensor/cuda/init.h"
#include "tensor/cuda/optimizer.h"
#include "tensor/cuda/scalar.h"
#include "tensor/cuda/swiglu.h"
#include "tensor/cuda/tree_sum.h"
#include "tensor/exact_norm.h"

#include <cmath>

using namespace cuda_test;
using fsdp::BFloat16;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

constexpr std::int64_t kFew = 1000;  // of the 1024 elements that the last block has at a time

}  // namespace

TEST_CASE("pointwise kernels reach more than 2^31 elements", "[kernels][stand-in]") {
  const auto run = [](const char* what, auto kernel) {
    INFO(what);
    check_ends(kMany, kFew, [&](Run& each) {
      auto out = each.make<BFloat16>(1, 1), a = each.make<BFloat16>(1, 2);
      auto b = each.make<BFloat16>(1, 3);
      kernel(each.stream, static_cast<BFloat16*>(out), static_cast<BFloat16*>(a),
             static_cast<BFloat16*>(b), each.rows);
      out.note(each.ends);
      a.note(each.ends);
    });
  };
  run("add",
      [](auto stream, auto* out, auto* a, auto* b, auto n) { cuda::add(stream, out, a, b, n); });
  run("multiply", [](auto stream, auto* out, auto* a, auto* b, auto n) {
    cuda::multiply(stream, out, a, b, n, ops::Write::add);
  });
  run("swiglu",
      [](auto stream, auto* out, auto* a, auto* b, auto n) { cuda::swiglu(stream, out, a, b, n); });
  run("swiglu_backward", [](auto stream, auto* out, auto* a, auto* b, auto n) {
    cuda::swiglu_backward(stream, out, a, b, out, a, n);
  });
  run("copy", [](auto stream, auto* out, auto* a, auto*, auto n) {
    cuda::copy(stream, reinterpret_cast<fsdp::Float16*>(out), a, n);
  });
  run("fill", [](auto stream, auto* out, auto*, auto*, auto n) { cuda::fill(stream, out, 2, n); });
  run("fill_with", [](auto stream, auto* out, auto*, auto*, auto n) {
    OnDevice<float> value(stream, std::vector<float>{3});
    cuda::fill_with(stream, out, value.data, n);
    value.free();
  });
  run("scale_by", [](auto stream, auto* out, auto*, auto*, auto n) {
    OnDevice<float> factor(stream, std::vector<float>{3});
    cuda::scale_by(stream, out, factor.data, 1, 2, n);
    factor.free();
  });
  run("tree_sum", [](auto stream, auto* out, auto* a, auto* b, auto n) {
    const BFloat16* leaves[] = {a, b};
    cuda::tree_sum(stream, out, leaves, 2, n);
  });
  run("tree_sum of any number", [](auto stream, auto* out, auto* a, auto* b, auto n) {
    const BFloat16* leaves[] = {a, b, b};
    cuda::tree_sum(stream, out, leaves, 3, n);
  });
}

TEST_CASE("an update reaches states of more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kMany, kFew, [](Run& run) {
    auto param = run.make<BFloat16>(1, 1), grad = run.make<BFloat16>(1, 2);
    auto first = run.make<BFloat16>(1, 3), second = run.make<BFloat16>(1, 4);
    const ops::Update how{.rule = ops::Rule::adamw, .lr = 0.01, .step = 1};
    cuda::update<BFloat16>("adamw", run.stream, param, grad, first, second, run.rows, how);
    for (auto* each : {&param, &first, &second}) each->note(run.ends);
  });
}

TEST_CASE("squares of more than 2^31 elements are added", "[kernels][stand-in]") {
  constexpr std::int64_t kPiece = 4096;  // a block's at a time: they meet in the same counters
  check_ends(kMany, kPiece, [](Run& run) {
    auto values = run.make<float>(1, 1);
    OnDevice<std::int64_t> counters(run.stream,
                                    std::vector<std::int64_t>(fsdp::ExactSquareSum::kCounters));
    cuda::add_exact_squares(run.stream, counters.data, values, run.rows);
    append(run.ends, counters.read_back());
    counters.free();
  });
}

TEST_CASE("a number drawn for an element beyond 2^31 is that element's", "[kernels][stand-in]") {
  // Alone, the last elements are drawn from their own place on.
  check_ends(kMany, kFew, [](Run& run) {
    auto out = run.make<BFloat16>(1, 1), other = run.make<BFloat16>(1, 1);
    const auto first = static_cast<std::uint64_t>(kMany - run.rows);
    cuda::draw_uniform<BFloat16>(run.stream, out, run.rows, 7, first, -1, 2);
    cuda::draw_truncated_normal<BFloat16>(run.stream, other, run.rows, 7, first, 0, 1, 0.4);
    out.note(run.ends);
    other.note(run.ends);
  });
}

TEST_CASE("kernels that look for a value find it beyond 2^31", "[kernels][stand-in]") {
  check_ends(kMany, kFew, [](Run& run) {
    auto a = run.make<BFloat16>(1, 1), b = run.make<BFloat16>(1, 1);
    OnDevice<std::int32_t> differ(run.stream, std::vector<std::int32_t>{0});
    OnDevice<std::int32_t> infinite(run.stream, std::vector<std::int32_t>{0});
    for (const std::int32_t expected : {0, 1}) {  // no value is missed, and then one is found
      cuda::equal_bits<BFloat16>(run.stream, differ.data, a, b, run.rows);
      cuda::all_finite<BFloat16>(run.stream, infinite.data, b, run.rows);
      CHECK(differ.read_back().at(0) == expected);
      CHECK(infinite.read_back().at(0) == expected);
      cuda::fill<BFloat16>(run.stream, b + (run.rows - 1), INFINITY, 1);
    }
    differ.free();
    infinite.free();
    b.note(run.ends);
  });
}

TEST_CASE("copies of any strides reach more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kMany, 1, [](Run& run) {
    auto in = run.make<BFloat16>(1, 1), out = run.make<BFloat16>(1, 0);
    const std::int64_t rows = run.rows == 1 ? 1 : 1024, width = run.rows / rows;
    const cuda::StridedShape transposed{
        .dims = 2, .extents = {width, rows}, .to_strides = {rows, 1}, .from_strides = {1, width}};
    cuda::copy_strided<BFloat16, BFloat16>(run.stream, out, in, transposed);
    out.note(run.ends);
  });
}
