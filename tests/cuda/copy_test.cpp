// The kernels of tensor/cuda/copy.cu have the CPU's bits, between all formats.
#include "tensor/cuda/copy.h"

#include "cuda/bits.h"

#include <limits>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Shape;
using fsdp::Tensor;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

/// Values of T that every other format can take. Of floats, those that round and those that
/// overflow a smaller format, unless `fits` asks for whole numbers of 16 bits at most.
template <class T>
std::vector<T> to_convert(std::int64_t n, bool fits) {
  std::vector<T> result;
  if constexpr (std::is_integral_v<T>) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto index = 2 * static_cast<std::uint64_t>(i);
      const std::uint64_t high = fsdp::random_word(7, index), low = fsdp::random_word(7, index + 1);
      // From 64 bits down to one, so that few and many bits are lost.
      result.push_back(static_cast<T>(static_cast<std::int64_t>(high << 32U | low) >> (i % 64)));
    }
    // To bfloat16, two roundings by way of float32 would end below.
    if (n > 2) result[2] = 0x01010001;
  } else {
    using Wide = fsdp::Wide<T>;
    for (std::int64_t i = 0; i < n; ++i) {
      result.push_back(T(static_cast<Wide>(rough_value(i, 7) * (fits ? 1000 : 1))));
    }
    const double halfway[] = {65504,     65519.996, 65520,   -1e30,     0x1.01p0, 0x1.03p0,
                              0x1.004p0, 0x1.00cp0, 0x1p-24, 0x1.8p-25, 0x1p-25,  0x1p-130};
    for (std::size_t i = 0; !fits && i < std::size(halfway) && i < result.size(); ++i) {
      result[i] = T(static_cast<Wide>(halfway[i]));
    }
    if (!fits && n > 20) result[20] = T(std::numeric_limits<Wide>::infinity());
  }
  return result;
}

template <class To, class From>
void check_cast(std::int64_t n) {
  INFO("from " << fsdp::name_of(fsdp::dtype_of<From>()) << " to "
               << fsdp::name_of(fsdp::dtype_of<To>()) << ", n = " << n);
  const bool fits = std::is_integral_v<To>;
  const std::vector<From> from = to_convert<From>(n, fits);
  const Tensor expected = Tensor::empty({n}, fsdp::dtype_of<To>());
  ops::copy(expected, on_cpu(from, {n}));
  for (std::size_t round = 0; round < 3; ++round) {
    INFO("round " << round);
    const Outputs outputs = run_in_turn(round, [&](cudaStream_t stream) {
      DeviceValues<From> in(stream, from, round == 1 ? 1 : 0);
      DeviceValues<To> out(stream, std::vector<To>(from.size(), To(1.0F)), round == 2 ? 1 : 0);
      cuda::copy(stream, out.data(), in.data(), n);
      in.drop();
      return Outputs{out.take({n})};
    });
    CHECK(ops::equal_bits(outputs[0], expected));
  }
}

template <class T>
void check_filled(double value) {
  const std::int64_t n = 301;
  INFO(fsdp::name_of(fsdp::dtype_of<T>()) << " of " << value);
  check_same_bits<T>(
      {{std::vector<T>(static_cast<std::size_t>(n), T(0.0F)), {n}}},
      [=](const Tensors& t) { ops::fill(t[0], value); },
      [=](cudaStream_t s, const Pointers<T>& p) { cuda::fill(s, p[0], value, n); });
}

/// What the kernel sets its flag to for `values`, which begin `skip` elements late.
template <class T, class Kernel>
std::int32_t flag_of(std::size_t round, const std::vector<T>& values, std::int64_t skip,
                     Kernel kernel) {
  const Outputs outputs = run_in_turn(round, [&](cudaStream_t stream) {
    DeviceValues<std::int32_t> flag(stream, {0}, 0);
    DeviceValues<T> on_device(stream, values, skip);
    kernel(stream, flag.data(), on_device.data());
    on_device.drop();
    return Outputs{flag.take({1})};
  });
  return outputs[0].template to_vector<std::int32_t>()[0];
}

}  // namespace

TEMPLATE_TEST_CASE("casts on CUDA memory have the CPU's bits, between all formats", "[kernels]",
                   float, BFloat16, Float16, std::int32_t, std::int64_t) {
  for (const std::int64_t n : {0, 1, 1029}) {
    check_cast<TestType, float>(n);
    check_cast<TestType, BFloat16>(n);
    check_cast<TestType, Float16>(n);
    check_cast<TestType, std::int32_t>(n);
    check_cast<TestType, std::int64_t>(n);
  }
}

TEST_CASE("every 16-bit float is widened on CUDA memory as on the CPU", "[kernels]") {
  const auto check_all = []<class T>(T) {
    std::vector<T> all;
    for (unsigned bits = 0; bits < 0x10000; bits += 3) {
      T value;
      value.bits = static_cast<std::uint16_t>(bits);
      if (std::isnan(static_cast<float>(value))) continue;
      all.push_back(value);
    }
    const auto n = static_cast<std::int64_t>(all.size());
    const Tensor expected = Tensor::empty({n});
    ops::copy(expected, on_cpu(all, {n}));
    const Outputs outputs = run_in_turn(0, [&](cudaStream_t stream) {
      DeviceValues<T> in(stream, all, 0);
      DeviceValues<float> out(stream, std::vector<float>(all.size()), 0);
      cuda::copy(stream, out.data(), in.data(), n);
      in.drop();
      return Outputs{out.take({n})};
    });
    CHECK(ops::equal_bits(outputs[0], expected));
  };
  check_all(BFloat16{});
  check_all(Float16{});
}

TEMPLATE_TEST_CASE("a NaN stays one in a cast on CUDA memory", "[kernels]", BFloat16, Float16) {
  const Outputs outputs = run_in_turn(1, [&](cudaStream_t stream) {
    DeviceValues<float> in(stream, {NAN, -NAN, 1}, 0);
    DeviceValues<TestType> out(stream, std::vector<TestType>(3, TestType(0.0F)), 0);
    cuda::copy(stream, out.data(), in.data(), 3);
    cuda::copy(stream, in.data(), out.data(), 3);
    out.drop();
    return Outputs{in.take({3})};
  });
  const auto values = outputs[0].to_vector<float>();
  CHECK(std::isnan(values[0]));
  CHECK(std::isnan(values[1]));
  CHECK(values[2] == 1);
}

TEMPLATE_TEST_CASE("fill on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16, Float16,
                   std::int32_t, std::int64_t) {
  check_filled<TestType>(0);
  check_filled<TestType>(-3.7);
  check_filled<TestType>(1.0 + 0x1.000001p-9);  // rounding to float32 first would be a tie
}

TEMPLATE_TEST_CASE("strided copies on CUDA memory take the CPU's elements", "[kernels]", float,
                   Float16, std::int64_t) {
  // A transposed source, and a target within larger rows, whose other elements stay.
  const std::vector<float> from = to_convert<float>(5 * 3 * 7, true);
  const std::vector<TestType> before = to_convert<TestType>(7 * 3 * 12, false);
  const Tensor source = on_cpu(from, {5, 3, 7}).transpose(0, 2);
  const Tensor expected = on_cpu(before, {7, 3, 12});
  const Tensor target = expected.narrow(2, 4, 5);
  ops::copy(target, source);
  // A scalar: the last element of the source, to the first of the target's rows.
  ops::copy(expected.view({7 * 3 * 12}).narrow(0, 0, 1).view({}),
            on_cpu(from, {5 * 3 * 7}).narrow(0, 5 * 3 * 7 - 1, 1).view({}));
  cuda::StridedShape shape;
  shape.dims = 3;
  for (std::size_t d = 0; d < 3; ++d) {
    shape.extents[d] = target.shape()[d];
    shape.to_strides[d] = target.strides()[d];
    shape.from_strides[d] = source.strides()[d];
  }
  for (std::size_t round = 0; round < 3; ++round) {
    const Outputs outputs = run_in_turn(round, [&](cudaStream_t stream) {
      DeviceValues<float> in(stream, from, 0);
      DeviceValues<TestType> out(stream, before, 0);
      cuda::copy_strided(stream, out.data() + target.offset(), in.data(), shape);
      cuda::copy_strided(stream, out.data(), in.data() + from.size() - 1, cuda::StridedShape{});
      in.drop();
      return Outputs{out.take({7, 3, 12})};
    });
    CHECK(ops::equal_bits(outputs[0], expected));
  }
}

TEMPLATE_TEST_CASE("equal_bits on CUDA memory finds a single bit", "[kernels]", BFloat16, float,
                   std::int64_t) {
  for (const std::int64_t n : {1, 301}) {
    const auto values = to_convert<TestType>(n, false);
    for (const std::int64_t skip : {0, 1, 2}) {
      for (const std::int64_t place : {std::int64_t{-1}, std::int64_t{0}, n / 2, n - 1}) {
        auto others = values;
        if (place >= 0) {
          reinterpret_cast<unsigned char*>(&others[static_cast<std::size_t>(place)])[1] ^= 0x40;
        }
        const std::int32_t flag =
            flag_of(static_cast<std::size_t>(n), values, skip % 2,
                    [&](cudaStream_t stream, std::int32_t* differ, const TestType* a) {
                      DeviceValues<TestType> b(stream, others, skip / 2);
                      cuda::equal_bits(stream, differ, a, b.data(), n);
                      b.drop();
                    });
        INFO("n = " << n << ", skip = " << skip << ", place = " << place);
        CHECK(flag == (place >= 0 ? 1 : 0));
      }
    }
  }
}

TEMPLATE_TEST_CASE("all_finite on CUDA memory finds a single value", "[kernels]", float, BFloat16,
                   Float16) {
  const std::int64_t n = 1029;
  auto values = rough<TestType>(n, 1);
  values[3] = TestType(65504.0F);  // large, yet finite
  std::size_t round = 0;
  for (const std::int64_t skip : {0, 1}) {
    for (const float bad : {1.0F, NAN, INFINITY, -INFINITY}) {
      for (const std::int64_t place : {std::int64_t{0}, n / 2, n - 1}) {
        auto others = values;
        others[static_cast<std::size_t>(place)] = TestType(bad);
        const std::int32_t flag =
            flag_of(round++, others, skip,
                    [&](cudaStream_t stream, std::int32_t* found, const TestType* a) {
                      cuda::all_finite(stream, found, a, n);
                    });
        INFO("skip = " << skip << ", bad = " << bad << ", place = " << place);
        CHECK(flag == (bad == 1 ? 0 : 1));
      }
    }
  }
}
