// The kernels of tensor/cuda/attention*.cu against the CPU's.
#include "tensor/cuda/attention.h"

#include "cuda/few_plans.h"
#include "tensor/cuda/attention_extents.h"

#include <future>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::DType;
using fsdp::Float16;
using fsdp::Tensor;
using fsdp::cuda::AttentionExtents;
namespace ops = fsdp::ops;

namespace {

/// Small queries: else the largest score would leave the others no weight.
template <class T>
std::vector<T> divided(std::vector<T> values, float by) {
  for (T& each : values) each = T(static_cast<float>(each) / by);
  return values;
}

/// Small keys at first, so that the maximum of a row rises in a later tile.
template <class T>
std::vector<T> rising(std::vector<T> values) {
  const std::size_t small = values.size() * 2 / 3;
  for (std::size_t i = 0; i < small; ++i) values[i] = T(static_cast<float>(values[i]) / 4);
  return values;
}

template <class T>
struct Attention {
  AttentionExtents e;
  fsdp::Shape q_shape, kv_shape, lse_shape;
  std::vector<T> q, k, v, dout;
  Tensor out, lse;  // of the CPU

  explicit Attention(const AttentionExtents& extents)
      : e(extents),
        q_shape{e.batch, e.queries, e.heads, e.width},
        kv_shape{e.batch, e.length, e.kv_heads, e.width},
        lse_shape{e.batch, e.heads, e.queries},
        q(divided(values<T>(fsdp::numel_of(q_shape), 1), 4)),
        k(rising(values<T>(fsdp::numel_of(kv_shape), 2))),
        v(values<T>(fsdp::numel_of(kv_shape), 3)),
        dout(values<T>(fsdp::numel_of(q_shape), 4)),
        out(Tensor::empty(q_shape, fsdp::dtype_of<T>())),
        lse(Tensor::empty(lse_shape, DType::float32)) {
    ops::attention(out, lse, on_cpu(q, q_shape), on_cpu(k, kv_shape), on_cpu(v, kv_shape));
  }
};

/// One problem runs under all plans.
bool in_all_plans(const AttentionExtents& e) { return e.batch == 2; }

std::string text_of(const AttentionExtents& e) {
  std::string text = "B, T, H, G, D, T' =";
  for (const std::int64_t each : {e.batch, e.length, e.heads, e.kv_heads, e.width, e.queries}) {
    text += " " + std::to_string(each);
  }
  return text;
}

/// Tiles are of 32, 48, 64 or 128 rows, and of 32, 64, 96 or 128 columns.
const std::vector<AttentionExtents>& some_extents() {
  static const std::vector<AttentionExtents> all = {
      {1, 1, 1, 1, 16, 1},   {2, 31, 4, 2, 16, 31},   {1, 33, 1, 1, 80, 33},
      {1, 65, 2, 1, 64, 65}, {1, 34, 1, 1, 128, 34},  {1, 5, 3, 1, 10, 5},
      {1, 96, 1, 1, 32, 96}, {1, 150, 4, 2, 64, 150}, {1, 133, 2, 1, 128, 133},
      {1, 7, 1, 1, 1, 7},    {1, 70, 1, 1, 63, 70},   {1, 50, 2, 1, 127, 50},
      {1, 49, 1, 1, 96, 49}};
  return all;
}

template <class T>
void check_forward(const AttentionExtents& e, std::int64_t skip) {
  INFO(text_of(e) << ", skip " << skip);
  const Attention<T> in(e);
  const Outputs outputs = in_plans(in_all_plans(e), [&](cudaStream_t stream) {
    DeviceValues<T> q(stream, in.q, skip), k(stream, in.k, skip), v(stream, in.v, skip);
    DeviceValues<T> out(stream, in.dout, skip);
    DeviceValues<float> lse(
        stream, std::vector<float>(in.q.size() / static_cast<std::size_t>(e.width), NAN), 0);
    fsdp::cuda::attention(stream, out.data(), lse.data(), q.data(), k.data(), v.data(), e);
    q.drop();
    k.drop();
    v.drop();
    return Outputs{out.take(in.q_shape), lse.take(in.lse_shape)};
  });
  CHECK(largest_error(outputs[0], in.out) <= tolerance<T>());
  CHECK(largest_error(outputs[1], in.lse) <= 1e-6);
}

/// p and ds are rounded before they are multiplied, and the result once.
template <class T>
double gradient_tolerance() {
  return std::is_same_v<T, float> ? 3e-6 : 2 * tolerance<T>();
}

template <class T>
void check_backward(const AttentionExtents& e, std::int64_t skip) {
  INFO(text_of(e) << ", skip " << skip);
  const Attention<T> in(e);
  const Tensor q = on_cpu(in.q, in.q_shape), k = on_cpu(in.k, in.kv_shape);
  const Tensor v = on_cpu(in.v, in.kv_shape), dout = on_cpu(in.dout, in.q_shape);
  const DType dtype = fsdp::dtype_of<T>();
  const Tensor dq = Tensor::empty(in.q_shape, dtype), dk = Tensor::empty(in.kv_shape, dtype);
  const Tensor dv = Tensor::empty(in.kv_shape, dtype);
  ops::attention_backward(dq, dk, dv, dout, in.out, in.lse, q, k, v);
  const auto of_cpu = in.out.template to_vector<T>();
  const auto lse_of_cpu = in.lse.template to_vector<float>();
  const Outputs outputs = in_plans(in_all_plans(e), [&](cudaStream_t stream) {
    DeviceValues<T> to_q(stream, in.q, skip), to_k(stream, in.k, skip), to_v(stream, in.k, skip),
        dy(stream, in.dout, skip), out(stream, of_cpu, skip), queries(stream, in.q, skip),
        keys(stream, in.k, skip), weighted(stream, in.v, skip);
    DeviceValues<float> lse(stream, lse_of_cpu, 0);
    fsdp::cuda::attention_backward(stream, to_q.data(), to_k.data(), to_v.data(), dy.data(),
                                   out.data(), lse.data(), queries.data(), keys.data(),
                                   weighted.data(), e);
    for (auto* each : {&dy, &out, &queries, &keys, &weighted}) each->drop();
    lse.drop();
    return Outputs{to_q.take(in.q_shape), to_k.take(in.kv_shape), to_v.take(in.kv_shape)};
  });
  CHECK(largest_error(outputs[0], dq) <= gradient_tolerance<T>());
  CHECK(largest_error(outputs[1], dk) <= gradient_tolerance<T>());
  CHECK(largest_error(outputs[2], dv) <= gradient_tolerance<T>());
}

}  // namespace

TEMPLATE_TEST_CASE("attention on CUDA memory gives the CPU's values", "[kernels]", float, BFloat16,
                   Float16) {
  for (const AttentionExtents& e : some_extents()) check_forward<TestType>(e, 0);
  check_forward<TestType>({1, 5, 3, 1, 16, 5}, 1);
}

TEMPLATE_TEST_CASE("attention's backward on CUDA memory gives the CPU's gradients", "[kernels]",
                   float, BFloat16, Float16) {
  for (const AttentionExtents& e : some_extents()) check_backward<TestType>(e, 0);
  check_backward<TestType>({1, 5, 3, 1, 16, 5}, 1);
}

TEMPLATE_TEST_CASE("the last queries alone have the bits they have among all", "[kernels]", float,
                   BFloat16) {
  for (const std::int64_t width : {16, 64, 128}) {
    const std::int64_t length = 135;
    const AttentionExtents whole{1, length, 2, 1, width, length};
    const Attention<TestType> in(whole);
    for (const std::int64_t count : {1, 4, 40}) {
      AttentionExtents last = whole;
      last.queries = count;
      const auto skipped = static_cast<std::ptrdiff_t>((length - count) * 2 * width);
      const Outputs outputs = in_one_plan([&](cudaStream_t stream) {
        DeviceValues<TestType> q(stream, in.q, 0), k(stream, in.k, 0), v(stream, in.v, 0);
        DeviceValues<TestType> all(stream, in.dout, 0);
        // In memory of its own: a read of earlier queries is out of bounds.
        DeviceValues<TestType> q_last(stream, {in.q.begin() + skipped, in.q.end()}, 0);
        DeviceValues<TestType> some(stream, {in.dout.begin() + skipped, in.dout.end()}, 0);
        DeviceValues<float> lse(stream, std::vector<float>(2 * 135), 0);
        fsdp::cuda::attention(stream, all.data(), lse.data(), q.data(), k.data(), v.data(), whole);
        fsdp::cuda::attention(stream, some.data(), lse.data(), q_last.data(), k.data(), v.data(),
                              last);
        q.drop();
        q_last.drop();
        k.drop();
        v.drop();
        lse.drop();
        return Outputs{all.take({length, 2 * width}), some.take({count, 2 * width})};
      });
      CHECK(ops::equal_bits(outputs[0].narrow(0, length - count, count), outputs[1]));
    }
  }
}

TEMPLATE_TEST_CASE("the bits of attention and its gradients do not depend on addresses",
                   "[kernels]", BFloat16, Float16) {
  for (const std::int64_t width : {24, 64, 80, 128}) {
    const AttentionExtents e{1, 70, 2, 1, width, 70};
    const Attention<TestType> in(e);
    const auto at = [&](std::int64_t skip) {
      return in_one_plan([&](cudaStream_t stream) {
        DeviceValues<TestType> out(stream, in.dout, skip), q(stream, in.q, skip),
            k(stream, in.k, skip), v(stream, in.v, skip), dout(stream, in.dout, skip),
            dq(stream, in.q, skip), dk(stream, in.k, skip), dv(stream, in.v, skip);
        DeviceValues<float> lse(stream, std::vector<float>(2 * 70), 0);
        fsdp::cuda::attention(stream, out.data(), lse.data(), q.data(), k.data(), v.data(), e);
        fsdp::cuda::attention_backward(stream, dq.data(), dk.data(), dv.data(), dout.data(),
                                       out.data(), lse.data(), q.data(), k.data(), v.data(), e);
        for (auto* each : {&q, &k, &v, &dout}) each->drop();
        return Outputs{out.take(in.q_shape), lse.take(in.lse_shape), dq.take(in.q_shape),
                       dk.take(in.kv_shape), dv.take(in.kv_shape)};
      });
    };
    const Outputs whole = at(0), elsewhere = at(1);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(ops::equal_bits(whole[i], elsewhere[i]));
    }
  }
}

TEMPLATE_TEST_CASE("scores far apart leave attention finite and right", "[kernels]", BFloat16,
                   Float16) {
  const AttentionExtents e{1, 100, 1, 1, 64, 100};
  Attention<TestType> in(e);
  for (TestType& each : in.q) each = TestType(static_cast<float>(each) * 256);
  ops::attention(in.out, in.lse, on_cpu(in.q, in.q_shape), on_cpu(in.k, in.kv_shape),
                 on_cpu(in.v, in.kv_shape));
  const Outputs outputs = in_one_plan([&](cudaStream_t stream) {
    DeviceValues<TestType> q(stream, in.q, 0), k(stream, in.k, 0), v(stream, in.v, 0),
        out(stream, in.dout, 0);
    DeviceValues<float> lse(stream, std::vector<float>(100), 0);
    fsdp::cuda::attention(stream, out.data(), lse.data(), q.data(), k.data(), v.data(), e);
    for (auto* each : {&q, &k, &v}) each->drop();
    return Outputs{out.take(in.q_shape), lse.take(in.lse_shape)};
  });
  CHECK(largest_error(outputs[0], in.out) <= tolerance<TestType>());
  CHECK(largest_error(outputs[1], in.lse) <= 1e-6);
}

// Bytes as docs/gpu.md says: rows of q and dout once, and of k and v once per tile of queries; for
// the gradients of k and v the other way round. Heads that share k and v load them each.
TEST_CASE("attention moves the bytes of its formula", "[kernels][stand-in]") {
  const AttentionExtents e{1, 192, 2, 1, 64, 192};
  const Attention<BFloat16> in(e);
  const std::int64_t row = 64 * 2, heads = 2, length = 192;
  const std::int64_t seen = 128 + 192;           // of two tiles of queries
  const std::int64_t seeing = 192 + 64;          // two tiles of keys
  const std::int64_t lse_nbytes = 4, terms = 8;  // per query
  Session session(requested_or({Mode::lazy, 0}));
  const cudaStream_t stream = new_stream();
  DeviceValues<BFloat16> q(stream, in.q, 0), k(stream, in.k, 0), v(stream, in.v, 0),
      dout(stream, in.dout, 0), out(stream, in.q, 0), dq(stream, in.q, 0), dk(stream, in.k, 0),
      dv(stream, in.v, 0);
  DeviceValues<float> lse(stream, std::vector<float>(2 * 192), 0);
  const auto moved_by = [&](const auto& program) {
    const cuda_on_host::Traffic before = cuda_on_host::traffic();
    program();
    check(cudaStreamSynchronize(stream));
    const cuda_on_host::Traffic after = cuda_on_host::traffic();
    return std::pair{after.loaded - before.loaded, after.stored - before.stored};
  };
  const auto forward = moved_by([&] {
    fsdp::cuda::attention(stream, out.data(), lse.data(), q.data(), k.data(), v.data(), e);
  });
  CHECK(forward.first == heads * (length * row + 2 * seen * row));
  CHECK(forward.second == heads * length * (row + lse_nbytes));
  const auto backward = moved_by([&] {
    fsdp::cuda::attention_backward(stream, dq.data(), dk.data(), dv.data(), dout.data(), out.data(),
                                   lse.data(), q.data(), k.data(), v.data(), e);
  });
  const std::int64_t of_terms = heads * length * (2 * row + lse_nbytes);
  const std::int64_t of_queries = heads * (length * (2 * row + terms) + 2 * seen * row);
  const std::int64_t of_keys = 2 * length * row + heads * seeing * (2 * row + terms);
  CHECK(backward.first == of_terms + of_queries + of_keys);
  CHECK(backward.second == heads * length * (terms + row) + 2 * length * row);
  for (auto* each : {&q, &k, &v, &dout, &out, &dq, &dk, &dv}) each->drop();
  lse.drop();
  check(cudaStreamDestroy(stream));
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("a head that is too wide for the kernels is an error", "[kernels]") {
  Session session(requested_or({Mode::lazy, 0}));
  const cudaStream_t stream = new_stream();
  OnDevice<float> x(stream, std::vector<float>(1000));
  const AttentionExtents e{1, 1, 1, 1, 257, 1};
  CHECK_THAT(message_of<fsdp::Error>(
                 [&] { fsdp::cuda::attention(stream, x.data, x.data, x.data, x.data, x.data, e); }),
             contains("256"));
  x.free();
  check(cudaStreamDestroy(stream));
  CHECK_NOTHROW(session.finish());
}

TEMPLATE_TEST_CASE("wide heads run on the plain kernels in every format", "[kernels]", float,
                   BFloat16, Float16) {
  check_forward<TestType>({1, 3, 2, 1, 256, 3}, 0);
  check_backward<TestType>({1, 3, 2, 1, 256, 3}, 0);
}

// A thread that has asked for nothing yet, which a thread of Catch's may not be.
TEST_CASE("a thread asks for a kernel's shared memory once per device",
          "[kernels][cards][stand-in]") {
  const AttentionExtents e{1, 2, 1, 1, 64, 2};
  Session session(requested_or({Mode::lazy, 0}));
  auto asked = std::async(std::launch::async, [&e] {
    std::vector<std::int64_t> counts;
    for (const int device : {0, 0, 1, 1, 0}) {
      check(cudaSetDevice(device));
      const cudaStream_t stream = new_stream();
      DeviceValues<float> in(stream, std::vector<float>(2 * 64), 0);
      DeviceValues<float> out(stream, std::vector<float>(2 * 64), 0);
      DeviceValues<float> lse(stream, std::vector<float>(2), 0);
      const std::int64_t before = cuda_on_host::attributes_set();
      fsdp::cuda::attention(stream, out.data(), lse.data(), in.data(), in.data(), in.data(), e);
      counts.push_back(cuda_on_host::attributes_set() - before);
      for (auto* each : {&in, &out, &lse}) each->drop();
      check(cudaStreamDestroy(stream));
    }
    return counts;
  });
  CHECK(asked.get() == std::vector<std::int64_t>{1, 0, 1, 0, 0});
  CHECK_NOTHROW(session.finish());
}
