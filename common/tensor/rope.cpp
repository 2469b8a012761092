#include "base/fixed_math.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

#include <numbers>

namespace fsdp::ops {
namespace {

double scaled(double frequency, const RopeScaling& scaling) {
  const auto& [factor, low, high, original] = scaling;
  if (!scaling.is_on()) return frequency;
  const double turns = static_cast<double>(original) * frequency / (2 * std::numbers::pi);
  if (turns < low) return frequency / factor;
  if (turns > high) return frequency;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

void rope_tables(const Tensor& cos, const Tensor& sin, double theta, const RopeScaling& scaling) {
  Operands args("rope_tables");
  args.expect_dims("cos", cos, 2);
  const std::int64_t positions = cos.size(0), pairs = cos.size(1);
  args.expect("cos", cos, {positions, pairs}).expect("sin", sin, {positions, pairs});
  FSDP_CHECK(args.dtype() == wide_of(args.dtype()),
             "rope_tables: the tables are {}, but must be float32 or float64",
             name_of(args.dtype()));
  if (!args.device().host_can_read() && args.device().has_data()) {  // once for each model
    const AllocationScope as_temp(MemoryKind::temp);
    const Tensor host_cos = Tensor::empty(cos.shape(), cos.dtype(), kCpu);
    const Tensor host_sin = Tensor::empty(sin.shape(), sin.dtype(), kCpu);
    rope_tables(host_cos, host_sin, theta, scaling);
    copy(cos, host_cos);
    return copy(sin, host_sin);
  }
  args.compute_each(20, 2, cos.numel(), [&]<class T>(T) {
    T* c = cos.data<T>();
    T* s = sin.data<T>();
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double frequency =
          scaled(fixed::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs)), scaling);
      for (std::int64_t t = 0; t < positions; ++t) {
        const auto [sine, cosine] = fixed::sin_cos(static_cast<double>(t) * frequency);
        c[t * pairs + i] = static_cast<T>(cosine);
        s[t * pairs + i] = static_cast<T>(sine);
      }
    }
  });
}

void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  Operands args("rope");
  args.expect_dims("x", x, 4).expect_dims("cos", cos, 2);
  const std::int64_t batch = x.size(0), length = x.size(1), heads = x.size(2), width = x.size(3);
  const std::int64_t pairs = width / 2, positions = cos.size(0);
  FSDP_CHECK(width % 2 == 0, "rope: the head width {} must be even", width);
  FSDP_CHECK(length <= positions, "rope: the sequence has {} positions, but the tables cover {}",
             length, positions);
  args.expect("x", x, {batch, length, heads, width});
  args.expect_wide("cos", cos, {positions, pairs}).expect_wide("sin", sin, {positions, pairs});
  if (is_accelerated(args.device())) return accelerated<rope>(x, cos, sin, inverse);
  args.compute(costs::rope(x.numel(), args.size()), [&]<class T>(T) {
    T* values = x.data<T>();
    using W = Wide<T>;
    const W* c = cos.data<W>();
    const W* s = sin.data<W>();
    const simd::Vec<T> sign = simd::splat<T>(inverse ? -1 : 1);
    parallel_ranges(batch * length, row_grain(heads * width),
                    [=](std::int64_t begin, std::int64_t end, std::byte*) {
                      for (std::int64_t r = begin; r < end; ++r) {
                        const W* row_cos = c + (r % length) * pairs;
                        const W* row_sin = s + (r % length) * pairs;
                        for (std::int64_t h = 0; h < heads; ++h) {
                          T* first = values + (r * heads + h) * width;
                          T* second = first + pairs;
                          simd::for_lanes<T>(pairs, [=](std::int64_t i, auto count) {
                            const auto cv = simd::load_n<W>(row_cos + i, count);
                            const auto sv = simd::load_n<W>(row_sin + i, count) * sign;
                            const auto a = simd::load_n<T>(first + i, count);
                            const auto b = simd::load_n<T>(second + i, count);
                            simd::store_n<T>(first + i, a * cv - b * sv, count);
                            simd::store_n<T>(second + i, b * cv + a * sv, count);
                          });
                        }
                      }
                    });
  });
}

}  // namespace fsdp::ops
