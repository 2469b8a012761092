// Every bit of a product is the one that its definition gives (tensor/product.h), whatever the
// shape, the transpositions, the alignment, the number of threads and the width of a vector.
#include "base/philox.h"
#include "device/thread_pool.h"
#include "support/catch.h"
#include "tensor/product_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

using namespace fsdp;
using ops::Matrix;
using ops::ProductExtents;

namespace {

/// Draws whole numbers and floats from one stream.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t word() { return random_word(seed_, next_++); }
  std::int64_t below(std::int64_t end) { return word() % end; }

  /// Signs, sizes from 2^-8 to 2^8, and now and then a zero of either sign.
  template <class T>
  std::vector<T> values(std::int64_t count) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = word();
      const T size = bits % 61 == 0 ? T{0} : static_cast<T>((bits >> 8) + 1) * T{0x1p-24};
      values.push_back(std::copysign(std::ldexp(size, static_cast<int>(bits % 17) - 8),
                                     bits & 1 ? T{-1} : T{1}));
    }
    return values;
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

/// The definition, word by word.
template <class T>
void defined_product(ProductExtents e, Matrix<T> a, Matrix<T> b, T* c, ops::Write write) {
  for (std::int64_t i = 0; i < e.rows; ++i) {
    for (std::int64_t j = 0; j < e.columns; ++j) {
      T* const element = c + i * e.columns + j;
      for (std::int64_t chunk = 0; chunk < e.depth; chunk += 256) {
        T s = 0;
        for (std::int64_t k = chunk; k < std::min(e.depth, chunk + 256); ++k) {
          s = std::fma(*a.at(i, k), *b.at(k, j), s);
        }
        *element = chunk == 0 && write == ops::Write::set ? s : *element + s;
      }
    }
  }
}

template <class T, std::int64_t Bytes>
using Vector = typename simd::VectorOf<T, Bytes>::Values;

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::ranges::equal(
      a, b, [](T x, T y) { return std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y); });
}

/// One product, drawn at random, in every width.
template <class T>
void check_product(Draw& draw, ProductExtents e, ThreadPool& pool) {
  const bool ta = draw.below(2) == 1, tb = draw.below(2) == 1;
  const auto write = draw.below(2) == 1 ? ops::Write::add : ops::Write::set;
  // The operands begin anywhere, and lie in the middle of wider matrices.
  const std::int64_t a_stride = (ta ? e.rows : e.depth) + draw.below(20);
  const std::int64_t b_stride = (tb ? e.depth : e.columns) + draw.below(20);
  const std::int64_t a_offset = draw.below(16), b_offset = draw.below(16), offset = draw.below(16);
  const auto a_values = draw.values<T>(a_offset + (ta ? e.depth : e.rows) * a_stride);
  const auto b_values = draw.values<T>(b_offset + (tb ? e.columns : e.depth) * b_stride);
  const Matrix<T> a{a_values.data() + a_offset, a_stride, ta};
  const Matrix<T> b{b_values.data() + b_offset, b_stride, tb};
  const std::vector<T> before = draw.values<T>(offset + e.rows * e.columns + 16);
  std::vector<T> expected = before;
  defined_product(e, a, b, expected.data() + offset, write);
  INFO(e.rows << " x " << e.columns << " x " << e.depth << (ta ? " T" : " N") << (tb ? "T" : "N")
              << (write == ops::Write::add ? " add " : " set ") << pool.threads() << " threads");
  const auto check = [&](const char* how, auto run) {
    INFO(how);
    std::vector<T> c = before;
    run(c.data() + offset);
    CHECK(same_bits(c, expected));
  };
  check("this machine's vectors", [&](T* c) { ops::product(e, a, b, c, write, pool); });
  check("16 bytes", [&](T* c) { ops::product_with<Vector<T, 16>>(e, a, b, c, write, pool); });
  check("32 bytes", [&](T* c) { ops::product_with<Vector<T, 32>>(e, a, b, c, write, pool); });
  check("64 bytes", [&](T* c) { ops::product_with<Vector<T, 64>>(e, a, b, c, write, pool); });
}

std::vector<std::unique_ptr<ThreadPool>> pools_of_one_to_five() {
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int threads = 1; threads <= 5; ++threads) {
    pools.push_back(std::make_unique<ThreadPool>(threads));
  }
  return pools;
}

}  // namespace

TEST_CASE("a product has the bits of its definition") {
  Draw draw(2026);
  const auto pools = pools_of_one_to_five();
  // Extents from 1 to 700; the naive product bounds how many terms there can be.
  const auto extent = [&] { return 1 + draw.below(1 + draw.below(700)); };
  for (int drawn = 0; drawn < 100;) {
    const ProductExtents e{extent(), extent(), extent()};
    if (e.rows * e.columns * e.depth > 2'000'000) continue;
    ThreadPool& pool = *pools[static_cast<std::size_t>(drawn % 5)];
    if (drawn++ % 4 == 0) {
      check_product<double>(draw, e, pool);
    } else {
      check_product<float>(draw, e, pool);
    }
  }
}

TEST_CASE("a product has the bits of its definition at every border of a piece") {
  Draw draw(7);
  const auto pools = pools_of_one_to_five();
  // Around a panel, a packed block, a group of rows, a chunk.
  for (const std::int64_t columns : {1, 31, 32, 33, 191, 192, 193, 385}) {
    for (const std::int64_t depth : {1, 255, 256, 257, 513}) {
      const std::int64_t rows = 1 + draw.below(20);
      check_product<float>(draw, {rows, columns, depth}, *pools[0]);
    }
  }
  for (const std::int64_t rows : {6, 8, 23, 24, 25, 53, 54, 55, 56, 57, 130, 513, 1030}) {
    check_product<float>(draw, {rows, 17, 40}, *pools[1]);
    check_product<double>(draw, {rows, 9, 40}, *pools[4]);
  }
}

TEST_CASE("infinities and what is not a number spread as the definition says") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const ProductExtents e{40, 35, 300};
  ThreadPool pool(1);
  Draw draw(3);
  std::vector<float> a = draw.values<float>(e.rows * e.depth);
  std::vector<float> b = draw.values<float>(e.depth * e.columns);
  for (int i = 0; i < 6; ++i) {
    const float value = i % 3 == 0 ? NAN : i % 3 == 1 ? kInfinity : -kInfinity;
    a[static_cast<std::size_t>(draw.below(e.rows * e.depth))] = value;
    b[static_cast<std::size_t>(draw.below(e.depth * e.columns))] = value;
  }
  std::vector<float> c(static_cast<std::size_t>(e.rows * e.columns)), expected = c;
  const Matrix<float> left{a.data(), e.depth, false}, right{b.data(), e.columns, false};
  ops::product(e, left, right, c.data(), ops::Write::set, pool);
  defined_product(e, left, right, expected.data(), ops::Write::set);
  // Which NaN comes out is the processor's affair.
  CHECK(std::ranges::equal(
      c, expected, [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }));
  CHECK(std::ranges::count_if(c, [](float x) { return std::isnan(x); }) > 0);
  CHECK(std::ranges::count_if(c, [](float x) { return std::isinf(x); }) > 0);
  CHECK(std::ranges::count_if(c, [](float x) { return std::isfinite(x); }) > 0);
}
