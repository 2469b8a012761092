// Tensors on a CUDA device: made, computed with, read, copied.
#include "cuda/on_device.h"
#include "device/accelerator.h"
#include "tensor/cast.h"
#include "tensor/host_copy.h"

#include <cstring>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Context;
using fsdp::ContextScope;
using fsdp::DType;
using fsdp::Error;
using fsdp::Float16;
using fsdp::kCpu;
using fsdp::kCpuHost;
using fsdp::kCuda;
using fsdp::Storage;
using fsdp::Tensor;
namespace ops = fsdp::ops;

namespace {

std::vector<float> some(std::int64_t n, std::int64_t salt = 1) { return values<float>(n, salt); }

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

TEMPLATE_TEST_CASE("values go to a CUDA device and come back", "[device]", float, double,
                   std::int32_t, std::int64_t, BFloat16, Float16) {
  const std::vector<TestType> sent{TestType(1.0F), TestType(2.0F), TestType(3.0F),
                                   TestType(4.0F), TestType(5.0F), TestType(6.0F)};
  on_device_in_some_plans([&] {
    const Tensor t = Tensor::from(sent, {2, 3});
    CHECK(t.device() == kCuda);
    CHECK(same_bits(t.to_vector<TestType>(), sent));
    const std::vector<TestType> turned{sent[0], sent[3], sent[1], sent[4], sent[2], sent[5]};
    CHECK(same_bits(t.transpose(0, 1).template to_vector<TestType>(), turned));
    CHECK(t.narrow(0, 1, 1).narrow(1, 1, 1).item() == 5);
    CHECK(t.narrow(0, 1, 0).template to_vector<TestType>().empty());
    const Tensor zero = Tensor::zeros({5}, fsdp::dtype_of<TestType>());
    CHECK(same_bits(zero.to_vector<TestType>(), std::vector<TestType>(5, TestType(0.0F))));
    CHECK(Tensor::zeros({0}).to_vector<float>().empty());
    CHECK(Tensor::from(std::vector<TestType>{}, {0}).template to_vector<TestType>().empty());
    return Outputs{};
  });
}

TEST_CASE("an operation on tensors of a CUDA device runs its kernel there", "[device]") {
  const std::int64_t n = 1029;
  const Tensor gate = Tensor::from(some(n, 1), {n}), up = Tensor::from(some(n, 2), {n});
  const Tensor dout = Tensor::from(some(n, 3), {n});
  const Tensor expected = Tensor::empty({n}), dgate = Tensor::empty({n}), dup = Tensor::empty({n});
  ops::swiglu(expected, gate, up);
  ops::swiglu_backward(dgate, dup, dout, gate, up);
  const Outputs outputs = on_device_in_some_plans([&] {
    const Tensor g = Tensor::from(some(n, 1), {n}), u = Tensor::from(some(n, 2), {n});
    const Tensor out = Tensor::empty({n}), dy = Tensor::from(some(n, 3), {n});
    const Tensor dg = Tensor::empty({n}), du = Tensor::empty({n});
    const auto before = cuda_on_host::host_waits();
    ops::swiglu(out, g, u);
    ops::swiglu_backward(dg, du, dy, g, u);
    CHECK(cuda_on_host::host_waits() == before);
    return Outputs{fsdp::on_host(out), fsdp::on_host(dg), fsdp::on_host(du)};
  });
  CHECK(largest_error(outputs[0], expected) <= tolerance<float>());
  CHECK(largest_error(outputs[1], dgate) <= tolerance<float>());
  CHECK(largest_error(outputs[2], dup) <= tolerance<float>());
}

TEST_CASE("what a CUDA device cannot do is an error with a remedy", "[device][stand-in]") {
  Session session({Mode::eager, 0});
  {
    Context context(cuda_options(0));
    const ContextScope scope(context);
    const Tensor wide = Tensor::zeros({2}, DType::float64);
    CHECK_THAT(message_of<Error>([&] { ops::swiglu(wide, wide, wide); }),
               contains("swiglu has no kernel for float64 on CUDA: use float32"));
    CHECK_THAT(message_of<Error>([&] {
                 Tensor::empty({2}, DType::float32, {kCuda.type, 1});
               }),
               contains("rank 0 uses the device cuda:0, and cannot use cuda:1 as well"));
    const Tensor t = Tensor::zeros({2});
    CHECK_THAT(message_of<Error>([&] { ops::swiglu(t, t, Tensor::empty({2}, t.dtype(), kCpu)); }),
               contains("swiglu: up is on cpu, the others on cuda"));
    t.storage()->free("a test");
    CHECK_THAT(message_of<fsdp::StorageError>([&] { t.to_vector<float>(); }),
               contains("it was freed (a test)"));
  }
  CHECK_NOTHROW(session.finish());
  Session small({.mode = Mode::eager, .devices = 2});
  Context context({.device = {kCuda.type, 2}});
  const ContextScope scope(context);
  CHECK_THAT(message_of<Error>([] { Tensor::empty({2}); }),
             contains("cuda:2 was asked for, but this machine has 2: cuda:0 to cuda:1"));
}

TEST_CASE("fresh bytes of a CUDA device are NaN, also where a block is used again", "[device]") {
  on_device_in_some_plans([&] {
    for (int round = 0; round < 2; ++round) {
      const Tensor t = Tensor::empty({300});
      for (const float value : t.to_vector<float>()) CHECK(std::isnan(value));
      Context::current().rank_device().fill(t.raw(), 0, t.nbytes());
      CHECK(t.to_vector<float>() == std::vector<float>(300, 0));
    }
    return Outputs{};
  });
}

TEST_CASE("device and host memory of a rank are counted apart", "[device]") {
  on_device_in_some_plans([&] {
    Context& context = Context::current();
    CHECK(context.host() == kCpuHost);
    {
      const Tensor on_cuda = Tensor::empty({129});  // 516 bytes
      const Tensor pinned = Tensor::empty({3}, DType::float32, kCpuHost);
      const Tensor pageable = Tensor::empty({5}, DType::float32, kCpu);
      // Blocks that are cut from segments are rounded up.
      CHECK(context.tracker().current_total() ==
            (context.options().segment_nbytes == 0 ? 516 : 1024));
      CHECK(context.host_tracker().current_total() == 12 + 20);
    }
    CHECK(context.tracker().current_total() == 0);
    CHECK(context.host_tracker().current_total() == 0);
    return Outputs{};
  });
}

TEST_CASE("two ranks use two devices, and one thread can serve both", "[device][cards]") {
  for (const Plan& plan : some_plans()) {
    INFO(text_of(plan));
    Session session(plan);
    {
      Context first(cuda_options(0));
      Context second({.device = {kCuda.type, 1}, .segment_nbytes = 0});
      const ContextScope outer(first);
      const Tensor a = Tensor::from(some(5, 1), {5});
      {
        const ContextScope inner(second);
        const Tensor b = Tensor::from(some(5, 2), {5});
        CHECK(fsdp::to_string(b.device()) == "cuda:1");
        CHECK(b.to_vector<float>() == some(5, 2));
      }
      const Tensor out = Tensor::empty({5});
      ops::swiglu(out, a, a);
      {
        const ContextScope again(second);
        const Tensor b = Tensor::from(some(5, 3), {5}), c = Tensor::empty({5});
        ops::swiglu(c, b, b);
        c.to_vector<float>();
      }
      CHECK(a.to_vector<float>() == some(5, 1));
    }
    CHECK_NOTHROW(session.finish());
  }
}

TEST_CASE("what ranks wait for goes before what one of them computes", "[device]") {
  Session session(requested_or(Plan{}));
  {
    Context context(cuda_options(0));
    fsdp::RankDevice& device = context.rank_device();
    int computes = 0, communicates = 0, least = 0, greatest = 0;
    check(cudaStreamGetPriority(device.compute(), &computes));
    check(cudaStreamGetPriority(device.communication(), &communicates));
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(communicates == greatest);
    CHECK(computes > communicates);  // CUDA's lower numbers go first
  }
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("a tensor may outlive its rank", "[device]") {
  for (const std::size_t segment_nbytes : kSegments) {
    Session session(requested_or({Mode::lazy, 0}));
    {
      Tensor survivor;
      Context context(cuda_options(segment_nbytes));
      const ContextScope scope(context);
      {
        Context rank(cuda_options(segment_nbytes));
        const ContextScope inner(rank);
        survivor = Tensor::zeros({5});
      }
    }
    CHECK_NOTHROW(session.finish());
  }
}
