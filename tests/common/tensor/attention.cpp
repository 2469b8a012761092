#include "kernel_checks.h"

using namespace fsdp;
using namespace kernel_checks;

namespace {

struct Case {
  std::int64_t batch, length, heads, kv_heads, width;
};

/// Causal attention and its gradients by the textbook, in double, with the full score matrix.
struct Reference {
  explicit Reference(const Case& c)
      : q(random_values(c.batch * c.length * c.heads * c.width, 1, -2, 2)),
        k(random_values(c.batch * c.length * c.kv_heads * c.width, 2, -2, 2)),
        v(random_values(c.batch * c.length * c.kv_heads * c.width, 3)),
        dout(random_values(c.batch * c.length * c.heads * c.width, 4)),
        out(q.size(), 0),
        lse(static_cast<std::size_t>(c.batch * c.heads * c.length), 0),
        dq(q.size(), 0),
        dk(k.size(), 0),
        dv(k.size(), 0) {
    const double scale = 1 / std::sqrt(static_cast<double>(c.width));
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const std::int64_t g = h / (c.heads / c.kv_heads);
        for (std::int64_t t = 0; t < c.length; ++t) {
          const auto query = static_cast<std::size_t>(((b * c.length + t) * c.heads + h) * c.width);
          const auto key = [&](std::int64_t s) {
            return static_cast<std::size_t>(((b * c.length + s) * c.kv_heads + g) * c.width);
          };
          one_query(query, key, static_cast<std::size_t>(t), static_cast<std::size_t>(c.width),
                    lse[static_cast<std::size_t>((b * c.heads + h) * c.length + t)], scale);
        }
      }
    }
  }

  template <class Key>
  void one_query(std::size_t query, Key key, std::size_t t, std::size_t width, double& log_sum,
                 double scale) {
    std::vector<double> p(t + 1, 0), dp(t + 1, 0);
    double total = 0;
    for (std::size_t s = 0; s <= t; ++s) {
      const std::size_t at = key(static_cast<std::int64_t>(s));
      for (std::size_t i = 0; i < width; ++i) {
        p[s] += q[query + i] * k[at + i] * scale;
        dp[s] += dout[query + i] * v[at + i];
      }
      total += std::exp(p[s]);
    }
    log_sum = std::log(total);
    double mean = 0;
    for (std::size_t s = 0; s <= t; ++s) {
      p[s] = std::exp(p[s] - log_sum);
      mean += p[s] * dp[s];
    }
    for (std::size_t s = 0; s <= t; ++s) {
      const std::size_t at = key(static_cast<std::int64_t>(s));
      const double ds = p[s] * (dp[s] - mean) * scale;
      for (std::size_t i = 0; i < width; ++i) {
        out[query + i] += p[s] * v[at + i];
        dv[at + i] += p[s] * dout[query + i];
        dq[query + i] += ds * k[at + i];
        dk[at + i] += ds * q[query + i];
      }
    }
  }

  std::vector<double> q, k, v, dout, out, lse, dq, dk, dv;
};

}  // namespace

TEST_CASE("attention and its gradients agree with the textbook on any tile border") {
  const Case c = GENERATE(Case{2, 128, 4, 4, 32}, Case{1, 64, 2, 2, 64}, Case{1, 65, 2, 1, 64},
                          Case{2, 63, 4, 2, 8}, Case{1, 150, 3, 3, 20}, Case{1, 70, 2, 2, 128},
                          Case{1, 40, 1, 1, 256}, Case{3, 1, 2, 1, 5}, Case{2, 13, 6, 2, 7},
                          Case{1, 200, 2, 1, 17});
  const Reference reference(c);
  const Shape wide{c.batch, c.length, c.heads, c.width};
  const Shape narrow{c.batch, c.length, c.kv_heads, c.width};
  for (const DType dtype : kFloating) {
    const auto outputs = run_everywhere([&](const Placement& at) {
      const Tensor q = at.values(reference.q, wide, dtype),
                   k = at.values(reference.k, narrow, dtype);
      const Tensor v = at.values(reference.v, narrow, dtype);
      const Tensor dout = at.values(reference.dout, wide, dtype);
      const Tensor out = at.empty(wide, dtype);
      const Tensor lse = at.empty({c.batch, c.heads, c.length}, dtype);
      ops::attention(out, lse, q, k, v);
      const Tensor dq = at.empty(wide, dtype), dk = at.empty(narrow, dtype);
      const Tensor dv = at.empty(narrow, dtype);
      ops::attention_backward(dq, dk, dv, dout, out, lse, q, k, v);
      return std::vector{out, lse, dq, dk, dv};
    });
    INFO("T " << c.length << " H " << c.heads << " G " << c.kv_heads << " D " << c.width);
    CHECK(distance(outputs[0], reference.out) < tolerance(dtype));
    CHECK(distance(outputs[1], reference.lse) < tolerance(dtype));
    CHECK(distance(outputs[2], reference.dq, 1) < 3 * tolerance(dtype));
    CHECK(distance(outputs[3], reference.dk, 1) < 3 * tolerance(dtype));
    CHECK(distance(outputs[4], reference.dv) < tolerance(dtype));
  }
}

TEST_CASE("attention survives scores that differ by hundreds") {
  const std::int64_t length = 130, width = 8;
  std::vector<double> q(static_cast<std::size_t>(length * width), 30), k = q, v = q;
  for (std::size_t t = 0; t < static_cast<std::size_t>(length); ++t) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      const std::size_t at = t * static_cast<std::size_t>(width) + i;
      k[at] = static_cast<double>(t) - 65;
      v[at] = static_cast<double>(t);
    }
  }
  const Placement at;
  const Shape shape{1, length, 1, width};
  const Tensor out = at.empty(shape, DType::float32),
               lse = at.empty({1, 1, length}, DType::float32);
  ops::attention(out, lse, at.values(q, shape, DType::float32), at.values(k, shape, DType::float32),
                 at.values(v, shape, DType::float32));
  for (std::int64_t t = 0; t < length; ++t) {
    CHECK(out.data<float>()[t * width] == static_cast<float>(t));  // the newest key outweighs all
  }
}

TEST_CASE("a later token never changes an earlier output") {
  const Case c{1, 100, 2, 2, 16};
  Reference reference(c);
  const Shape shape{c.batch, c.length, c.heads, c.width};
  const Placement at;
  const auto run = [&] {
    const Tensor out = at.empty(shape, DType::float32);
    const Tensor lse = at.empty({c.batch, c.heads, c.length}, DType::float32);
    ops::attention(out, lse, at.values(reference.q, shape, DType::float32),
                   at.values(reference.k, shape, DType::float32),
                   at.values(reference.v, shape, DType::float32));
    return out;
  };
  const Tensor before = run();
  const std::size_t changed = 70 * 32;
  for (std::size_t i = changed; i < reference.k.size(); ++i) reference.k[i] = reference.v[i] = 7;
  const Tensor after = run();
  CHECK(ops::equal_bits(before.narrow(1, 0, 70), after.narrow(1, 0, 70)));
  CHECK_FALSE(ops::equal_bits(before, after));
}

TEST_CASE("queries of the last positions get the bits they have among all queries") {
  // Tiles of 64, and of 32 and 16 for wide heads; groups of 16, 8 and 6 queries within a tile.
  const Case c = GENERATE(Case{1, 150, 4, 2, 20}, Case{2, 66, 3, 1, 64}, Case{2, 40, 2, 2, 256},
                          Case{1, 17, 6, 2, 7});
  const std::vector<double> q =
      random_values(c.batch * c.length * c.heads * c.width, 1, -9, 9);  // some weights underflow
  const std::vector<double> k = random_values(c.batch * c.length * c.kv_heads * c.width, 2, -9, 9);
  const std::vector<double> v = random_values(c.batch * c.length * c.kv_heads * c.width, 3);
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    const auto outputs = [&](const Placement& at, std::int64_t queries) {
      const Shape narrow{c.batch, c.length, c.kv_heads, c.width};
      const Shape shape{c.batch, queries, c.heads, c.width};
      const Tensor all = at.values(q, {c.batch, c.length, c.heads, c.width}, dtype);
      const Tensor last = at.empty(shape, dtype), out = at.empty(shape, dtype);
      ops::copy(last, all.narrow(1, c.length - queries, queries));
      const Tensor lse = at.empty({c.batch, c.heads, queries}, fsdp::wide_of(dtype));
      ops::attention(out, lse, last, at.values(k, narrow, dtype), at.values(v, narrow, dtype));
      return std::vector{out, lse};
    };
    const std::vector<Tensor> full = outputs({}, c.length);
    for (const std::int64_t queries : {1, 2, 5, 8, 16, 17}) {
      INFO(fsdp::name_of(dtype) << ", " << queries << " of " << c.length << " queries");
      const auto last = run_everywhere([&](const Placement& at) { return outputs(at, queries); });
      const auto rows_of_full = [&](const Tensor& tensor, int dim) {
        const Tensor rows = tensor.narrow(dim, c.length - queries, queries);
        const Tensor dense = Tensor::empty(rows.shape(), rows.dtype());
        ops::copy(dense, rows);
        return dense;
      };
      CHECK(ops::equal_bits(last[0], rows_of_full(full[0], 1)));
      CHECK(ops::equal_bits(last[1], rows_of_full(full[1], 2)));
    }
  }
}

TEST_CASE("attention refuses heads that do not divide and shapes that disagree") {
  const auto zeros = [](std::int64_t heads, std::int64_t width) {
    return Tensor::zeros({1, 4, heads, width});
  };
  const Tensor lse = Tensor::zeros({1, 3, 4});
  CHECK_THROWS_AS(ops::attention(zeros(3, 8), lse, zeros(3, 8), zeros(2, 8), zeros(2, 8)), Error);
  CHECK_THROWS_AS(ops::attention(zeros(3, 8), lse, zeros(3, 8), zeros(3, 4), zeros(3, 8)), Error);
  CHECK_THROWS_AS(
      ops::attention(zeros(3, 8), Tensor::zeros({1, 4, 3}), zeros(3, 8), zeros(3, 8), zeros(3, 8)),
      Error);
  CHECK_THROWS_AS(
      ops::attention(zeros(3, 4096), lse, zeros(3, 4096), zeros(3, 4096), zeros(3, 4096)), Error);
  const Tensor two = Tensor::zeros({1, 2, 3, 8});
  CHECK_THROWS_AS(ops::attention(zeros(3, 8), lse, zeros(3, 8), two, two), Error);
  const Tensor short_lse = Tensor::zeros({1, 3, 2});
  CHECK_THROWS_AS(ops::attention_backward(two, zeros(3, 8), zeros(3, 8), two, two, short_lse, two,
                                          zeros(3, 8), zeros(3, 8)),
                  Error);
}
