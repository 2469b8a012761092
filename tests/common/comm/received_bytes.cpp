#include "comm/fake_group.h"
#include "comm/process_group.h"
#include "support/catch.h"

namespace fsdp {
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

TEST_CASE("a group and its splits count together what a rank has received") {
  const Label forward{"unit", Phase::forward}, gradient{"unit", Phase::gradient};
  ProcessGroup group(make_fake_backend(0, 4));
  CHECK(group.total_received() == 0);
  const Tensor shard = Tensor::zeros({10});
  const Tensor whole = Tensor::zeros({40});
  group.all_gather(whole, shard, forward).wait();
  CHECK(group.total_received() == 120);
  const auto pair = group.split_contiguous(2);
  pair->reduce_scatter(shard, Tensor::zeros({20}), ReduceOp::sum, gradient).wait();
  CHECK(group.total_received() == 120 + 40);
  group.all_reduce(Tensor::zeros({8}, DType::float64), ReduceOp::avg, gradient).wait();
  pair->split_strided(2)->barrier({}).wait();
  CHECK(group.total_received() == 120 + 40 + 96);
  CHECK(pair->total_received() == group.total_received());
}

}  // namespace fsdp
