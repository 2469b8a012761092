// Gradients that go to a place of the caller's choosing.
#include "check_gradients.h"

#include "autograd/backward.h"
#include "device/context.h"

namespace fsdp {

namespace {
using Floats = std::vector<float>;
}  // namespace

TEST_CASE("a buffer receives the gradient, at any element of its storage") {
  Variable w(Tensor::from(Floats{1, 2}, {1, 2}), true);
  const Tensor flat = Tensor::from(Floats{7, 7, 7, 7, 7}, {5});
  w.set_grad_buffer(flat.narrow(0, 1, 2).view({1, 2}));
  CHECK_FALSE(w.grad().is_defined());
  CHECK_FALSE(w.grad_written());

  const Variable x(Tensor::from(Floats{3, 4}, {1, 2}));
  sum(linear(x, w)).backward();
  CHECK(w.grad_written());
  CHECK(flat.to_vector<float>() == Floats{7, 3, 4, 7, 7});
  CHECK(w.grad().storage() == flat.storage());

  SECTION("later contributions add") {
    sum(linear(x, w)).backward();
    CHECK(flat.to_vector<float>() == Floats{7, 6, 8, 7, 7});
  }
  SECTION("after reset_grad_buffer() the next one overwrites") {
    w.reset_grad_buffer();
    CHECK_FALSE(w.grad().is_defined());
    CHECK_FALSE(w.grad_written());
    sum(linear(x, w)).backward();
    CHECK(flat.to_vector<float>() == Floats{7, 3, 4, 7, 7});
  }
  SECTION("an undefined buffer ends it") {
    w.set_grad_buffer({});
    sum(linear(x, w)).backward();
    CHECK(w.grad().storage() != flat.storage());
  }
}

TEST_CASE("a buffer's bytes need only be there while backward writes") {
  auto storage = std::make_shared<Storage>(kCpu, 8, MemoryKind::unsharded_grad);
  Variable w(Tensor::from(Floats{1, 2}, {2}), true);
  w.set_grad_buffer(Tensor::view_of(storage, 0, {2}, DType::float32));
  const Variable loss = sum(multiply(w, w));
  storage->allocate();
  Floats seen;
  w.register_post_accumulate_grad_hook([&](const Variable& v) {
    seen = v.grad().to_vector<float>();
    storage->free();
  });
  loss.backward();
  CHECK(seen == Floats{2, 4});
  CHECK_THROWS_AS(w.grad().to_vector<float>(), StorageError);
}

TEST_CASE("buffers, data and gradients of the wrong shape are refused") {
  Variable w(Tensor::zeros({2, 3}), true);
  CHECK_THROWS_AS(w.set_grad_buffer(Tensor::zeros({6})), Error);
  CHECK_THROWS_AS(w.set_grad_buffer(Tensor::zeros({2, 3}, DType::float64)), Error);
  CHECK_THROWS_AS(w.set_data(Tensor::zeros({3, 2})), Error);
  CHECK_THROWS_AS(w.set_data(Tensor::empty({2, 3}, DType::float32, kMeta)), Error);
  CHECK_THROWS_AS(w.set_grad(Tensor::zeros({6})), Error);
  CHECK_THROWS_AS(w.reset_grad_buffer(), Error);
}

TEST_CASE("set_data points existing handles at the new bytes") {
  Variable w(Tensor::empty({2}, DType::float32, kMeta), true);
  const Variable other = w;
  w.set_data(Tensor::from(Floats{5, 6}, {2}));
  CHECK(other.data().to_vector<float>() == Floats{5, 6});
}

TEST_CASE("a leaf gradient is counted as UNSHARDED_GRAD and owned like the data") {
  Context context;
  const ContextScope scope(context);
  const auto owner = std::make_shared<const Owner>(Owner{"u", "w"});
  Variable w;
  {
    const AllocationScope params(MemoryKind::unsharded_param, owner);
    w = Variable(Tensor::zeros({4}), true);
  }
  sum(w).backward();
  CHECK(context.tracker().current()[MemoryKind::unsharded_grad] == 16);
  REQUIRE(w.grad().storage()->owner() != nullptr);
  CHECK(w.grad().storage()->owner()->name == "w");
  w.set_grad({});
  CHECK(context.tracker().current()[MemoryKind::unsharded_grad] == 0);
}

}  // namespace fsdp
