#include "comm/thread_transfer.h"

#include "support/catch.h"

#include <vector>

namespace fsdp::threads {
namespace {

/// The calls of an all-reduce of float vectors, one vector a rank.
std::vector<Collective> all_reduce_of(std::vector<std::vector<float>>& data) {
  std::vector<Collective> calls;
  for (std::vector<float>& values : data) {
    Collective call{.op = CollectiveOp::all_reduce};
    call.out = reinterpret_cast<std::byte*>(values.data());
    call.in = call.out;
    call.numel = static_cast<std::int64_t>(values.size());
    calls.push_back(call);
  }
  return calls;
}

std::vector<std::vector<float>> numbers(std::size_t ranks, std::size_t numel) {
  std::vector<std::vector<float>> data(ranks, std::vector<float>(numel));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < numel; ++i)
      data[rank][i] = 1.0F / static_cast<float>(1 + (i * (rank + 3)) % 1009);
  return data;
}

}  // namespace

TEST_CASE("transfer: chunks may run in any order") {
  auto forwards = numbers(3, 400'003);
  auto backwards = forwards;
  HostTransfer first(all_reduce_of(forwards));
  HostTransfer second(all_reduce_of(backwards));
  REQUIRE(first.chunks() > 3);
  CHECK_FALSE(first.is_small());
  for (std::int64_t chunk = 0; chunk < first.chunks(); ++chunk) first.run(chunk);
  for (std::int64_t chunk = second.chunks() - 1; chunk >= 0; --chunk) second.run(chunk);
  CHECK(forwards == backwards);
  CHECK(forwards[0] == forwards[1]);
  CHECK(forwards[0] == forwards[2]);
  const auto inputs = numbers(3, 400'003);
  CHECK(forwards[0].back() == (inputs[0].back() + inputs[1].back()) + inputs[2].back());
}

TEST_CASE("transfer: a small one is one chunk, an empty one none") {
  auto data = numbers(3, 100);
  HostTransfer small(all_reduce_of(data));
  CHECK(small.is_small());
  CHECK(small.chunks() == 1);
  std::vector<std::vector<float>> nothing(3);
  CHECK(HostTransfer(all_reduce_of(nothing)).chunks() == 0);
  CHECK(HostTransfer({Collective{.op = CollectiveOp::barrier}}).chunks() == 0);
}

TEST_CASE("transfer: one rank alone moves nothing in place, and its shard otherwise") {
  std::vector<float> data{1, 2, 3};
  std::vector<float> copy{0, 0, 0};
  Collective call{.op = CollectiveOp::all_gather};
  call.in = reinterpret_cast<std::byte*>(data.data());
  call.out = reinterpret_cast<std::byte*>(data.data());
  call.numel = 3;
  CHECK(HostTransfer({call}).chunks() == 0);
  call.out = reinterpret_cast<std::byte*>(copy.data());
  HostTransfer transfer({call});
  REQUIRE(transfer.chunks() == 1);
  transfer.run(0);
  CHECK(copy == data);
}

}  // namespace fsdp::threads
