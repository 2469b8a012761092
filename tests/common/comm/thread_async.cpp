// Communication goes on while the ranks compute: shown by order, not by a clock.
#include "comm/world.h"
#include "worlds.h"

#include <atomic>
#include <latch>
#include <thread>

namespace fsdp::comm_test {
namespace {

const Label kUnitLabel{"unit", Phase::forward};

/// Looks again and again, without ever waiting. The bound only turns a failure into an end.
bool becomes_done(const Work& work) {
  for (std::int64_t look = 0; look < 100'000'000; ++look) {
    if (work.is_done()) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

TEST_CASE("a collective ends although no rank ever waits for it") {
  run_ranks(3, [](ProcessGroup& group) {
    const std::int64_t n = 300'007;
    const Tensor in = Tensor::from(std::vector<float>(n, static_cast<float>(group.rank())), {n});
    const Tensor out = Tensor::empty({group.size() * n});
    Work work = group.all_gather(out, in, kUnitLabel);
    expect(becomes_done(work), "rank {}: no progress without a wait", group.rank());
    for (std::int64_t i = 0; i < out.numel(); ++i)
      expect(out.data<float>()[i] == static_cast<float>(i / n), "element {}", i);
    work.wait();
  });
}

TEST_CASE("a collective ends although the thread of one of its ranks is blocked elsewhere") {
  std::latch done(1);
  run_ranks(2, [&](ProcessGroup& group) {
    const Tensor data = Tensor::zeros({1'000'003});
    Work work = group.all_reduce(data, ReduceOp::sum, kUnitLabel);
    if (group.rank() == 0) {
      done.wait();  // "computes"
      expect(work.is_done(), "rank 1 saw the end, rank 0 does not");
    } else {
      const bool ended = becomes_done(work);
      done.count_down();
      expect(ended, "rank 1 needs the thread of rank 0");
    }
    work.wait();
  });
}

TEST_CASE("starting a collective never waits for another rank") {
  std::latch issued(1);
  run_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) issued.wait();  // rank 1 calls nothing before rank 0 has called it all
    std::vector<Tensor> data;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      data.push_back(Tensor::from(std::vector<float>(50'000, 1.0F), {50'000}));
      works.push_back(group.all_reduce(data.back(), ReduceOp::sum, kUnitLabel));
    }
    if (group.rank() == 0) issued.count_down();
    for (Work& work : works) work.wait();
    for (const Tensor& sum : data) expect(sum.data<float>()[49'999] == 2.0F, "wrong sum");
  });
}

TEST_CASE("a second group goes on while the first waits for a rank") {
  std::latch second_done(1);
  run_ranks(3, [&](ProcessGroup& group) {
    const auto pair = group.split(group.rank() == 2 ? 1 : 0, 0);
    if (group.rank() == 2) second_done.wait();
    Work whole = group.barrier(kUnitLabel);
    if (group.rank() < 2) {
      const Tensor data = Tensor::from(std::vector<float>(200'000, 1.0F), {200'000});
      pair->all_reduce(data, ReduceOp::sum, kUnitLabel).wait();
      expect(!whole.is_done(), "the barrier cannot be over");
      pair->barrier(kUnitLabel).wait();
      if (group.rank() == 0) second_done.count_down();
    }
    whole.wait();
  });
}

TEST_CASE("64 ranks on however few processors there are") {
  run_ranks(64, [](ProcessGroup& group) {
    const Tensor data = Tensor::from<std::int64_t>({group.rank(), 1, -1}, {3});
    for (int round = 0; round < 3; ++round) group.barrier(kUnitLabel).wait();
    group.all_reduce(data, ReduceOp::sum, kUnitLabel).wait();
    expect(data.to_vector<std::int64_t>() == std::vector<std::int64_t>{2016, 64, -64}, "sum");
  });
}

TEST_CASE("a rank's thread has a context of its own") {
  RankOptions options;
  options.world_size = 3;
  options.threads_per_rank = 2;
  options.seed = 7;
  options.record_trace = true;
  std::atomic<int> bodies = 0;
  run_ranks(options, [&](ProcessGroup& group) {
    Context& context = Context::current();
    expect(context.rank() == group.rank() && context.world_size() == 3, "rank");
    expect(context.options().threads == 2 && context.generator().seed() == 7, "options");
    expect(context.trace().is_recording() && context.trace().events().empty(), "trace");
    ++bodies;
  });
  CHECK(bodies == 3);
  CHECK_THROWS_AS(run_ranks(0, [](ProcessGroup&) {}), Error);
}

TEST_CASE("issue and wait are in the trace, with label, number and the bytes a rank receives") {
  RankOptions options;
  options.world_size = 4;
  options.record_trace = true;
  run_ranks(options, [](ProcessGroup& group) {
    const Tensor out = Tensor::empty({40});
    Work first = group.all_gather(out, out.narrow(0, group.rank() * 10, 10), {"a", Phase::forward});
    Work second =
        group.reduce_scatter(Tensor::empty({10}), out, ReduceOp::sum, {"b", Phase::gradient});
    second.wait();
    first.wait();
    first.wait();
    { const Work dropped = group.barrier({"c", Phase::none}); }  // waits, too
    Work replaced = group.barrier({"d", Phase::none});
    replaced = Work();

    const std::vector<Event>& events = Context::current().trace().events();
    const auto is = [&](std::size_t i, EventKind kind, const std::string& name, const Label& label,
                        std::int64_t nbytes, std::int64_t sequence) {
      const Event& event = events.at(i);
      expect(event.kind == kind && event.name == name && event.unit == label.unit &&
                 event.phase == label.phase && event.nbytes == nbytes && event.sequence == sequence,
             "event {} is '{}', {} bytes, number {}", i, to_string(event), event.nbytes,
             event.sequence);
    };
    expect(events.size() == 8, "{} events", events.size());
    is(0, EventKind::issue, "all_gather", {"a", Phase::forward}, 3 * 10 * 4, 0);
    is(1, EventKind::issue, "reduce_scatter", {"b", Phase::gradient}, 3 * 10 * 4, 1);
    is(2, EventKind::wait, "reduce_scatter", {"b", Phase::gradient}, 3 * 10 * 4, 1);
    is(3, EventKind::wait, "all_gather", {"a", Phase::forward}, 3 * 10 * 4, 0);
    is(4, EventKind::issue, "barrier", {"c", Phase::none}, 0, 2);
    is(5, EventKind::wait, "barrier", {"c", Phase::none}, 0, 2);
    is(6, EventKind::issue, "barrier", {"d", Phase::none}, 0, 3);
    is(7, EventKind::wait, "barrier", {"d", Phase::none}, 0, 3);
  });
}

}  // namespace fsdp::comm_test
