#include "tensor/tensor.h"

#include "device/context.h"
#include "support/catch.h"
#include "tensor/ops.h"

using namespace fsdp;

namespace {

std::vector<float> counting(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

}  // namespace

TEST_CASE("a tensor knows its shape, strides and bytes") {
  const Tensor t = Tensor::from(counting(24), {2, 3, 4});
  CHECK(t.numel() == 24);
  CHECK(t.nbytes() == 96);
  CHECK(t.strides() == std::vector<std::int64_t>{12, 4, 1});
  CHECK(t.size(-1) == 4);
  CHECK(t.is_contiguous());
  CHECK_FALSE(Tensor().is_defined());
  CHECK(Tensor::from(std::vector<double>{2.5}, {}).item() == 2.5);
  CHECK(Tensor::zeros({3}, DType::int64).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 0});
}

TEST_CASE("views share the bytes") {
  const Tensor t = Tensor::from(counting(24), {2, 3, 4});
  const Tensor narrow = t.narrow(1, 1, 2);
  CHECK(narrow.shape() == Shape{2, 2, 4});
  CHECK(narrow.to_vector<float>() ==
        std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23});
  CHECK_FALSE(narrow.is_contiguous());
  CHECK(t.narrow(0, 1, 1).is_contiguous());
  CHECK(t.narrow(0, 1, 1).offset() == 12);
  const Tensor transposed = t.view({6, 4}).transpose(0, 1);
  CHECK(transposed.to_vector<float>()[1] == 4);
  t.data<float>()[4] = 99;
  CHECK(transposed.to_vector<float>()[1] == 99);
  CHECK(narrow.to_vector<float>()[0] == 99);
}

TEST_CASE("strided copies convert the type") {
  const Tensor t = Tensor::from(counting(24), {2, 3, 4});
  const Tensor out = Tensor::empty({4, 3, 2}, DType::float64);
  ops::copy(out, t.transpose(0, 2));
  const auto values = out.to_vector<double>();
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 2; ++k) {
        CHECK(values[(i * 3 + j) * 2 + k] == static_cast<double>(k * 12 + j * 4 + i));
      }
    }
  }
  const Tensor into = Tensor::zeros({4, 6});
  ops::copy(into.narrow(1, 2, 3), Tensor::from(counting(12), {4, 3}));
  CHECK(into.to_vector<float>()[6 + 2] == 3);
  CHECK(into.to_vector<float>()[6 + 5] == 0);
  const Tensor integers = Tensor::empty({3}, DType::int32);
  ops::copy(integers, Tensor::from(counting(3), {3}));
  CHECK(integers.to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("a view outlives its bytes and says who freed them") {
  auto owner = std::make_shared<const Owner>(Owner{"blocks.0", "wq.weight"});
  auto storage = std::make_shared<Storage>(kCpu, 40, MemoryKind::unsharded_param, owner);
  const Tensor t = Tensor::view_of(storage, 2, {2, 4}, DType::float32);
  CHECK(t.shape() == Shape{2, 4});
  CHECK_THROWS_AS(t.raw(), StorageError);
  storage->allocate();
  ops::fill(t, 3);
  CHECK(t.to_vector<float>() == std::vector<float>(8, 3));
  storage->free();
  const std::string message = message_of<StorageError>([&] { ops::fill(t, 1); });
  CHECK(message.find("blocks.0") != std::string::npos);
  CHECK(message.find("wq.weight") != std::string::npos);
}

TEST_CASE("wrong shapes, ranges and types are errors") {
  const Tensor t = Tensor::from(counting(24), {2, 3, 4});
  CHECK_THROWS_AS(t.view({5, 5}), Error);
  CHECK_THROWS_AS(t.narrow(1, 2, 2), Error);
  CHECK_THROWS_AS(t.narrow(3, 0, 1), Error);
  CHECK_THROWS_AS(t.transpose(0, 1).view({24}), Error);
  CHECK_THROWS_AS(t.data<double>(), Error);
  CHECK_THROWS_AS(t.item(), Error);
  CHECK_THROWS_AS(Tensor::from(counting(3), {4}), Error);
  CHECK_THROWS_AS(Tensor::empty({-1}), Error);
  CHECK_THROWS_AS(Tensor::view_of(t.storage(), 1, {24}, DType::float32), Error);
  CHECK_THROWS_AS(Tensor::view_of(t.storage(), 0, {13}, DType::float64), Error);
  CHECK_THROWS_AS(ops::copy(t, Tensor::zeros({24})), Error);
}

TEST_CASE("meta has shapes only, fake is counted but has no data") {
  const Tensor meta = Tensor::empty({1 << 20, 1 << 20}, DType::float32, kMeta);
  CHECK(meta.numel() == std::int64_t{1} << 40);
  CHECK(meta.view({1 << 10, 1 << 30}).size(0) == 1 << 10);
  ops::scale(meta, 2);

  Context context({.device = kFake, .cost_model = CostModel{.ps_per_flop = 1, .ps_per_byte = 2}});
  const ContextScope scope(context);
  const Tensor a = Tensor::empty({64, 32}), b = Tensor::empty({32, 16}),
               c = Tensor::empty({64, 16});
  CHECK(context.tracker().current()[MemoryKind::activation] == 4 * (64 * 32 + 32 * 16 + 64 * 16));
  CHECK(a.data<float>() == nullptr);
  CHECK_THROWS_AS(a.to_vector<float>(), Error);
  ops::matmul(c, a, ops::Transpose::no, b, ops::Transpose::no);
  CHECK(context.clock()->now() == 2 * 64 * 32 * 16);  // bound by arithmetic
  const std::int64_t before = context.clock()->now();
  ops::add(c, c, c);
  CHECK(context.clock()->now() - before == 2 * 3 * 4 * 64 * 16);  // bound by memory
  a.storage()->free();
  CHECK_THROWS_AS(ops::scale(a, 2), StorageError);
}
