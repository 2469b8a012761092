// 16-bit floats, tiles of a warp, and cuBLASLt.
#include "cuda_stand_in/products.h"

#include "base/half_floats.h"
#include "cuda_stand_in/plans.h"

#include <bit>
#include <cmath>

namespace {

std::vector<float> fractions(std::size_t n, int step) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>((static_cast<int>(i) * step) % 23 - 11) / 7;
  }
  return values;
}

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(T(value));
  return result;
}

/// c + a·b for rows of 16, b transposed if so; k ascending, one rounding per term.
template <class T>
std::vector<float> tile_by_definition(std::vector<float> c, const std::vector<T>& a,
                                      const std::vector<T>& b, bool transposed) {
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      float& sum = c[i * 16 + j];
      for (std::size_t k = 0; k < 16; ++k) {
        const T right = b[transposed ? j * 16 + k : k * 16 + j];
        sum = std::fma(static_cast<float>(a[i * 16 + k]), static_cast<float>(right), sum);
      }
    }
  }
  return c;
}

template <class T>
void check_tiles(bool transposed) {
  const auto a = rounded<T>(fractions(256, 5)), b = rounded<T>(fractions(256, 3));
  const auto c = fractions(256, 17);
  const auto out = same_in_every_plan<std::vector<float>>([&] {
    const cudaStream_t stream = new_stream();
    OnDevice<T> left(stream, a), right(stream, b);
    OnDevice<float> sum(stream, c);
    samples::multiply_tile(stream, sum.data, left.data, right.data, transposed);
    auto result = sum.read_back();
    left.free();
    right.free();
    sum.free();
    return result;
  });
  CHECK(out == tile_by_definition(c, a, b, transposed));
}

template <class T>
void check_products() {
  const int m = 5, n = 7, k = 19;
  const auto a = rounded<T>(fractions(5 * 19, 5)), b = rounded<T>(fractions(19 * 7, 3));
  const auto out = same_in_every_plan<std::vector<float>>([&] {
    const cudaStream_t stream = new_stream();
    OnDevice<T> left(stream, a), right(stream, b), result(stream, 35);
    OnDevice<char> workspace(stream, 2048);
    samples::multiply(stream, result.data, left.data, right.data, m, n, k, workspace.data, 2048);
    const std::vector<T> values = result.read_back();
    left.free();
    right.free();
    result.free();
    workspace.free();
    return std::vector<float>(values.begin(), values.end());
  });
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 7; ++j) {
      float sum = 0;
      for (std::size_t p = 19; p-- > 0;) {
        sum = std::fma(static_cast<float>(a[i * 19 + p]), static_cast<float>(b[p * 7 + j]), sum);
      }
      CHECK(out[i * 7 + j] == static_cast<float>(T(sum)));
    }
  }
}

}  // namespace

TEST_CASE("16-bit floats are rounded as the library rounds them") {
  std::vector<float> values = {0.0f, -0.0f, 1.0f, 65504.0f, 65520.0f, 1e-8f, 3e38f, INFINITY};
  for (int i = 0; i < 1000; ++i)
    values.push_back(std::ldexp(1.0f + static_cast<float>(i) / 999, i % 60 - 30));
  const int n = static_cast<int>(values.size());
  const auto out = same_in_every_plan<std::vector<unsigned short>>([&] {
    const cudaStream_t stream = new_stream();
    OnDevice<float> in(stream, values);
    OnDevice<__half> halves(stream, values.size());
    OnDevice<__nv_bfloat16> bfloats(stream, values.size());
    samples::round_to_half(stream, halves.data, in.data, n);
    samples::round_to_bfloat16(stream, bfloats.data, in.data, n);
    std::vector<unsigned short> bits;
    for (const __half each : halves.read_back()) bits.push_back(__half_as_ushort(each));
    for (const __nv_bfloat16 each : bfloats.read_back()) bits.push_back(__bfloat16_as_ushort(each));
    in.free();
    halves.free();
    bfloats.free();
    return bits;
  });
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(out[i] == fsdp::Float16(values[i]).bits);
    CHECK(out[values.size() + i] == fsdp::BFloat16(values[i]).bits);
  }
}

TEST_CASE("every 16-bit float comes back from float unchanged, and NaN has one form") {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<unsigned short>(bits);
    const float from_half = __half2float(__ushort_as_half(narrow));
    const float from_bfloat = __bfloat162float(__ushort_as_bfloat16(narrow));
    REQUIRE(__half_as_ushort(__float2half(from_half)) == (std::isnan(from_half) ? 0x7FFF : narrow));
    REQUIRE(__bfloat16_as_ushort(__float2bfloat16(from_bfloat)) ==
            (std::isnan(from_bfloat) ? 0x7FFF : narrow));
  }
}

TEST_CASE("a warp multiplies tiles in the order that is documented") {
  for (const bool transposed : {false, true}) {
    check_tiles<__half>(transposed);
    check_tiles<__nv_bfloat16>(transposed);
  }
}

TEST_CASE("half a warp cannot multiply tiles") {
  misuse_in_every_plan({"ldmatrix_x4 at", "products.cu", "has ended"}, [] {
    const cudaStream_t stream = new_stream();
    OnDevice<__half> a(stream, rounded<__half>(fractions(256, 5)));
    OnDevice<float> c(stream, fractions(256, 3));
    samples::multiply_tile(stream, c.data, a.data, a.data, true, 16);
    check(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("an asynchronous copy has arrived after the wait, and is NaN before") {
  for (const bool waits : {true, false}) {
    const std::vector<float> in = fractions(20, 3);
    const auto out = same_in_every_plan<std::vector<unsigned>>([&] {
      const cudaStream_t stream = new_stream();
      OnDevice<float> from(stream, in), to(stream, std::vector<float>(128));
      samples::copy_rows(stream, to.data, from.data, 5, waits);
      std::vector<unsigned> bits;
      for (const float each : to.read_back()) bits.push_back(std::bit_cast<unsigned>(each));
      from.free();
      to.free();
      return bits;
    });
    for (std::size_t i = 0; i < 128; ++i) {
      const std::size_t from = (31 - i / 4) * 4 + i % 4;
      const float arrived = from < in.size() ? in[from] : 0;
      CHECK(out[i] == (waits ? std::bit_cast<unsigned>(arrived) : ~0U));
    }
  }
}

TEST_CASE("cuBLASLt multiplies in the order that is documented") {
  check_products<float>();
  check_products<__nv_bfloat16>();
}

TEST_CASE("two products on two streams must not share a workspace, nor pass the end of a matrix") {
  misuse_in_every_plan({"cublasLtMatmul of 2x2 on stream 2", "nothing orders the two"}, [] {
    const cudaStream_t stream = new_stream(), other = new_stream();
    const OnDevice<float> a(stream, fractions(4, 3)), c(stream, fractions(4, 5)),
        d(other, fractions(4, 5));
    const OnDevice<char> workspace(stream, std::vector<char>(1024));
    samples::multiply(stream, c.data, a.data, a.data, 2, 2, 2, workspace.data, 1024);
    samples::multiply(other, d.data, a.data, a.data, 2, 2, 2, workspace.data, 1024);
    check(cudaDeviceSynchronize());
  });
  misuse_in_every_plan({"cublasLtMatmul of 2x3 on stream 1", "past its end"}, [] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> a(stream, fractions(6, 3)), c(stream, fractions(5, 5));
    samples::multiply(stream, c.data, a.data, a.data, 3, 2, 2, nullptr, 0);
    check(cudaDeviceSynchronize());
  });
}

TEST_CASE("a product finds a matrix that is less aligned than its algorithm was promised") {
  misuse_in_every_plan({"cublasLtMatmul of 2x2 on stream 1", "a matrix B", "multiples of 256"}, [] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> a(stream, fractions(8, 3)), c(stream, fractions(4, 5));
    samples::multiply(stream, c.data, a.data + 4, a.data, 2, 2, 2, nullptr, 0);
  });
}
