// Time on the fake group is arithmetic, so these are equalities.
#include "comm/fake_group.h"
#include "device/context.h"
#include "support/catch.h"

namespace fsdp {
namespace {

constexpr std::int64_t kAlpha = 1'000;
constexpr double kPsPerByte = 2;

Context::Options with_clock() {
  Context::Options options;
  options.device = kFake;
  options.cost_model = CostModel{
      .ps_per_flop = 1, .ps_per_byte = 0, .alpha_ps = kAlpha, .link_ps_per_byte = kPsPerByte};
  return options;
}

const Label kForwardLabel{"unit", Phase::forward};

/// (W-1) hops and the bytes a rank receives.
std::int64_t duration(int world_size, std::int64_t nbytes) {
  return (world_size - 1) * kAlpha + 2 * nbytes;
}

}  // namespace

TEST_CASE("fake group: every collective takes latency plus received bytes over the link") {
  Context context(with_clock());
  const ContextScope scope(context);
  const VirtualClock& clock = *context.clock();
  const int W = 4;
  ProcessGroup group = make_fake_group(1, W);
  const Tensor shard = Tensor::empty({100});
  const Tensor whole = Tensor::empty({400});

  std::int64_t expected = 0;
  group.all_gather(whole, shard, kForwardLabel).wait();
  CHECK(clock.now() == (expected += duration(W, 3 * 400)));
  group.reduce_scatter(shard, whole, ReduceOp::sum, kForwardLabel).wait();
  CHECK(clock.now() == (expected += duration(W, 3 * 400)));
  group.all_reduce(whole, ReduceOp::sum, kForwardLabel).wait();
  CHECK(clock.now() == (expected += duration(W, 2 * 3 * 400)));
  group.broadcast(whole, 3, kForwardLabel).wait();
  CHECK(clock.now() == (expected += duration(W, 1600)));
  group.reduce(Tensor(), whole, 0, ReduceOp::sum, kForwardLabel).wait();
  CHECK(clock.now() == (expected += duration(W, 1600)));
  group.barrier(kForwardLabel).wait();
  CHECK(clock.now() == (expected += duration(W, 0)));
}

TEST_CASE("fake group: one channel, beside the computation") {
  Context context(with_clock());
  const ContextScope scope(context);
  VirtualClock& clock = *context.clock();
  ProcessGroup group = make_fake_group(0, 2);
  const Tensor shard = Tensor::empty({100});
  const Tensor whole = Tensor::empty({200});
  const std::int64_t gather = duration(2, 400);

  Work first = group.all_gather(whole, shard, kForwardLabel);
  Work second = group.all_gather(whole, shard, kForwardLabel);
  CHECK(clock.now() == 0);
  CHECK_FALSE(first.is_done());
  clock.compute({.flops = 500});
  first.wait();  // not yet over: the computation stands still
  CHECK(clock.now() == gather);
  CHECK_FALSE(second.is_done());
  clock.compute({.flops = 10'000});
  CHECK(second.is_done());
  second.wait();  // long over: nothing is lost
  CHECK(clock.now() == gather + 10'000);

  { const Work dropped = group.all_gather(whole, shard, kForwardLabel); }
  CHECK(clock.now() == gather + 10'000 + gather);
}

TEST_CASE("fake group: a gather begins when the copy of its shard from the host has ended") {
  Context context(with_clock());
  const ContextScope scope(context);
  ProcessGroup group = make_fake_group(0, 2);
  const Tensor whole = Tensor::empty({2});
  const Tensor shard = Tensor::empty({1});
  shard.storage()->set_ready(5000);
  context.trace().set_recording(true);
  group.all_gather(whole, shard, kForwardLabel).wait();
  CHECK(context.clock()->now() == 5000 + duration(2, 4));
  CHECK(context.trace().events().at(0).ready == 5000);
}

TEST_CASE("fake group: a collective on host memory is refused, with the remedy") {
  Context context(with_clock());
  const ContextScope scope(context);
  ProcessGroup group = make_fake_group(0, 2);
  const Tensor shard = Tensor::empty({1}, DType::float32, kFakeHost);
  CHECK_THROWS_WITH(group.all_gather(Tensor::empty({2}), shard, kForwardLabel),
                    contains("`in` is on fake:1, in host memory") && contains("gather_input()"));
}

TEST_CASE("fake group: asking for ever, while nothing moves the clock, is an error") {
  Context context(with_clock());
  const ContextScope scope(context);
  ProcessGroup group = make_fake_group(0, 2);
  const Work work = group.all_gather(Tensor::empty({2}), Tensor::empty({1}), kForwardLabel);
  CHECK_THAT(message_of<Error>([&] {
               while (!work.is_done()) {
               }
             }),
             contains("is_done() was called 100000 times at virtual time 0 ns"));
}

TEST_CASE("fake group: the trace shows when a wait ended") {
  Context context(with_clock());
  const ContextScope scope(context);
  context.trace().set_recording(true);
  ProcessGroup group = make_fake_group(0, 2);
  group.all_gather(Tensor::empty({2}), Tensor::empty({1}), kForwardLabel).wait();
  const std::vector<Event>& events = context.trace().events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == EventKind::issue);
  CHECK(events[0].time == 0);
  CHECK(events[1].kind == EventKind::wait);
  CHECK(events[1].time == duration(2, 4));
}

TEST_CASE("fake group: without a clock everything is done at once, and data is left alone") {
  ProcessGroup group = make_fake_group(2, 3);
  CHECK(group.rank() == 2);
  CHECK(group.size() == 3);
  const Tensor data = Tensor::from<float>({1, 2}, {2});
  Work work = group.all_reduce(data, ReduceOp::sum, kForwardLabel);
  CHECK(work.is_done());
  work.wait();
  CHECK(data.to_vector<float>() == std::vector<float>{1, 2});
  CHECK_THROWS_AS(group.all_gather(data, data, kForwardLabel),
                  Error);  // checked like any other group
}

TEST_CASE("fake group: thousands of ranks, regular splits have a size, colors do not") {
  ProcessGroup group = make_fake_group(4097, 16'384);
  const auto near = group.split_contiguous(8);
  CHECK(near->size() == 8);
  CHECK(near->rank() == 1);
  const auto far = group.split_strided(8);
  CHECK(far->size() == 2048);
  CHECK(far->rank() == 512);
  CHECK(message_of<Error>([&] { (void)group.split(0, 0); }).find("split_contiguous") !=
        std::string::npos);
  CHECK_THROWS_AS(group.split_contiguous(3), Error);
  CHECK_THROWS_AS(make_fake_backend(4, 4), Error);
}

TEST_CASE("fake group: an abort reaches every later call") {
  ProcessGroup group = make_fake_group(0, 2);
  group.abort("enough");
  CHECK(message_of<Aborted>([&] { (void)group.barrier(kForwardLabel); }) == "Aborted: enough");
}

}  // namespace fsdp
