// Plans of collectives over messages, carried out here without MPI: a message goes over when it is
// the next that its sender sends and the next that its receiver awaits. So a plan whose order could
// make ranks wait for each other stops here.
#include "comm/mpi/plan.h"
#include "comm/scale_down.h"
#include "tensor/tree_sum.h"
#include "worlds.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fsdp::comm_test {
namespace {

using mpi::Plan;
using mpi::Round;

/// One rank in the middle of its plan.
struct Walker {
  Collective call;
  int rank = 0;
  int world_size = 0;
  std::vector<std::byte> scratch;
  Plan plan;

  std::size_t round = 0;
  std::size_t sent = 0;
  std::size_t received = 0;
  std::size_t summed = 0;
  std::vector<std::vector<std::byte>> addends;  // that have arrived for the next sum
  std::int64_t received_bytes = 0;

  Walker(const Collective& asked, int own_rank, int ranks)
      : call(asked), rank(own_rank), world_size(ranks) {
    scratch.resize(static_cast<std::size_t>(mpi::scratch_bytes(call, rank, world_size)));
    plan = mpi::make_plan(call, rank, world_size, scratch.data());
    enter_round();
  }

  const Round* now() const { return round < plan.size() ? &plan[round] : nullptr; }

  void enter_round() {
    if (now() == nullptr) return;
    for (const mpi::Copy& copy : now()->copies)
      std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.nbytes));
  }

  const mpi::Send* next_send() const {
    return now() != nullptr && sent < now()->sends.size() ? &now()->sends[sent] : nullptr;
  }

  /// The peer whose message is awaited next, or -1, and its length.
  std::pair<int, std::int64_t> next_receive() const {
    if (now() == nullptr) return {-1, 0};
    if (received < now()->receives.size())
      return {now()->receives[received].peer, now()->receives[received].nbytes};
    if (summed == now()->sums.size()) return {-1, 0};
    const mpi::Sum& sum = now()->sums[summed];
    return {sum.peers[addends.size()], sum.numel * static_cast<std::int64_t>(size_of(call.dtype))};
  }

  void take(const std::byte* bytes, std::int64_t nbytes) {
    received_bytes += nbytes;
    const auto length = static_cast<std::size_t>(nbytes);
    if (received < now()->receives.size()) {
      std::memcpy(now()->receives[received++].to, bytes, length);
      return;
    }
    addends.emplace_back(bytes, bytes + length);
    const mpi::Sum& sum = now()->sums[summed];
    if (addends.size() < sum.peers.size()) return;
    std::vector<const std::byte*> by_rank(static_cast<std::size_t>(world_size), nullptr);
    by_rank[static_cast<std::size_t>(rank)] = sum.own;
    for (std::size_t i = 0; i < addends.size(); ++i)
      by_rank[static_cast<std::size_t>(sum.peers[i])] = addends[i].data();
    std::erase(by_rank, nullptr);
    tree_sum(sum.target, by_rank, sum.numel, call.dtype);
    if (sum.is_last && call.reduce == ReduceOp::avg)
      scale_down(sum.target, sum.numel, call.dtype, world_size);
    addends.clear();
    ++summed;
  }

  bool finish_round() {
    if (now() == nullptr || next_send() != nullptr || next_receive().first >= 0) return false;
    ++round;
    sent = received = summed = 0;
    enter_round();
    return true;
  }
};

/// Carries out the plans of all ranks. @throws if they stop before the end
void carry_out(std::vector<Walker>& walkers) {
  for (bool moved = true; moved;) {
    moved = false;
    for (Walker& sender : walkers) {
      const mpi::Send* send = sender.next_send();
      if (send != nullptr) {
        Walker& receiver = walkers[static_cast<std::size_t>(send->peer)];
        const auto [peer, nbytes] = receiver.next_receive();
        if (peer == sender.rank) {
          expect(nbytes == send->nbytes, "rank {} sends {} bytes, rank {} awaits {}", sender.rank,
                 send->nbytes, receiver.rank, nbytes);
          receiver.take(send->from, nbytes);
          ++sender.sent;
          moved = true;
        }
      }
      moved = sender.finish_round() || moved;
    }
  }
  for (const Walker& walker : walkers)
    expect(walker.now() == nullptr, "rank {} of {} is stuck in round {}", walker.rank,
           walker.world_size, walker.round);
}

/// What each rank passes, and room for what it gets.
struct Data {
  std::vector<float> in;
  std::vector<float> out;
};

std::vector<Walker> walk(CollectiveOp op, int world_size, std::int64_t numel, ReduceOp reduce,
                         int root, std::vector<Data>& data) {
  const bool per_rank = op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
  const std::int64_t whole = per_rank ? numel * world_size : numel;
  const bool in_place = op == CollectiveOp::all_reduce || op == CollectiveOp::broadcast;
  std::vector<Walker> walkers;
  data.resize(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    Data& own = data[static_cast<std::size_t>(rank)];
    own.in = contribution<float>(rank, op == CollectiveOp::all_gather ? numel : whole);
    own.out.assign(static_cast<std::size_t>(op == CollectiveOp::reduce_scatter ? numel : whole),
                   -1.0F);
    Collective call{.op = op, .numel = numel, .reduce = reduce, .root = root};
    call.in = reinterpret_cast<const std::byte*>(own.in.data());
    call.out = reinterpret_cast<std::byte*>(in_place ? own.in.data() : own.out.data());
    walkers.emplace_back(call, rank, world_size);
  }
  carry_out(walkers);
  return walkers;
}

// None, fewer than ranks, what no world size divides, more than a message.
constexpr std::int64_t kSizes[] = {0, 1, 7, 331, 300'007};
constexpr int kWorlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 16};

template <class Check>
void everywhere(CollectiveOp op, ReduceOp reduce, Check&& check) {
  for (const int world_size : kWorlds) {
    for (const std::int64_t numel : kSizes) {
      if (numel > 1000 && world_size > 5) continue;
      for (const int root : {0, world_size - 1}) {
        CAPTURE(name_of(op), world_size, numel, root);
        std::vector<Data> data;
        const std::vector<Walker> walkers = walk(op, world_size, numel, reduce, root, data);
        for (const Walker& walker : walkers) {
          check(walker, data[static_cast<std::size_t>(walker.rank)], root);
        }
        SUCCEED();
      }
    }
  }
}

void expect_float(float actual, float wanted, std::int64_t i) {
  expect(actual == wanted, "element {}: {} instead of {}", i, actual, wanted);
}

}  // namespace

TEST_CASE("plan: all_gather") {
  everywhere(CollectiveOp::all_gather, ReduceOp::sum, [](const Walker& walker, Data& data, int) {
    const std::int64_t n = walker.call.numel;
    for (std::int64_t i = 0; i<std::ssize(data.out); i += n> 1000 ? 13 : 1)
      expect_float(data.out[static_cast<std::size_t>(i)],
                   element<float>(static_cast<int>(i / n), i % n), i);
    expect(
        walker.received_bytes == received_bytes(CollectiveOp::all_gather, n, 4, walker.world_size),
        "received {} bytes", walker.received_bytes);
  });
}

TEST_CASE("plan: reduce_scatter adds in the canonical order") {
  for (const ReduceOp reduce : {ReduceOp::sum, ReduceOp::avg}) {
    everywhere(CollectiveOp::reduce_scatter, reduce, [&](const Walker& walker, Data& data, int) {
      const std::int64_t n = walker.call.numel;
      for (std::int64_t i = 0; i<n; i += n> 1000 ? 13 : 1)
        expect_float(data.out[static_cast<std::size_t>(i)],
                     reduced<float>(walker.world_size, walker.rank * n + i, reduce), i);
      expect(data.in == contribution<float>(walker.rank, n * walker.world_size),
             "the input has changed");
      expect(walker.received_bytes ==
                 received_bytes(CollectiveOp::reduce_scatter, n, 4, walker.world_size),
             "received {} bytes", walker.received_bytes);
      expect(std::ssize(walker.scratch) < std::max<std::int64_t>(1, walker.world_size * n * 4),
             "scratch of {} bytes", walker.scratch.size());
    });
  }
}

TEST_CASE("plan: all_reduce, broadcast and reduce, of pieces that are not equal") {
  everywhere(CollectiveOp::all_reduce, ReduceOp::avg, [](const Walker& walker, Data& data, int) {
    for (std::int64_t i = 0; i<walker.call.numel; i += walker.call.numel> 1000 ? 13 : 1)
      expect_float(data.in[static_cast<std::size_t>(i)],
                   reduced<float>(walker.world_size, i, ReduceOp::avg), i);
  });
  everywhere(CollectiveOp::broadcast, ReduceOp::sum,
             [](const Walker& walker, Data& data, int root) {
               expect(data.in == contribution<float>(root, walker.call.numel), "not the root's");
             });
  everywhere(CollectiveOp::reduce, ReduceOp::sum, [](const Walker& walker, Data& data, int root) {
    expect(data.in == contribution<float>(walker.rank, walker.call.numel), "the input has changed");
    if (walker.rank != root) return;
    for (std::int64_t i = 0; i<walker.call.numel; i += walker.call.numel> 1000 ? 13 : 1)
      expect_float(data.out[static_cast<std::size_t>(i)], reduced<float>(walker.world_size, i), i);
  });
}

TEST_CASE("plan: no message is longer than promised, and two ranks need no scratch") {
  for (const int world_size : kWorlds) {
    Collective call{.op = CollectiveOp::reduce_scatter, .numel = 200'003};
    std::vector<float> in(static_cast<std::size_t>(200'003 * world_size)), out(200'003);
    call.in = reinterpret_cast<const std::byte*>(in.data());
    call.out = reinterpret_cast<std::byte*>(out.data());
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(mpi::scratch_bytes(call, 0, world_size)));
    if (world_size <= 2) CHECK(scratch.empty());
    for (const Round& round : mpi::make_plan(call, 0, world_size, scratch.data()))
      for (const mpi::Send& send : round.sends)
        CHECK(send.nbytes <= mpi::message_bytes(world_size));
  }
}

}  // namespace fsdp::comm_test
