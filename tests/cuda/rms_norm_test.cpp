// The kernels of tensor/cuda/rms_norm.cu against the CPU's.
#include "tensor/cuda/rms_norm.h"

#include "cuda/few_plans.h"

#include <cmath>
#include <span>
#include <vector>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::DType;
using fsdp::Float16;
using fsdp::Tensor;
namespace ops = fsdp::ops;

namespace {

constexpr double kEps = 1e-5;

struct Rows {
  std::int64_t rows, width, skip;
};
/// A part of a warp's four elements a lane, more of them, a block a row, whole fours of that; more
/// rows than blocks of the weight's gradient take at once.
const std::vector<Rows>& some_rows() {
  static const std::vector<Rows> all = {{1, 1, 0},    {3, 31, 1},    {33, 64, 0},
                                        {2, 130, 2},  {5, 257, 0},   {2, 1029, 0},
                                        {2, 1032, 0}, {1100, 20, 0}, {5, 1028, 0}};
  return all;
}

template <class T>
struct Inputs {
  std::vector<T> x, weight, dout, held, held_weight;
  std::vector<float> rstd;
  explicit Inputs(const Rows& s)
      : x(values<T>(s.rows * s.width, 1)),
        weight(values<T>(s.width, 2)),
        dout(values<T>(s.rows * s.width, 3)),
        held(values<T>(s.rows * s.width, 4)),
        held_weight(values<T>(s.width, 5)) {
    const Tensor out = Tensor::empty({s.rows, s.width}, fsdp::dtype_of<T>());
    const Tensor factors = Tensor::empty({s.rows}, DType::float32);
    ops::rms_norm(out, factors, on_cpu(x, {s.rows, s.width}), on_cpu(weight, {s.width}), kEps);
    rstd = factors.template to_vector<float>();
  }
};

/// For the sums of so many parts of the rows; what a kernel has not written is not a number.
class Scratch {
 public:
  Scratch(cudaStream_t stream, std::int64_t parts, std::int64_t width)
      : n_(static_cast<std::size_t>(parts * ((width + 3) / 4 * 4))),
        floats_(stream, std::vector<float>(n_ + 1, NAN)) {}
  std::span<std::byte> bytes() {
    return {reinterpret_cast<std::byte*>(floats_.data), n_ * sizeof(float)};
  }
  void drop() { floats_.free(); }

 private:
  std::size_t n_;
  OnDevice<float> floats_;
};

template <class T>
void check_forward(const Rows& s) {
  INFO(s.rows << " rows of " << s.width << ", skip " << s.skip);
  const Inputs<T> in(s);
  const Tensor out = Tensor::empty({s.rows, s.width}, fsdp::dtype_of<T>());
  const Tensor rstd = Tensor::empty({s.rows}, DType::float32);
  ops::rms_norm(out, rstd, on_cpu(in.x, {s.rows, s.width}), on_cpu(in.weight, {s.width}), kEps);
  const Outputs outputs = in_plans(std::is_same_v<T, float>, [&](cudaStream_t stream) {
    DeviceValues<T> y(stream, in.held, s.skip), x(stream, in.x, s.skip), w(stream, in.weight, 0);
    DeviceValues<float> factors(stream, std::vector<float>(in.rstd.size()), 0);
    fsdp::cuda::rms_norm(stream, y.data(), factors.data(), x.data(), w.data(), s.rows, s.width,
                         kEps);
    x.drop();
    w.drop();
    return Outputs{y.take({s.rows, s.width}), factors.take({s.rows})};
  });
  CHECK(largest_error(outputs[0], out) <= tolerance<T>());
  CHECK(largest_error(outputs[1], rstd) <= 1e-6);
}

/// @param in_place  the sum lies over y
template <class T>
void check_add_forward(const Rows& s, bool in_place) {
  INFO(s.rows << " rows of " << s.width << ", skip " << s.skip << ", in place " << in_place);
  const Inputs<T> in(s);
  const Tensor out = Tensor::empty({s.rows, s.width}, fsdp::dtype_of<T>());
  const Tensor sum = Tensor::empty({s.rows, s.width}, fsdp::dtype_of<T>());
  const Tensor rstd = Tensor::empty({s.rows}, DType::float32);
  ops::add(sum, on_cpu(in.x, {s.rows, s.width}), on_cpu(in.dout, {s.rows, s.width}));
  ops::rms_norm(out, rstd, sum, on_cpu(in.weight, {s.width}), kEps);
  const Outputs outputs = in_plans(std::is_same_v<T, float>, [&](cudaStream_t stream) {
    DeviceValues<T> to(stream, in.held, s.skip), x(stream, in.x, s.skip), w(stream, in.weight, 0);
    DeviceValues<T> y(stream, in.dout, 0), apart(stream, in.held, s.skip);
    DeviceValues<float> factors(stream, std::vector<float>(in.rstd.size()), 0);
    DeviceValues<T>& total = in_place ? y : apart;
    fsdp::cuda::add_rms_norm(stream, to.data(), factors.data(), total.data(), x.data(), y.data(),
                             w.data(), s.rows, s.width, kEps);
    x.drop();
    w.drop();
    (in_place ? apart : y).drop();
    return Outputs{to.take({s.rows, s.width}), factors.take({s.rows}),
                   total.take({s.rows, s.width})};
  });
  CHECK(largest_error(outputs[0], out) <= tolerance<T>());
  CHECK(largest_error(outputs[1], rstd) <= 1e-6);
  CHECK(ops::equal_bits(outputs[2], sum));
}

/// @param in_place  dx lies over dout
/// @param parts  for which there is scratch
template <class T>
void check_backward(const Rows& s, bool add, bool in_place, std::int64_t parts) {
  INFO(s.rows << " rows of " << s.width << ", skip " << s.skip << ", add " << add << ", " << parts
              << " parts");
  const Inputs<T> in(s);
  const auto mode = add ? ops::Write::add : ops::Write::set;
  const Tensor dweight = on_cpu(in.held_weight, {s.width});
  const Tensor dx = on_cpu(in_place ? in.dout : in.held, {s.rows, s.width});
  ops::rms_norm_backward(dx, mode, dweight, mode, in_place ? dx : on_cpu(in.dout, dx.shape()),
                         on_cpu(in.x, dx.shape()), on_cpu(in.weight, {s.width}),
                         on_cpu(in.rstd, {s.rows}));
  // The barriers are the same whether it sets or adds.
  const Outputs outputs = in_plans(std::is_same_v<T, float> && !add, [&](cudaStream_t stream) {
    DeviceValues<T> to(stream, in_place ? in.dout : in.held, s.skip), dw(stream, in.held_weight, 0),
        dy(stream, in.dout, s.skip), x(stream, in.x, s.skip), w(stream, in.weight, 0);
    DeviceValues<float> rstd(stream, in.rstd, 0);
    Scratch scratch(stream, parts, s.width);
    fsdp::cuda::rms_norm_backward(stream, to.data(), add, dw.data(), add,
                                  in_place ? to.data() : dy.data(), x.data(), w.data(), rstd.data(),
                                  s.rows, s.width, scratch.bytes());
    scratch.drop();
    dy.drop();
    x.drop();
    w.drop();
    rstd.drop();
    return Outputs{to.take({s.rows, s.width}), dw.take({s.width})};
  });
  CHECK(largest_error(outputs[0], dx) <= tolerance<T>());
  CHECK(largest_error(outputs[1], dweight) <= tolerance<T>());
}

}  // namespace

TEMPLATE_TEST_CASE("rms_norm on CUDA memory gives the CPU's values", "[kernels]", float, BFloat16,
                   Float16) {
  for (const Rows& s : some_rows()) check_forward<TestType>(s);
}

TEMPLATE_TEST_CASE("add_rms_norm on CUDA memory gives the CPU's sum and its norm", "[kernels]",
                   float, BFloat16, Float16) {
  for (const Rows& s : some_rows()) {
    for (const bool in_place : {false, true}) check_add_forward<TestType>(s, in_place);
  }
}

TEMPLATE_TEST_CASE("rms_norm's backward on CUDA memory sets, adds, and works in place", "[kernels]",
                   float, BFloat16, Float16) {
  for (const Rows& s : some_rows()) {
    for (const std::int64_t parts : {0, 2, 512}) {
      check_backward<TestType>(s, false, s.skip == 0, parts);
      check_backward<TestType>(s, true, false, parts);
    }
  }
}

TEST_CASE("the bits of rms_norm and its gradients do not depend on addresses", "[kernels]") {
  for (const std::int64_t width : {264, 1032}) {
    const Rows s{3, width, 0};
    const Inputs<BFloat16> in(s);
    const auto at = [&](std::int64_t skip, std::int64_t parts) {
      return in_plans(false, [&](cudaStream_t stream) {
        const std::vector<BFloat16> fresh(in.x.size());
        DeviceValues<BFloat16> y(stream, fresh, skip), dx(stream, fresh, skip),
            dw(stream, in.held_weight, skip), x(stream, in.x, skip), w(stream, in.weight, skip),
            dy(stream, in.dout, skip);
        DeviceValues<float> rstd(stream, in.rstd, 0);
        Scratch scratch(stream, parts, width);
        fsdp::cuda::rms_norm(stream, y.data(), rstd.data(), x.data(), w.data(), s.rows, width,
                             kEps);
        fsdp::cuda::rms_norm_backward(stream, dx.data(), false, dw.data(), false, dy.data(),
                                      x.data(), w.data(), rstd.data(), s.rows, width,
                                      scratch.bytes());
        scratch.drop();
        x.drop();
        w.drop();
        dy.drop();
        return Outputs{y.take({s.rows, width}), dx.take({s.rows, width}), dw.take({width}),
                       rstd.take({s.rows})};
      });
    };
    for (const std::int64_t parts : {0, 512}) {
      const Outputs aligned = at(0, parts), elsewhere = at(1, parts);
      for (std::size_t i = 0; i < aligned.size(); ++i) {
        CHECK(ops::equal_bits(aligned[i], elsewhere[i]));
      }
    }
  }
}

TEST_CASE("a gradient of rms_norm that is not needed is not computed", "[kernels]") {
  const Rows s{3, 33, 0};
  const Inputs<float> in(s);
  for (const bool of_weight : {false, true}) {
    const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
      DeviceValues<float> out(stream, in.held, 0), dy(stream, in.dout, 0), x(stream, in.x, 0),
          w(stream, in.weight, 0), rstd(stream, in.rstd, 0);
      fsdp::cuda::rms_norm_backward(stream, of_weight ? nullptr : out.data(), false,
                                    of_weight ? out.data() : nullptr, false, dy.data(), x.data(),
                                    w.data(), rstd.data(), s.rows, s.width);
      dy.drop();
      x.drop();
      w.drop();
      rstd.drop();
      return Outputs{out.take({s.rows, s.width})};
    });
    const Tensor result = Tensor::empty(
        of_weight ? fsdp::Shape{s.width} : fsdp::Shape{s.rows, s.width}, DType::float32);
    ops::rms_norm_backward(of_weight ? Tensor() : result, ops::Write::set,
                           of_weight ? result : Tensor(), ops::Write::set,
                           on_cpu(in.dout, {s.rows, s.width}), on_cpu(in.x, {s.rows, s.width}),
                           on_cpu(in.weight, {s.width}), on_cpu(in.rstd, {s.rows}));
    std::vector<float> expected = in.held;
    const auto computed = result.to_vector<float>();
    std::copy(computed.begin(), computed.end(), expected.begin());
    CHECK(largest_error(outputs[0], on_cpu(expected, {s.rows, s.width})) <= 4e-6);
  }
}

TEST_CASE("a row of rms_norm has the same bits at any address", "[kernels]") {
  const Rows s{1, 1029, 0};
  const Inputs<BFloat16> in(s);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    Outputs all;
    for (const std::int64_t skip : {0, 1, 2, 3}) {
      DeviceValues<BFloat16> y(stream, in.held, skip), x(stream, in.x, skip),
          w(stream, in.weight, skip);
      DeviceValues<float> rstd(stream, in.rstd, 0);
      fsdp::cuda::rms_norm(stream, y.data(), rstd.data(), x.data(), w.data(), s.rows, s.width,
                           kEps);
      x.drop();
      w.drop();
      rstd.drop();
      all.push_back(y.take({s.rows, s.width}));
    }
    return all;
  });
  for (const Tensor& each : outputs) CHECK(ops::equal_bits(each, outputs[0]));
}
