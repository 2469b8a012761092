// What a runner writes down of collectives: every one that was started, by who started it.
#include "graded/event_log.h"

#include "comm/fake_group.h"
#include "support/catch.h"

#include <memory>
#include <vector>

namespace fsdp::graded {
namespace {

const Label kForward{"unit", Phase::forward};
const Label kGradient{"unit", Phase::gradient};

}  // namespace

TEST_CASE("the log has every collective in order, those of groups that were split off too") {
  const auto log = std::make_shared<EventLog>(false);
  ProcessGroup group(make_logged(make_fake_backend(0, 4), log));
  CHECK(group.rank() == 0);
  CHECK(group.size() == 4);
  const Tensor shard = Tensor::zeros({10});
  group.all_gather(Tensor::zeros({40}), shard, kForward).wait();
  const auto pair = group.split_contiguous(2);
  pair->reduce_scatter(shard, Tensor::zeros({20}), ReduceOp::sum, kGradient).wait();
  group.all_reduce(Tensor::zeros({8}, DType::float64), ReduceOp::avg, kGradient).wait();

  const std::vector<CollectiveRecord>& all = log->collectives();
  REQUIRE(all.size() == 3);
  CHECK(all[0].op == CollectiveOp::all_gather);
  CHECK(all[0].label == kForward);
  CHECK(all[0].dtype == DType::float32);
  CHECK(all[0].numel == 10);
  CHECK(all[0].received_bytes == 120);
  CHECK(all[1].op == CollectiveOp::reduce_scatter);
  CHECK(all[1].received_bytes == 40);
  CHECK(all[2].dtype == DType::float64);
  CHECK(all[2].received_bytes == 96);
  REQUIRE(log->lines().size() == 6);
  CHECK(log->lines()[0].kind == EventKind::issue);
  CHECK(log->lines()[1].kind == EventKind::wait);
}

TEST_CASE("who aborts a decorated backend aborts the one inside") {
  const std::shared_ptr<Backend> inner = make_fake_backend(3, 5);
  make_logged(inner, std::make_shared<EventLog>(false))->abort("stop");
  ProcessGroup group(inner);
  CHECK_THROWS_AS(group.barrier({}), Aborted);
}

}  // namespace fsdp::graded
