#include "comm/decorators.h"

#include "comm/fake_group.h"
#include "support/catch.h"

namespace fsdp {
namespace {

const Label kForward{"unit", Phase::forward};
const Label kGradient{"unit", Phase::gradient};

}  // namespace

TEST_CASE("received bytes of a collective") {
  const std::size_t element = 4;
  CHECK(received_bytes(CollectiveOp::all_gather, 10, element, 4) == 120);
  CHECK(received_bytes(CollectiveOp::reduce_scatter, 10, element, 4) == 120);
  CHECK(received_bytes(CollectiveOp::all_reduce, 40, element, 4) == 240);
  CHECK(received_bytes(CollectiveOp::broadcast, 10, element, 4) == 40);
  CHECK(received_bytes(CollectiveOp::reduce, 10, element, 4) == 40);
  CHECK(received_bytes(CollectiveOp::barrier, 0, element, 4) == 0);
  for (const auto op : {CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                        CollectiveOp::all_reduce, CollectiveOp::broadcast, CollectiveOp::reduce})
    CHECK(received_bytes(op, 10, element, 1) == 0);
}

TEST_CASE("all_reduce receives what reduce_scatter and all_gather receive together") {
  for (const int W : {2, 3, 4, 8})
    CHECK(received_bytes(CollectiveOp::all_reduce, 5 * W, 4, W) ==
          received_bytes(CollectiveOp::reduce_scatter, 5, 4, W) +
              received_bytes(CollectiveOp::all_gather, 5, 4, W));
}

TEST_CASE("the recorder's ledger: what was called, in order, subgroups included") {
  const auto ledger = std::make_shared<CollectiveLog>();
  ProcessGroup group(make_recording(make_fake_backend(0, 4), ledger));
  const Tensor shard = Tensor::zeros({10});
  const Tensor whole = Tensor::zeros({40});
  group.all_gather(whole, shard, kForward).wait();
  const auto pair = group.split_contiguous(2);
  pair->reduce_scatter(shard, Tensor::zeros({20}), ReduceOp::sum, kGradient).wait();
  group.all_reduce(Tensor::zeros({8}, DType::float64), ReduceOp::avg, kGradient).wait();

  REQUIRE(ledger->entries().size() == 3);
  const CollectiveRecord& gather = ledger->entries()[0];
  CHECK(gather.op == CollectiveOp::all_gather);
  CHECK(gather.label == kForward);
  CHECK(gather.dtype == DType::float32);
  CHECK(gather.numel == 10);
  CHECK(gather.received_bytes == 120);
  CHECK(ledger->entries()[1].op == CollectiveOp::reduce_scatter);
  CHECK(ledger->entries()[1].received_bytes == 40);
  CHECK(ledger->entries()[2].dtype == DType::float64);
  CHECK(ledger->entries()[2].received_bytes == 96);
  CHECK(ledger->received_bytes() == 120 + 40 + 96);
  ledger->clear();
  CHECK(ledger->received_bytes() == 0);
}

TEST_CASE("decorators hand through who they decorate") {
  const auto inner = make_fake_backend(3, 5);
  for (const auto& backend : {make_recording(inner, std::make_shared<CollectiveLog>()),
                              make_throttled(inner, LinkModel{})}) {
    CHECK(backend->rank() == 3);
    CHECK(backend->size() == 5);
    CHECK(backend->name() == "fake");
  }
  make_throttled(inner, LinkModel{})->abort("stop");
  ProcessGroup group(inner);
  CHECK_THROWS_AS(group.barrier({}), Aborted);
}

}  // namespace fsdp
