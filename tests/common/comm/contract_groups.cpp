// What every backend must do with order, splits, leases and bad arguments.
#include "worlds.h"

#include <memory>
#include <utility>

namespace fsdp::comm_test {
namespace {

const Label kGradientLabel{"unit", Phase::gradient};

std::vector<std::int64_t> gathered_ranks(ProcessGroup& group, std::int64_t mine) {
  const Tensor in = Tensor::from<std::int64_t>({mine}, {1});
  const Tensor out = Tensor::empty({group.size()}, DType::int64);
  group.all_gather(out, in, kGradientLabel).wait();
  return out.to_vector<std::int64_t>();
}

}  // namespace

TEST_CASE("collectives run in the order they were issued, one after the other", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    // Each reads what the one before it wrote; nobody waits in between.
    const std::int64_t n = 6'007;
    const Tensor shard = Tensor::from(contribution<float>(group.rank(), n), {n});
    const Tensor whole = Tensor::empty({group.size() * n});
    const Tensor sum = Tensor::empty({n});
    Work gather = group.all_gather(whole, shard, kGradientLabel);
    Work scatter = group.reduce_scatter(sum, whole, ReduceOp::avg, kGradientLabel);
    Work again = group.all_gather(whole, sum, kGradientLabel);
    again.wait();
    expect(gather.is_done() && scatter.is_done(), "a later collective ended before an earlier one");
    scatter.wait();
    gather.wait();
    // All ranks contributed the same, so the sum is that, times W, over W: exact for powers of two.
    expect_elements<float>(world, whole, [&](std::int64_t i) {
      const float value = element<float>(static_cast<int>(i / n), i % n);
      const std::vector<float> leaves(static_cast<std::size_t>(group.size()), value);
      return tree_of(leaves, 0, leaves.size()) * (1.0F / static_cast<float>(group.size()));
    });
  });
}

TEST_CASE("the trace tells when a transfer ended, not only when somebody waited", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    if (world.on_device) return;  // the host does not know when it ended
    Context& context = Context::current();
    context.trace().set_recording(true);
    const Tensor data = Tensor::zeros({1'001});
    Work work = group.all_reduce(data, ReduceOp::sum, kGradientLabel);
    group.barrier({}).wait();  // collectives run in order: the sum is done
    const std::int64_t later = context.now();
    work.wait();
    context.trace().set_recording(false);
    const std::vector<Event>& events = context.trace().events();
    const Event& issue = events.front();
    const Event& wait = events.back();
    expect(wait.kind == EventKind::wait && wait.name == "all_reduce", "another event came last");
    expect(issue.time <= wait.ended && wait.ended <= later,
           "{}: issued at {}, ended at {}, waited for at {}", world.name, issue.time, wait.ended,
           later);
  });
}

TEST_CASE("many small collectives in flight at once", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    const int in_flight = world.on_device ? 10 : 40;
    for (int round = 0; round < 3; ++round) {
      std::vector<Tensor> data;
      std::vector<Work> works;
      for (int i = 0; i < in_flight; ++i) {
        data.push_back(Tensor::from(contribution<float>(group.rank(), i), {i}));
        works.push_back(group.all_reduce(data.back(), ReduceOp::sum, kGradientLabel));
      }
      for (int i = in_flight - 1; i >= 0; --i) works[static_cast<std::size_t>(i)].wait();
      for (const Tensor& sum : data)
        expect_elements<float>(world, sum,
                               [&](std::int64_t i) { return reduced<float>(group.size(), i); });
    }
  });
}

TEST_CASE("split: groups by color, ordered by key and then by rank", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    // Colors 0 and 1 by parity; keys turn the order round.
    const auto part = group.split(group.rank() % 2, -group.rank());
    std::vector<std::int64_t> expected;
    for (int rank = group.size() - 1; rank >= 0; --rank)
      if (rank % 2 == group.rank() % 2) expected.push_back(rank);
    expect(part->size() == static_cast<int>(expected.size()), "{} ranks", part->size());
    expect(expected[static_cast<std::size_t>(part->rank())] == group.rank(), "wrong place");
    expect(gathered_ranks(*part, group.rank()) == expected, "wrong ranks");

    const auto same_key = group.split(0, 0);
    expect(same_key->rank() == group.rank() && same_key->size() == group.size(), "not the whole");
  });
}

TEST_CASE("split_contiguous and split_strided are the two ways across a grid of ranks", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    if (group.size() % 2 != 0) return;
    const auto near = group.split_contiguous(2);
    const auto far = group.split_strided(2);
    expect(near->size() == 2 && near->rank() == group.rank() % 2, "near");
    expect(far->size() == group.size() / 2 && far->rank() == group.rank() / 2, "far");
    const std::int64_t first = group.rank() / 2 * 2;
    expect(gathered_ranks(*near, group.rank()) == std::vector<std::int64_t>{first, first + 1},
           "near ranks");
    const std::vector<std::int64_t> row = gathered_ranks(*far, group.rank());
    for (std::size_t i = 0; i < row.size(); ++i)
      expect(row[i] == group.rank() % 2 + 2 * static_cast<std::int64_t>(i), "far ranks");
  });
}

TEST_CASE("a sum over a grid, first near and then far, has the bits of the sum over all",
          "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    if (group.size() % 2 != 0) return;
    const auto near = group.split_contiguous(2);
    const auto far = group.split_strided(2);
    const std::int64_t n = 999;
    const Tensor data = Tensor::from(contribution<float>(group.rank(), n), {n});
    near->all_reduce(data, ReduceOp::sum, kGradientLabel).wait();
    far->all_reduce(data, ReduceOp::sum, kGradientLabel).wait();
    expect_elements<float>(world, data,
                           [&](std::int64_t i) { return reduced<float>(group.size(), i); });
  });
}

TEST_CASE("groups are independent: ranks may use two of them in different orders", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    const auto first = group.split(0, group.rank());
    const auto second = group.split(0, group.rank());
    const std::int64_t n = 5'003;
    const Tensor a = Tensor::from(contribution<float>(group.rank(), n), {n});
    const Tensor b = Tensor::from(contribution<std::int64_t>(group.rank(), n), {n});
    Work works[2];
    const auto start_first = [&] {
      works[0] = first->all_reduce(a, ReduceOp::sum, kGradientLabel);
    };
    const auto start_second = [&] {
      works[1] = second->all_reduce(b, ReduceOp::sum, kGradientLabel);
    };
    if (group.rank() % 2 == 0) {
      start_first();
      start_second();
    } else {
      start_second();
      start_first();
    }
    works[0].wait();
    works[1].wait();
    expect_elements<float>(world, a,
                           [&](std::int64_t i) { return reduced<float>(group.size(), i); });
    expect_elements<std::int64_t>(
        world, b, [&](std::int64_t i) { return reduced<std::int64_t>(group.size(), i); });
  });
}

TEST_CASE("a tensor in flight keeps its bytes: freeing it throws until the wait", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    const Tensor in = Tensor::zeros({5});
    const Tensor out = Tensor::empty({5 * group.size()});
    Work work = group.all_gather(out, in, kGradientLabel);
    expect(!message_of<StorageError>([&] { in.storage()->free(); }).empty(), "input was freed");
    expect(!message_of<StorageError>([&] { out.storage()->free(); }).empty(), "output was freed");
    work.wait();
    in.storage()->free();
    out.storage()->free();
    work.wait();  // idempotent
  });
}

TEST_CASE("a Work that is dropped is waited for", "[world]") {
  in_every_world([](const World& world, ProcessGroup& group) {
    const Tensor data = Tensor::from(contribution<float>(group.rank(), 5000), {5000});
    { const Work dropped = group.all_reduce(data, ReduceOp::sum, kGradientLabel); }
    expect_elements<float>(world, data,
                           [&](std::int64_t i) { return reduced<float>(group.size(), i); });
    Work overwritten = group.barrier(kGradientLabel);
    overwritten = Work();
    data.storage()->free();  // no lease is left
  });
}

TEST_CASE("a wrong argument is an error on every rank, before anything moves", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    const int world_size = group.size();
    const Tensor shard = Tensor::zeros({4});
    const Tensor whole = Tensor::zeros({4 * world_size});
    const Tensor longer = Tensor::zeros({4 * world_size + 1});
    const auto error = [&](auto&& call) {
      const std::string message = message_of<Error>(call);
      expect(!message.empty(), "no error");
      return message;
    };
    const auto mentions = [&](const std::string& message, const std::string& text) {
      expect(message.find(text) != std::string::npos, "'{}' lacks '{}'", message, text);
    };

    mentions(error([&] { (void)group.all_gather(longer, shard, kGradientLabel); }),
             "unit/gradient");
    mentions(
        error([&] { (void)group.reduce_scatter(shard, longer, ReduceOp::sum, kGradientLabel); }),
        "elements");
    mentions(error([&] { (void)group.all_gather(Tensor(), shard, kGradientLabel); }), "undefined");
    mentions(error([&] {
               (void)group.all_gather(Tensor::zeros({4 * world_size}, DType::float64), shard,
                                      kGradientLabel);
             }),
             "float64");
    mentions(error([&] {
               (void)group.all_reduce(Tensor::zeros({3, 2}).transpose(0, 1), ReduceOp::sum,
                                      kGradientLabel);
             }),
             "contiguous");
    mentions(error([&] { (void)group.broadcast(shard, world_size, kGradientLabel); }), "root");
    mentions(error([&] {
               (void)group.all_reduce(Tensor::zeros({3}, DType::int64), ReduceOp::avg,
                                      kGradientLabel);
             }),
             "average");
    mentions(error([&] { (void)group.barrier({}), (void)group.split_contiguous(3 * world_size); }),
             "split");
    if (world_size > 1)  // a slot of the output that belongs to another rank
      mentions(error([&] {
                 const int other = (group.rank() + 1) % world_size;
                 (void)group.all_gather(whole, whole.narrow(0, 4 * other, 4), kGradientLabel);
               }),
               "overlap");
    const Tensor freed = Tensor::zeros({4});
    freed.storage()->free();
    expect(!message_of<StorageError>([&] {
              (void)group.all_reduce(freed, ReduceOp::sum, kGradientLabel);
            }).empty(),
           "sent freed bytes");

    group.all_gather(whole, shard, kGradientLabel).wait();  // and the group is as good as new
  });
}

TEST_CASE("a call that the backend refuses leaves the group as it was", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    const Tensor nothing = Tensor::empty({4}, DType::float32, kFake);
    const std::string message =
        message_of<Error>([&] { (void)group.all_reduce(nothing, ReduceOp::sum, kGradientLabel); });
    expect(message.find("fake group") != std::string::npos, "'{}'", message);
    group.barrier(kGradientLabel).wait();
    expect(gathered_ranks(group, group.rank()).size() == static_cast<std::size_t>(group.size()),
           "the group is broken");
  });
}

}  // namespace fsdp::comm_test
