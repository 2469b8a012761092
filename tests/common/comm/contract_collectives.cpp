// What every backend must do, collective by collective: against sums written down element by
// element.
#include "comm/processes/plan.h"
#include "tensor/ops.h"
#include "worlds.h"

namespace fsdp::comm_test {
namespace {

// None, one, fewer than a cache line, and what no world size divides.
constexpr std::int64_t kSizes[] = {0, 1, 7, 331};
// More than one piece of work (thread_transfer.cpp), even between two ranks.
constexpr std::int64_t kLarge = 100'003;

const Label kLabel{"unit", Phase::forward};

template <class T>
void check_all_gather(const World& world, ProcessGroup& group, std::int64_t n) {
  const Tensor in = Tensor::from(contribution<T>(group.rank(), n), {n});
  const Tensor out = Tensor::empty({group.size(), n}, dtype_of<T>());
  group.all_gather(out, in, kLabel).wait();
  expect_elements<T>(world, out,
                     [&](std::int64_t i) { return element<T>(static_cast<int>(i / n), i % n); });
}

template <class T>
void check_reduce_scatter(const World& world, ProcessGroup& group, std::int64_t n, ReduceOp op) {
  const std::int64_t numel = n * group.size();
  const Tensor in = Tensor::from(contribution<T>(group.rank(), numel), {numel});
  const Tensor out = Tensor::empty({n}, dtype_of<T>());
  group.reduce_scatter(out, in, op, kLabel).wait();
  expect_elements<T>(world, out, [&](std::int64_t i) {
    return reduced<T>(group.size(), group.rank() * n + i, op);
  });
}

template <class T>
void check_all_reduce(const World& world, ProcessGroup& group, std::int64_t numel, ReduceOp op) {
  const Tensor data = Tensor::from(contribution<T>(group.rank(), numel), {numel});
  group.all_reduce(data, op, kLabel).wait();
  expect_elements<T>(world, data, [&](std::int64_t i) { return reduced<T>(group.size(), i, op); });
}

template <class T>
void check_broadcast(const World& world, ProcessGroup& group, std::int64_t numel, int root) {
  const Tensor data = Tensor::from(contribution<T>(group.rank(), numel), {numel});
  group.broadcast(data, root, kLabel).wait();
  expect_elements<T>(world, data, [&](std::int64_t i) { return element<T>(root, i); });
}

template <class T>
void check_reduce(const World& world, ProcessGroup& group, std::int64_t numel, int root) {
  const Tensor in = Tensor::from(contribution<T>(group.rank(), numel), {numel});
  const Tensor out = group.rank() == root ? Tensor::empty({numel}, dtype_of<T>()) : Tensor();
  group.reduce(out, in, root, ReduceOp::sum, kLabel).wait();
  expect_elements<T>(world, in, [&](std::int64_t i) { return element<T>(group.rank(), i); });
  if (group.rank() == root)
    expect_elements<T>(world, out, [&](std::int64_t i) { return reduced<T>(group.size(), i); });
}

template <class T>
void check_all(const World& world, ProcessGroup& group) {
  for (const std::int64_t n : kSizes) {
    check_all_gather<T>(world, group, n);
    check_broadcast<T>(world, group, n, group.size() - 1);
    if (world.on_device && std::is_same_v<T, double>) continue;  // which it does not add
    check_reduce_scatter<T>(world, group, n, ReduceOp::sum);
    check_all_reduce<T>(world, group, n, ReduceOp::sum);
    if constexpr (!std::is_integral_v<T>) {
      check_reduce_scatter<T>(world, group, n, ReduceOp::avg);
      check_all_reduce<T>(world, group, n, ReduceOp::avg);
    }
    for (const int root : {0, group.size() - 1}) {
      check_broadcast<T>(world, group, n, root);
      check_reduce<T>(world, group, n, root);
    }
  }
}

}  // namespace

TEST_CASE("every collective gives what its definition says, float32", "[world]") {
  in_every_world(check_all<float>);
}

TEST_CASE("every collective gives what its definition says, float64", "[world]") {
  in_every_world(check_all<double>);
}

TEST_CASE("every collective gives what its definition says, bfloat16", "[world]") {
  in_every_world(check_all<BFloat16>);
}

TEST_CASE("every collective gives what its definition says, float16", "[world]") {
  in_every_world(check_all<Float16>);
}

TEST_CASE("every collective gives what its definition says, int32", "[world]") {
  in_every_world(check_all<std::int32_t>);
}

TEST_CASE("every collective gives what its definition says, int64", "[world]") {
  in_every_world(check_all<std::int64_t>);
}

TEST_CASE("collectives that are cut into pieces", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    if (world.on_device) return;   // where nothing is cut
    if (group.size() > 3) return;  // writing the sums down element by element takes time
    check_all_gather<float>(world, group, kLarge);
    check_reduce_scatter<float>(world, group, kLarge, ReduceOp::avg);
    check_all_reduce<float>(world, group, kLarge, ReduceOp::sum);
    check_broadcast<float>(world, group, kLarge, group.size() - 1);
    check_reduce<float>(world, group, kLarge, group.size() - 1);
  });
}

TEST_CASE("sums that no buffer of a transport can hold at once", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    if (group.size() != 4 || world.on_device) return;
    const std::int64_t n = 2 * (processes::kMostScratch / 8) + 7;
    std::vector<float> sums;
    for (std::int64_t i = 0; i < kPeriod; ++i) sums.push_back(reduced<float>(4, i));
    const auto sum = [&](std::int64_t i) { return sums[static_cast<std::size_t>(i % kPeriod)]; };
    const Tensor in = Tensor::from(contribution<float>(group.rank(), 4 * n), {4 * n});
    const Tensor piece = Tensor::empty({n});
    group.reduce_scatter(piece, in, ReduceOp::sum, kLabel).wait();
    expect_elements<float>(world, piece, [&](std::int64_t i) { return sum(group.rank() * n + i); });
    const int root = 2;
    const Tensor out = group.rank() == root ? Tensor::empty({4 * n - 3}) : Tensor();
    group.reduce(out, in.narrow(0, 1, 4 * n - 3), root, ReduceOp::sum, kLabel).wait();
    if (group.rank() == root)
      expect_elements<float>(world, out, [&](std::int64_t i) { return sum(i + 1); });
    const Tensor own = in.narrow(0, group.rank() * n, n);
    group.reduce_scatter(own, in, ReduceOp::sum, kLabel).wait();
    expect_elements<float>(world, own, [&](std::int64_t i) { return sum(group.rank() * n + i); });
  });
}

TEST_CASE("an all_reduce has the bits of a reduce_scatter and an all_gather", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    for (const std::int64_t n : kSizes) {
      const std::int64_t numel = n * group.size();
      const Tensor in = Tensor::from(contribution<float>(group.rank(), numel), {numel});
      const Tensor part = Tensor::empty({n});
      const Tensor whole = Tensor::empty({numel});
      group.reduce_scatter(part, in, ReduceOp::sum, kLabel).wait();
      group.all_gather(whole, part, kLabel).wait();
      group.all_reduce(in, ReduceOp::sum, kLabel).wait();
      if (!world.canonical_bits) continue;
      expect(ops::equal_bits(in, whole), "the sums of {} elements differ", numel);
    }
  });
}

TEST_CASE("all_gather in place", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    for (const std::int64_t n : kSizes) {
      const Tensor out = Tensor::empty({group.size() * n});
      const Tensor in = out.narrow(0, group.rank() * n, n);
      put(in, contribution<float>(group.rank(), n));
      group.all_gather(out, in, kLabel).wait();
      expect_elements<float>(world, out, [&](std::int64_t i) {
        return element<float>(static_cast<int>(i / n), i % n);
      });
    }
  });
}

TEST_CASE("reduce_scatter into this rank's slot of its own input", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    const std::int64_t n = 1003;
    const std::int64_t numel = n * group.size();
    const Tensor in = Tensor::from(contribution<float>(group.rank(), numel), {numel});
    const Tensor out = in.narrow(0, group.rank() * n, n);
    group.reduce_scatter(out, in, ReduceOp::sum, kLabel).wait();
    expect_elements<float>(world, in, [&](std::int64_t i) {
      return i / n == group.rank() ? reduced<float>(group.size(), i)
                                   : element<float>(group.rank(), i);
    });
  });
}

TEST_CASE("an operand may begin anywhere in its storage", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    const std::int64_t n = 1001;
    const Tensor whole = Tensor::zeros({n + 9});
    const Tensor data = whole.narrow(0, 9, n);
    put(data, contribution<float>(group.rank(), n));
    group.all_reduce(data, ReduceOp::sum, kLabel).wait();
    expect_elements<float>(world, data,
                           [&](std::int64_t i) { return reduced<float>(group.size(), i); });
    expect_elements<float>(world, whole.narrow(0, 0, 9), [](std::int64_t) { return 0.0F; });
  });
}

TEST_CASE("a barrier lets nobody through before all are there", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    // What a rank wrote before the barrier is what another reads after it: the second gather may
    // not overtake, and the barrier moves nothing.
    const Tensor mine = Tensor::from<std::int64_t>({0}, {1});
    const Tensor all = Tensor::empty({group.size()}, DType::int64);
    for (std::int64_t round = 1; round <= 20; ++round) {
      put(mine, std::vector<std::int64_t>{round});
      group.barrier(kLabel).wait();
      group.all_gather(all, mine, kLabel).wait();
      for (const std::int64_t seen : all.to_vector<std::int64_t>())
        expect(seen == round, "round {}: saw {}", round, seen);
      group.barrier(kLabel).wait();
    }
  });
}

}  // namespace fsdp::comm_test
