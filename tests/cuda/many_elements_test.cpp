// Operands of more than 2^31 elements. Of each grid only the ends run, on memory that takes no page
// before it is written: an index that 32 bits do not hold leads out of the operand, or to its
// beginning. What the last elements become is what the same kernel makes of them alone.
#include "cuda/indices.h"
#include "cuda/kernels.h"
#include "tensor/cuda/attention.h"
#include "tensor/cuda/copy.h"
#include "tensor/cuda/cross_entropy.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/embedding.h"
#include "tensor/cuda/init.h"
#include "tensor/cuda/optimizer.h"
#include "tensor/cuda/reductions.h"
#include "tensor/cuda/rms_norm.h"
#include "tensor/cuda/rope.h"
#include "tensor/cuda/scalar.h"
#include "tensor/cuda/swiglu.h"
#include "tensor/cuda/tree_sum.h"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

using namespace cuda_test;
using fsdp::BFloat16;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

/// What the threads of a pointwise kernel take at a time: at most 4096 blocks of 256, four each.
constexpr std::int64_t kSweep = std::int64_t{4} * 256 * 4096;
/// Beyond 2^31, and so that the last elements are the last block's.
constexpr std::int64_t kMany = (std::int64_t{1} << 31) + kSweep;

template <class T>
void append(std::vector<std::byte>& all, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

/// `n` elements, of which the last ones are values(…, salt), and all others 0; with salt 0 all are.
template <class T>
class Vast {
 public:
  Vast(cudaStream_t stream, std::int64_t n, std::int64_t last, std::int64_t salt)
      : n_(n),
        end_(stream,
             salt == 0 ? std::vector<T>(static_cast<std::size_t>(last)) : values<T>(last, salt)) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(n) * sizeof(T)));
    copy(data_ + (n - last), end_.data);
  }
  Vast(const Vast&) = delete;
  Vast& operator=(const Vast&) = delete;
  ~Vast() {
    end_.free();
    cudaFree(data_);
  }
  operator T*() { return data_; }  // NOLINT(google-explicit-constructor): as kernels take it

  /// Appends the bytes that the last elements have now.
  void note(std::vector<std::byte>& all) {
    copy(end_.data, data_ + (n_ - static_cast<std::int64_t>(end_.n)));
    append(all, end_.read_back());
  }

 private:
  void copy(T* to, const T* from) {
    check(cudaMemcpyAsync(to, from, end_.n * sizeof(T), cudaMemcpyDeviceToDevice, end_.stream));
    check(cudaStreamSynchronize(end_.stream));
  }
  std::int64_t n_;
  OnDevice<T> end_;
  T* data_ = nullptr;
};

Plan vast_plan() {
  Plan plan = requested_or(Plan{});
  plan.devices = 1;
  plan.device_nbytes = std::size_t{1} << 37;
  plan.runs_ends_only = true;
  return plan;
}

/// One run: makes operands of so many rows, whose last ones alone have values.
class Run {
 public:
  Run(cudaStream_t on, std::int64_t all, std::int64_t last) : stream(on), rows(all), few_(last) {}

  template <class T>
  Vast<T> make(std::int64_t width, std::int64_t salt) const {
    return Vast<T>(stream, rows * width, few_ * width, salt);
  }

  cudaStream_t stream;
  std::int64_t rows;
  std::vector<std::byte> ends = {};

 private:
  std::int64_t few_;
};

/// Runs `program` on `rows` rows and on the last `few` of them alone: both must come to the same.
void check_ends(std::int64_t rows, std::int64_t few, const std::function<void(Run&)>& program) {
  std::vector<std::vector<std::byte>> ends;
  for (const std::int64_t n : {rows, few}) {
    Session session(vast_plan());
    const cudaStream_t stream = new_stream();
    Run run(stream, n, few);
    program(run);
    check(cudaStreamDestroy(stream));
    CHECK_NOTHROW(session.finish());
    ends.push_back(run.ends);
  }
  CHECK(!ends[0].empty());
  CHECK((ends[0] == ends[1]));  // and no bytes are printed
}

// The last block of a pointwise kernel has 1024 elements; that of a kernel over short rows 8 rows,
// and over long ones a row.
constexpr std::int64_t kFew = 1000;
constexpr std::int64_t kShort = 64, kShortRows = 8, kManyShort = kMany / kShort;
constexpr std::int64_t kLong = 1 << 17, kManyLong = kMany / kLong;
constexpr std::int64_t kOfParts = 8192;  // the longest rows of which 512 blocks sum parts

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
  run("scale_by", [](auto stream, auto* out, auto*, auto*, auto n) {
    OnDevice<float> factor(stream, std::vector<float>{3});
    cuda::scale_by(stream, out, factor.data, 1, 2, n);
    factor.free();
  });
  run("tree_sum", [](auto stream, auto* out, auto* a, auto* b, auto n) {
    const BFloat16* leaves[] = {a, b};
    cuda::tree_sum(stream, out, leaves, 2, n);
  });
  run("update", [](auto stream, auto* out, auto* a, auto* b, auto n) {
    const ops::Update how{.rule = ops::Rule::sgd, .lr = 0.01, .step = 1};
    cuda::update<BFloat16>("sgd", stream, out, a, b, nullptr, n, how);
  });
}

TEST_CASE("a number drawn for an element beyond 2^31 is that element's", "[kernels][stand-in]") {
  // Alone, the last elements are drawn from their own place on.
  check_ends(kMany, kFew, [](Run& run) {
    auto out = run.make<BFloat16>(1, 1);
    cuda::draw_uniform<BFloat16>(run.stream, out, run.rows, 7,
                                 static_cast<std::uint64_t>(kMany - run.rows), -1, 2);
    out.note(run.ends);
  });
}

TEST_CASE("kernels that look for a value find it beyond 2^31", "[kernels][stand-in]") {
  check_ends(kMany, kFew, [](Run& run) {
    auto a = run.make<BFloat16>(1, 1), b = run.make<BFloat16>(1, 2);
    OnDevice<std::int32_t> found(run.stream, std::vector<std::int32_t>{0});
    cuda::equal_bits<BFloat16>(run.stream, found.data, a, b, run.rows);
    CHECK(found.read_back().at(0) != 0);
    found.free();
    b.note(run.ends);
  });
}

TEST_CASE("kernels over rows reach more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kManyShort, kShortRows, [](Run& run) {
    auto out = run.make<BFloat16>(kShort, 1);
    OnDevice<BFloat16> row(run.stream, values<BFloat16>(kShort, 2));
    cuda::add_row<BFloat16>(run.stream, out, row.data, run.rows, kShort);
    row.free();
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
      auto logits = each.make<BFloat16>(width, 1);
      auto lse = each.make<float>(1, 2);
      std::vector<std::int32_t> only_last(static_cast<std::size_t>(each.rows), ops::kIgnoredTarget);
      only_last.back() = 0;
      OnDevice<std::int32_t> targets(each.stream, only_last);
      OnDevice<float> loss(each.stream, std::vector<float>{0});
      DeviceError error(each.stream);
      cuda::fill<float>(each.stream, lse, 0, each.rows);
      cuda::cross_entropy<BFloat16>(each.stream, loss.data, lse, logits, targets.data, each.rows,
                                    width, error.data());
      error.expect_none();
      append(each.ends, loss.read_back());
      loss.free();
      targets.free();
      lse.note(each.ends);
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
      const std::int64_t rows = each.rows == kColumns ? 1 : 16, width = each.rows / rows;
      Vast<BFloat16> sums(each.stream, width, kColumns, 0);
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
    out.free();
    tokens.free();
    table.note(run.ends);
  });
}

TEST_CASE("an embedding's gradient may come from more than 2^31 elements", "[kernels][stand-in]") {
  check_ends(kMany, kFew, [](Run& run) {
    const std::int64_t rows = run.rows == kFew ? 1 : 64, width = run.rows / rows;
    auto dout = run.make<BFloat16>(1, 1);
    Vast<BFloat16> dtable(run.stream, 2 * width, kFew, 0);
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
  constexpr std::int64_t kHeads = 2, kWidth = 8, kOfBatch = kHeads * kWidth;
  check_ends(kMany / kOfBatch, 1, [](Run& run) {
    auto x = run.make<BFloat16>(kOfBatch, 1);
    OnDevice<float> cos(run.stream, values<float>(kWidth / 2, 2));
    OnDevice<float> sin(run.stream, values<float>(kWidth / 2, 3));
    cuda::rope<BFloat16>(run.stream, x, cos.data, sin.data, false, run.rows, 1, kHeads, kWidth);
    x.note(run.ends);
    cos.free();
    sin.free();
  });
}

TEMPLATE_TEST_CASE("attention reaches more than 2^31 elements", "[kernels][stand-in]", float,
                   BFloat16) {
  constexpr std::int64_t kLength = 16, kHeads = 1, kWidth = 64;
  constexpr std::int64_t kOfQueries = kLength * kHeads * kWidth, kOfKeys = kLength * kWidth;
  check_ends(kMany / kOfQueries + 1, 1, [](Run& run) {
    auto q = run.make<TestType>(kOfQueries, 1), out = run.make<TestType>(kOfQueries, 2);
    auto dout = run.make<TestType>(kOfQueries, 3), dq = run.make<TestType>(kOfQueries, 4);
    auto k = run.make<TestType>(kOfKeys, 5), v = run.make<TestType>(kOfKeys, 6);
    auto dk = run.make<TestType>(kOfKeys, 7), dv = run.make<TestType>(kOfKeys, 8);
    auto lse = run.make<float>(kLength * kHeads, 9);
    const cuda::AttentionExtents extents{.batch = run.rows,
                                         .length = kLength,
                                         .heads = kHeads,
                                         .kv_heads = 1,
                                         .width = kWidth,
                                         .queries = kLength};
    cuda::attention<TestType>(run.stream, out, lse, q, k, v, extents);
    cuda::attention_backward<TestType>(run.stream, dq, dk, dv, dout, out, lse, q, k, v, extents);
    for (auto* each : {&out, &dq, &dk, &dv}) each->note(run.ends);
    lse.note(run.ends);
  });
}
