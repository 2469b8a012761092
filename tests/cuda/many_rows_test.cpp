// Kernels over rows of more than 2^31 elements in all.
#include "cuda/indices.h"
#include "cuda/many_elements.h"
#include "tensor/cuda/attention.h"
#include "tensor/cuda/copy.h"
#include "tensor/cuda/cross_entropy.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/embedding.h"
#include "tensor/cuda/reductions.h"
#include "tensor/cuda/rms_norm.h"
#include "tensor/cuda/rope.h"

#include <cstddef>
#include <functional>
#include <vector>

using namespace cuda_test;
using fsdp::BFloat16;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

// The last block of a kernel over short rows has 8 of them, and over long ones a row.
constexpr std::int64_t kShort = 64, kShortRows = 8, kManyShort = kMany / kShort;
constexpr std::int64_t kLong = 1 << 17, kManyLong = kMany / kLong;
constexpr std::int64_t kOfParts = 8192;  // the longest rows of which 512 blocks sum parts
constexpr std::int64_t kMatrixRows = 1024;

std::vector<std::int32_t> only_last_counts(std::int64_t rows) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), ops::kIgnoredTarget);
  targets.back() = 0;
  return targets;
}

}  // namespace

TEST_CASE("kernels over rows reach more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kManyShort, kShortRows, [](Run& run) {
    auto out = run.make<BFloat16>(kShort, 1);
    OnDevice<BFloat16> row(run.stream, values<BFloat16>(kShort, 2));
    cuda::add_row<BFloat16>(run.stream, out, row.data, run.rows, kShort);
    row.free();
    out.note(run.ends);
  });
  check_ends(kMany, 128, [](Run& run) {  // elements of the last block
    auto out = run.make<BFloat16>(1, 1), row = run.make<BFloat16>(1, 2);
    cuda::add_row<BFloat16>(run.stream, out, row, 1, run.rows);
    out.note(run.ends);
  });
  for (const bool is_long : {false, true}) {
    const std::int64_t width = is_long ? kLong : kShort;
    INFO("rows of " << width);
    const auto run = [&](const char* what, const std::function<void(Run&)>& program) {
      INFO(what);
      check_ends(is_long ? kManyLong : kManyShort, is_long ? 1 : kShortRows, program);
    };
    run("rms_norm", [&](Run& each) {
      auto out = each.make<BFloat16>(width, 1), x = each.make<BFloat16>(width, 2);
      auto rstd = each.make<float>(1, 3);
      OnDevice<BFloat16> weight(each.stream, values<BFloat16>(width, 4));
      cuda::rms_norm<BFloat16>(each.stream, out, rstd, x, weight.data, each.rows, width, 1e-5);
      weight.free();
      out.note(each.ends);
      rstd.note(each.ends);
    });
    run("add_rms_norm", [&](Run& each) {
      auto out = each.make<BFloat16>(width, 1), x = each.make<BFloat16>(width, 2);
      auto sum = each.make<BFloat16>(width, 3);
      auto rstd = each.make<float>(1, 4);
      OnDevice<BFloat16> weight(each.stream, values<BFloat16>(width, 5));
      cuda::add_rms_norm<BFloat16>(each.stream, out, rstd, sum, x, sum, weight.data, each.rows,
                                   width, 1e-5);
      weight.free();
      out.note(each.ends);
      sum.note(each.ends);
      rstd.note(each.ends);
    });
    if (!is_long) continue;  // what adds over all rows would take a minute
    run("rms_norm_backward", [&](Run& each) {
      auto dx = each.make<BFloat16>(width, 1), dout = each.make<BFloat16>(width, 2);
      auto x = each.make<BFloat16>(width, 3);
      auto rstd = each.make<float>(1, 4);
      OnDevice<BFloat16> weight(each.stream, values<BFloat16>(width, 5));
      OnDevice<BFloat16> dweight(each.stream, values<BFloat16>(width, 6));
      cuda::rms_norm_backward<BFloat16>(each.stream, dx, false, dweight.data, false, dout, x,
                                        weight.data, rstd, each.rows, width);
      weight.free();
      dweight.free();
      dx.note(each.ends);
    });
    check_ends(kMany / kOfParts, 1, [&](Run& each) {
      auto dx = each.make<BFloat16>(kOfParts, 1), dout = each.make<BFloat16>(kOfParts, 2);
      auto x = each.make<BFloat16>(kOfParts, 3);
      auto rstd = each.make<float>(1, 4);
      OnDevice<BFloat16> weight(each.stream, values<BFloat16>(kOfParts, 5));
      OnDevice<BFloat16> dweight(each.stream, values<BFloat16>(kOfParts, 6));
      OnDevice<float> scratch(each.stream, std::vector<float>(512 * kOfParts));
      cuda::rms_norm_backward<BFloat16>(
          each.stream, dx, false, dweight.data, false, dout, x, weight.data, rstd, each.rows,
          kOfParts, {reinterpret_cast<std::byte*>(scratch.data), scratch.n * sizeof(float)});
      weight.free();
      append(each.ends, dweight.read_back());
      dweight.free();
      scratch.free();
      dx.note(each.ends);
    });
    run("cross_entropy", [&](Run& each) {
      auto dlogits = each.make<BFloat16>(width, 1), logits = each.make<BFloat16>(width, 2);
      auto losses = each.make<float>(1, 3);
      OnDevice<std::int32_t> targets(each.stream, only_last_counts(each.rows));
      OnDevice<float> loss(each.stream, std::vector<float>{0});
      OnDevice<cuda::CountedRows> counted(each.stream, std::vector<cuda::CountedRows>(1));
      DeviceError error(each.stream);
      cuda::cross_entropy<BFloat16>(each.stream, loss.data, losses, dlogits, 1, counted.data,
                                    logits, targets.data, each.rows, width, error.data());
      error.expect_none();
      append(each.ends, loss.read_back());
      loss.free();
      counted.free();
      targets.free();
      losses.note(each.ends);
      dlogits.note(each.ends);
    });
  }
}

// Of a matrix whose last elements alone are not 0, the sums of the last columns are these elements.
TEST_CASE("sums over rows reach more than 2^31 elements", "[kernels][stand-in]") {
  constexpr std::int64_t kColumns = 16;  // of the last block
  using Make = std::function<void(Run&, BFloat16 * sums, std::int64_t rows, std::int64_t width)>;
  const auto run = [](const char* what, const Make& kernel) {
    INFO(what);
    check_ends(kMany, kColumns, [&](Run& each) {
      const std::int64_t rows = each.rows == kColumns ? 1 : kMatrixRows, width = each.rows / rows;
      Vast<BFloat16> sums(each.stream, width, {width - kColumns}, kColumns, 0);
      kernel(each, sums, rows, width);
      sums.note(each.ends);
    });
  };
  run("sum_rows", [](Run& each, auto* sums, auto rows, auto width) {
    auto in = each.make<BFloat16>(1, 1);
    cuda::sum_rows<BFloat16>(each.stream, sums, in, rows, width, ops::Write::set);
  });
  run("rms_norm_backward", [](Run& each, auto* sums, auto rows, auto width) {
    auto dout = each.make<BFloat16>(1, 1), x = each.make<BFloat16>(1, 2);
    OnDevice<float> rstd(each.stream, std::vector<float>(static_cast<std::size_t>(rows), 0.5F));
    cuda::rms_norm_backward<BFloat16>(each.stream, nullptr, false, sums, false, dout, x, nullptr,
                                      rstd.data, rows, width);
    rstd.free();
  });
}

TEST_CASE("an embedding's table may have more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kManyLong, 1, [](Run& run) {
    auto table = run.make<BFloat16>(kLong, 1);
    const auto last = static_cast<std::int32_t>(run.rows - 1);
    OnDevice<std::int32_t> tokens(run.stream, std::vector<std::int32_t>{last});
    OnDevice<BFloat16> out(run.stream, values<BFloat16>(kLong, 2));
    DeviceError error(run.stream);
    cuda::embedding<BFloat16>(run.stream, out.data, table, tokens.data, 1, kLong, run.rows,
                              error.data());
    error.expect_none();
    const std::vector<BFloat16> row = out.read_back(), expected = values<BFloat16>(kLong, 1);
    CHECK(std::memcmp(row.data(), expected.data(), row.size() * sizeof(BFloat16)) == 0);
    DeviceError error_of_backward(run.stream);
    cuda::embedding_backward<BFloat16>(run.stream, table, out.data, tokens.data, 1, kLong, run.rows,
                                       -1, true, error_of_backward.data());
    error_of_backward.expect_none();
    out.free();
    tokens.free();
    table.note(run.ends);
  });
}

TEST_CASE("an embedding may give more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kManyLong, 1, [](Run& run) {
    auto out = run.make<BFloat16>(kLong, 1);
    OnDevice<BFloat16> table(run.stream, values<BFloat16>(kLong, 2));
    OnDevice<std::int32_t> tokens(run.stream,
                                  std::vector<std::int32_t>(static_cast<std::size_t>(run.rows)));
    DeviceError error(run.stream);
    cuda::embedding<BFloat16>(run.stream, out, table.data, tokens.data, run.rows, kLong, 1,
                              error.data());
    error.expect_none();
    table.free();
    tokens.free();
    out.note(run.ends);
  });
}

TEST_CASE("an embedding's gradient may come from more than 2^31 elements", "[kernels][stand-in]") {
  constexpr std::int64_t kColumns = 1000;  // of the last block
  check_ends(kMany, kColumns, [](Run& run) {
    const std::int64_t rows = run.rows == kColumns ? 1 : kMatrixRows, width = run.rows / rows;
    auto dout = run.make<BFloat16>(1, 1);
    Vast<BFloat16> dtable(run.stream, 2 * width, {2 * width - kColumns}, kColumns, 0);
    std::vector<std::int32_t> last_differs(static_cast<std::size_t>(rows));
    last_differs.back() = 1;
    OnDevice<std::int32_t> tokens(run.stream, last_differs);
    DeviceError error(run.stream);
    cuda::embedding_backward<BFloat16>(run.stream, dtable, dout, tokens.data, rows, width, 2, -1,
                                       true, error.data());
    error.expect_none();
    tokens.free();
    dtable.note(run.ends);
  });
}

TEST_CASE("rotations reach more than 2^31 elements", "[kernels][stand-in]") {
  constexpr std::int64_t kPairs = 4;
  check_ends(kMany / kPairs, 1, [](Run& run) {
    auto x = run.make<BFloat16>(2 * kPairs, 1);
    auto cos = run.make<float>(kPairs, 2), sin = run.make<float>(kPairs, 3);
    cuda::rope<BFloat16>(run.stream, x, cos, sin, false, 1, run.rows, 1, 2 * kPairs);
    x.note(run.ends);
  });
}

TEMPLATE_TEST_CASE("attention reaches more than 2^31 elements", "[kernels][stand-in]", float,
                   BFloat16) {
  constexpr std::int64_t kLength = 16;
  // Of one element, so that lse has as many; tensor cores load those in another way.
  for (const std::int64_t width : {64, 1}) {
    const std::int64_t nbatch = kMany / (kLength * width) + 1;
    INFO("heads of " << width);
    check_ends(nbatch, 1, [&](Run& run) {
      const auto make = [&](std::int64_t salt) {
        return run.make<TestType>(kLength * width, salt);
      };
      auto q = make(1), out = make(2), dout = make(3), dq = make(4);
      auto k = make(5), v = make(6), dk = make(7), dv = make(8);
      auto lse = run.make<float>(kLength, 9);
      const cuda::AttentionExtents extents{.batch = run.rows,
                                           .length = kLength,
                                           .heads = 1,
                                           .kv_heads = 1,
                                           .width = width,
                                           .queries = kLength};
      cuda::attention<TestType>(run.stream, out, lse, q, k, v, extents);
      cuda::attention_backward<TestType>(run.stream, dq, dk, dv, dout, out, lse, q, k, v, extents);
      for (auto* each : {&out, &dq, &dk, &dv}) each->note(run.ends);
      lse.note(run.ends);
    });
  }
}

// Blocks at the ends have the first and the last head. What they make of the last position does not
// depend on how many heads lie between two positions.
TEMPLATE_TEST_CASE("attention reaches more than 2^31 elements of one sequence",
                   "[kernels][stand-in]", float, BFloat16) {
  // Tensor cores have heads side by side in a grid, which ends at 65535. The others have so many
  // that a row of a tile lies beyond 2^31 behind the tile's first one.
  constexpr bool kIsPlain = std::is_same_v<TestType, float>;
  constexpr std::int64_t kLength = kIsPlain ? 64 : 400, kManyHeads = kIsPlain ? 545'000 : 65'535;
  constexpr std::int64_t kWidth = 128;
  check_ends(kManyHeads, 2, [&](Run& run) {
    const std::int64_t heads = run.rows;
    const auto make = [&](std::int64_t positions, std::int64_t salt) {
      const std::int64_t n = positions * heads * kWidth;
      return Vast<TestType>(run.stream, n, {n - heads * kWidth, n - kWidth}, kWidth, salt);
    };
    auto q = make(kLength, 1), out = make(kLength, 2), dout = make(kLength, 3),
         dq = make(kLength, 4);
    auto k = make(kLength, 5), v = make(kLength, 6), dk = make(kLength, 7), dv = make(kLength, 8);
    const auto make_lse = [&](std::int64_t queries) {
      return Vast<float>(run.stream, heads * queries, {queries - 1, heads * queries - 1}, 1, 9);
    };
    auto lse = make_lse(kLength);
    cuda::AttentionExtents extents{.batch = 1,
                                   .length = kLength,
                                   .heads = heads,
                                   .kv_heads = heads,
                                   .width = kWidth,
                                   .queries = kLength};
    cuda::attention<TestType>(run.stream, out, lse, q, k, v, extents);
    cuda::attention_backward<TestType>(run.stream, dq, dk, dv, dout, out, lse, q, k, v, extents);
    for (auto* each : {&out, &dq, &dk, &dv}) each->note(run.ends);
    lse.note(run.ends);

    extents.queries = 4;
    auto last_q = make(extents.queries, 1), last_out = make(extents.queries, 2);
    auto last_lse = make_lse(extents.queries);
    cuda::attention<TestType>(run.stream, last_out, last_lse, last_q, k, v, extents);
    last_out.note(run.ends);
    last_lse.note(run.ends);
  });
}
