// Plans of collectives over messages, carried out here without MPI: a message goes over when it is
// the next that its sender sends and the next that its receiver awaits. So a plan whose order could
// make ranks wait for each other stops here.
#include "comm/processes/plan.h"
#include "comm/scale_down.h"
#include "tensor/tree_sum.h"
#include "worlds.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fsdp::comm_test {
namespace {

using processes::Plan;
using processes::Round;

constexpr std::byte kUntouched{0xA5};

/// One rank in the middle of its plan.
struct Walker {
  Collective call;
  int rank = 0;
  int world_size = 0;
  std::int64_t scratch_bytes = 0;
  std::vector<std::byte> scratch;  // and what no plan may touch
  Plan plan;

  std::size_t round = 0;
  std::size_t sent = 0;
  std::size_t received = 0;
  std::size_t summed = 0;
  std::vector<std::vector<std::byte>> addends;  // that have arrived for the next sum
  std::int64_t received_bytes = 0;

  Walker(const Collective& asked, int own_rank, int ranks, std::int64_t most_scratch)
      : call(asked), rank(own_rank), world_size(ranks) {
    scratch_bytes = processes::scratch_bytes(call, rank, world_size, most_scratch);
    scratch.assign(static_cast<std::size_t>(scratch_bytes) + 4096, kUntouched);
    plan = processes::make_plan(call, rank, world_size, scratch.data(), most_scratch);
    enter_round();
  }

  const Round* now() const { return round < plan.size() ? &plan[round] : nullptr; }

  void enter_round() {
    if (now() == nullptr) return;
    for (const processes::Copy& copy : now()->copies)
      std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.nbytes));
  }

  const processes::Send* next_send() const {
    return now() != nullptr && sent < now()->sends.size() ? &now()->sends[sent] : nullptr;
  }

  /// The peer whose message is awaited next, or -1, and its length.
  std::pair<int, std::int64_t> next_receive() const {
    if (now() == nullptr) return {-1, 0};
    if (received < now()->receives.size())
      return {now()->receives[received].peer, now()->receives[received].nbytes};
    if (summed == now()->sums.size()) return {-1, 0};
    const processes::Sum& sum = now()->sums[summed];
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
    const processes::Sum& sum = now()->sums[summed];
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
      const processes::Send* send = sender.next_send();
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
                         int root, std::int64_t most_scratch, std::vector<Data>& data) {
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
    walkers.emplace_back(call, rank, world_size, most_scratch);
  }
  carry_out(walkers);
  return walkers;
}

// None, fewer than ranks, what no world size divides, more than a message.
constexpr std::int64_t kSizes[] = {0, 1, 7, 331, 600'011};
constexpr int kWorlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 16};

/// One slab for everything, some slabs, and slabs of a few elements or one.
std::vector<std::int64_t> scratch_limits(std::int64_t numel) {
  if (numel > 1000) return {processes::kMostScratch, 600'000};
  return {processes::kMostScratch, 1000, 40};
}

template <class Check>
void with(CollectiveOp op, ReduceOp reduce, int world_size, std::int64_t numel, int root,
          Check&& check) {
  for (const std::int64_t most_scratch : scratch_limits(numel)) {
    CAPTURE(name_of(op), world_size, numel, root, most_scratch);
    std::vector<Data> data;
    for (const Walker& walker : walk(op, world_size, numel, reduce, root, most_scratch, data)) {
      check(walker, data[static_cast<std::size_t>(walker.rank)], root);
      expect(walker.scratch_bytes <= most_scratch, "scratch of {} bytes", walker.scratch_bytes);
      expect(std::all_of(walker.scratch.begin() + walker.scratch_bytes, walker.scratch.end(),
                         [](std::byte each) { return each == kUntouched; }),
             "rank {} writes beyond its scratch", walker.rank);
    }
    SUCCEED();
  }
}

template <class Check>
void everywhere(CollectiveOp op, ReduceOp reduce, Check&& check) {
  const bool has_root = op == CollectiveOp::broadcast || op == CollectiveOp::reduce;
  for (const int world_size : kWorlds) {
    for (const std::int64_t numel : kSizes) {
      if (numel > 1000 && world_size > (FSDP_SANITIZED ? 3 : 5)) continue;
      with(op, reduce, world_size, numel, 0, check);
      if (has_root) with(op, reduce, world_size, numel, world_size - 1, check);
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

TEST_CASE("plan: scratch keeps to its limit") {
  using enum CollectiveOp;
  const std::int64_t most = processes::kMostScratch;
  const auto scratch = [](CollectiveOp op, std::int64_t numel, int world_size) {
    return processes::scratch_bytes({.op = op, .numel = numel}, 1, world_size);  // the root is 0
  };
  const std::int64_t fits = most / 4 / 2;  // elements per piece, if there are four ranks
  CHECK(scratch(reduce_scatter, fits - 1, 4) == most - 8);
  CHECK(scratch(reduce_scatter, fits, 4) == most);
  CHECK(scratch(reduce_scatter, 100 * fits, 4) == most);
  CHECK(scratch(reduce, 100 * fits, 4) == most);
  CHECK(scratch(reduce, 100 * fits, 3) == most);
  CHECK(scratch(reduce, 100 * fits, 2) == most);
  CHECK(scratch(all_reduce, 100 * fits, 4) == 0);
  CHECK(scratch(reduce_scatter, 1000, 4096) == 2048 * 4000);
  for (const int world_size : {8192, 1 << 18, 1 << 21})
    CHECK(scratch(reduce_scatter, 100'000, world_size) == most);
  CHECK(scratch(reduce_scatter, 100'000, 1 << 23) == 2 * most);  // one element per piece
  // Whole cache lines, if one fits.
  CHECK(processes::scratch_bytes({.op = reduce_scatter, .numel = 900}, 0, 4, 1000) == 2 * 448);
  CHECK(processes::scratch_bytes({.op = reduce_scatter, .numel = 900}, 0, 4, 100) == 2 * 48);
}

TEST_CASE("plan: a collective is cut only if it must be") {
  using enum CollectiveOp;
  const std::int64_t fits = 512;  // elements per piece, if there are four ranks
  std::vector<float> in(400 * fits), out(400 * fits);
  const auto rounds = [&](CollectiveOp op, std::int64_t numel, int world_size) {
    Collective call{.op = op, .numel = numel};
    call.in = reinterpret_cast<const std::byte*>(in.data());
    call.out = reinterpret_cast<std::byte*>(out.data());
    std::vector<std::byte> scratch(4096);
    return processes::make_plan(call, 1, world_size, scratch.data(), 4096).size();
  };
  CHECK(rounds(reduce_scatter, fits, 4) == 2);
  CHECK(rounds(reduce_scatter, fits + 1, 4) == 4);
  CHECK(rounds(reduce_scatter, 100 * fits, 4) == 200);
  CHECK(rounds(reduce_scatter, 100 * fits, 3) == 1);
  CHECK(rounds(reduce_scatter, 100 * fits, 2) == 1);
  CHECK(rounds(reduce, 4 * fits, 4) == 3);
  CHECK(rounds(reduce, 4 * fits + 1, 4) == 6);
  CHECK(rounds(all_reduce, 400 * fits, 4) == 4);
}

TEST_CASE("plan: no message is longer than promised, and two ranks need no scratch") {
  for (const int world_size : kWorlds) {
    Collective call{.op = CollectiveOp::reduce_scatter, .numel = 200'003};
    std::vector<float> in(static_cast<std::size_t>(200'003 * world_size)), out(200'003);
    call.in = reinterpret_cast<const std::byte*>(in.data());
    call.out = reinterpret_cast<std::byte*>(out.data());
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(processes::scratch_bytes(call, 0, world_size)));
    if (world_size <= 2) CHECK(scratch.empty());
    for (const Round& round : processes::make_plan(call, 0, world_size, scratch.data()))
      for (const processes::Send& send : round.sends)
        CHECK(send.nbytes <= processes::message_bytes(processes::Messages::added, world_size));
  }
}

TEST_CASE("plan: all_gather sends a rank's piece from where it is, and copies it afterwards") {
  constexpr std::int64_t kNumel = 600'011;
  for (const int world_size : {2, 3, 4, 5, 8}) {
    Collective call{.op = CollectiveOp::all_gather, .numel = kNumel};
    std::vector<float> in(kNumel), out(static_cast<std::size_t>(kNumel * world_size));
    call.in = reinterpret_cast<const std::byte*>(in.data());
    call.out = reinterpret_cast<std::byte*>(out.data());
    const Plan plan = processes::make_plan(call, 1, world_size, nullptr);
    CHECK(plan.front().copies.empty());
    CHECK(plan.front().sends.front().from == call.in);
    for (const processes::Send& send : plan.front().sends) {
      CHECK((send.from >= call.in && send.from + send.nbytes <= call.in + 4 * kNumel));
      CHECK(send.nbytes <= processes::message_bytes(processes::Messages::moved, world_size));
    }
    REQUIRE(plan[1].copies.size() == 1);
    CHECK(plan[1].copies.front().to == call.out + 4 * kNumel);
    CHECK(plan[1].copies.front().nbytes == 4 * kNumel);

    call.in = call.out + 4 * kNumel;  // it is there already
    for (const Round& round : processes::make_plan(call, 1, world_size, nullptr))
      CHECK(round.copies.empty());
  }
}

}  // namespace fsdp::comm_test
