// Storages, copies to the host, and the classic mistakes with streams.
#include "cuda/on_device.h"
#include "cuda_stand_in/last_words.h"
#include "tensor/cast.h"
#include "tensor/host_copy.h"
#include "tensor/tree_sum.h"

#include <cstdio>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Context;
using fsdp::ContextScope;
using fsdp::DType;
using fsdp::Error;
using fsdp::HostCopy;
using fsdp::kCpu;
using fsdp::kCpuHost;
using fsdp::kCuda;
using fsdp::MemoryKind;
using fsdp::RankDevice;
using fsdp::Storage;
using fsdp::StorageError;
using fsdp::Tensor;
namespace ops = fsdp::ops;

namespace {

constexpr std::int64_t kNumel = 300;

Tensor pinned(const std::vector<float>& from) {
  const Tensor made =
      Tensor::empty({static_cast<std::int64_t>(from.size())}, DType::float32, kCpuHost);
  std::copy(from.begin(), from.end(), made.data<float>());
  return made;
}

}  // namespace

TEST_CASE("views of a storage on a CUDA device live through free and allocate", "[storage]") {
  on_device_in_some_plans([] {
    const auto storage = std::make_shared<Storage>(kCuda, kNumel * 4, MemoryKind::unsharded_param);
    const Tensor view = Tensor::view_of(storage, 9, {40}, DType::float32);
    for (const float round : {1.0F, 2.0F}) {
      storage->allocate();
      for (const float value : view.to_vector<float>()) CHECK(std::isnan(value));
      ops::fill(Tensor::view_of(storage, 0, {kNumel}, DType::float32), round);
      CHECK(view.to_vector<float>() == std::vector<float>(40, round));
      storage->free("a test");
      CHECK_THAT(message_of<StorageError>([&] { ops::fill(view, 0); }), contains("it was freed"));
    }
    CHECK(Context::current().tracker().current_total() == 0);
    return Outputs{};
  });
}

TEST_CASE("storages on a CUDA device swap their bytes and keep leases", "[storage]") {
  on_device_in_some_plans([] {
    const Tensor a = Tensor::from(values<float>(kNumel, 1), {kNumel});
    const Tensor b = Tensor::from(values<float>(kNumel, 2), {kNumel});
    a.storage()->swap_bytes(*b.storage());
    CHECK(a.to_vector<float>() == values<float>(kNumel, 2));
    CHECK(b.to_vector<float>() == values<float>(kNumel, 1));
    {
      const Storage::Lease lease(a.storage());
      CHECK_THROWS_AS(a.storage()->free(), StorageError);
    }
    a.storage()->free();
    a.storage()->swap_bytes(*b.storage());
    CHECK_FALSE(b.storage()->is_allocated());
    CHECK(a.to_vector<float>() == values<float>(kNumel, 1));
    return Outputs{};
  });
}

TEST_CASE("gradients on a CUDA device are summed in the canonical order", "[storage]") {
  const auto sum = [] {
    fsdp::TreeAccumulator all(MemoryKind::unsharded_grad, nullptr);
    for (std::int64_t i = 0; i < 5; ++i) {
      const Tensor leaf = Tensor::from(values<float>(kNumel, i), {kNumel});
      ops::scale(leaf, 1.0 / static_cast<double>(3 + i));
      all.push(leaf);
    }
    return fsdp::on_host(all.fold());
  };
  const Tensor expected = sum();
  CHECK(ops::equal_bits(on_device_in_some_plans([&] { return Outputs{sum()}; })[0], expected));
}

TEST_CASE("tensors are copied between a CUDA device and its host", "[storage][stand-in]") {
  const Outputs outputs = on_device_in_some_plans([] {
    const std::vector<float> sent = values<float>(kNumel, 1);
    const Tensor there = Tensor::empty({kNumel}), back = pinned(std::vector<float>(kNumel, 0));
    const auto waits = cuda_on_host::host_waits();
    ops::copy(there, pinned(sent));  // the host does not wait, and its tensor ends here
    CHECK(cuda_on_host::host_waits() == waits);
    fsdp::start_host_copy(back, there, {}).wait();
    CHECK(cuda_on_host::host_waits() == waits + 1);
    CHECK(back.to_vector<float>() == sent);

    const Tensor pageable = Tensor::empty({kNumel}, DType::float32, kCpu);
    ops::fill(pageable, 3);
    ops::copy(there, pageable);  // through pinned memory: no wait either
    CHECK(cuda_on_host::host_waits() == waits + 1);
    ops::fill(pageable, 4);
    CHECK(there.to_vector<float>() == std::vector<float>(kNumel, 3));
    ops::scale(there, 2);
    ops::copy(pageable, there);
    CHECK(pageable.to_vector<float>() == std::vector<float>(kNumel, 6));
    return Outputs{};
  });
}

TEST_CASE("a copy between a CUDA device and its host rounds once", "[storage]") {
  std::vector<float> sent = values<float>(kNumel, 1);
  for (float& value : sent) value /= 3;
  const Tensor expected = Tensor::empty({kNumel}, DType::bfloat16);
  ops::copy(expected, Tensor::from(sent, {kNumel}));
  const Outputs outputs = on_device_in_some_plans([&] {
    const Tensor there = Tensor::empty({kNumel}, DType::bfloat16);
    ops::copy(there, pinned(sent));
    const Tensor wide = Tensor::from(sent, {kNumel});
    const Tensor back = Tensor::empty({kNumel}, DType::bfloat16, kCpuHost);
    ops::copy(back, wide);
    const Tensor moved = Tensor::empty({kNumel}, DType::bfloat16, kCpu);
    ops::copy(moved, back);
    return Outputs{fsdp::on_host(there), moved};
  });
  CHECK(ops::equal_bits(outputs[0], expected));
  CHECK(ops::equal_bits(outputs[1], expected));
}

TEST_CASE("the host waits before it computes on memory that is being copied", "[storage]") {
  on_device_in_some_plans([] {
    const Tensor there = Tensor::zeros({kNumel}), here = pinned(values<float>(kNumel, 1));
    fsdp::start_host_copy(there, here, {}).wait();  // the device waits, the host does not
    ops::scale(here, 2);
    CHECK(there.to_vector<float>() == values<float>(kNumel, 1));
    return Outputs{};
  });
}

TEST_CASE("bytes that are being copied cannot be freed", "[storage]") {
  on_device_in_some_plans([] {
    const Tensor there = Tensor::zeros({kNumel}), here = pinned(values<float>(kNumel, 1));
    HostCopy copy = fsdp::start_host_copy(there, here, {});
    CHECK_THROWS_AS(there.storage()->free(), StorageError);
    CHECK_THROWS_AS(here.storage()->free(), StorageError);
    copy.wait();
    there.storage()->free();
    return Outputs{};
  });
}

TEST_CASE("a copy that nothing waits for is found", "[storage][mistakes][stand-in]") {
  for (const std::size_t segment_nbytes : kSegments) {
    misuse_on_device("nothing orders the two", segment_nbytes, [] {
      const Tensor there = Tensor::zeros({kNumel}), here = pinned(values<float>(kNumel, 1));
      const HostCopy forgotten = fsdp::start_host_copy(there, here, {});
      ops::scale(there, 2);
      there.to_vector<float>();
    });
  }
}

TEST_CASE("bytes that another stream still uses when they are freed are found",
          "[storage][mistakes][stand-in]") {
  for (const std::size_t segment_nbytes : kSegments) {
    misuse_on_device("cudaMemcpyAsync of 1200 bytes on stream 2", segment_nbytes, [] {
      RankDevice& device = Context::current().rank_device();
      const Tensor from = Tensor::zeros({kNumel});
      {
        const Tensor to = Tensor::zeros({kNumel});
        device.make_wait(device.communication(), *device.record(device.compute()));
        device.copy(device.communication(), to.raw(), from.raw(), to.nbytes());
      }  // freed before the compute stream waits
      const Tensor next = Tensor::zeros({kNumel});
      next.to_vector<float>();
      device.make_wait(device.compute(), *device.record(device.communication()));
      device.synchronize();
    });
  }
}

TEST_CASE("another stream that does not wait for the kernels before it is found",
          "[storage][mistakes][stand-in]") {
  for (const std::size_t segment_nbytes : kSegments) {
    misuse_on_device("nothing orders the two", segment_nbytes, [] {
      RankDevice& device = Context::current().rank_device();
      const Tensor from = Tensor::zeros({kNumel}), to = Tensor::zeros({kNumel});
      device.copy(device.communication(), to.raw(), from.raw(), to.nbytes());
      device.make_wait(device.compute(), *device.record(device.communication()));
      to.to_vector<float>();
    });
  }
}

TEST_CASE("host code that reads a tensor of a CUDA device ends with a sentence",
          "[storage][mistakes][stand-in]") {
  for (const Plan& plan : some_plans()) {
    INFO(text_of(plan));
    const std::string words = last_words([&] {
      const Session session(plan);
      Context context(cuda_options(0));
      const ContextScope scope(context);
      const Tensor t = Tensor::zeros({4});
      std::printf("%f", static_cast<double>(*static_cast<volatile float*>(t.data<float>())));
    });
    CHECK_THAT(words, contains("host code touched device memory"));
  }
}
