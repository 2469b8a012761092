// Ranks that do not call the same thing: nothing moves, and all of them are told what differs.
#include "failures.h"

namespace fsdp::comm_test {

TEST_CASE("a rank that skips a collective", "[world]") {
  const Ending ending = ending_of(3, [](ProcessGroup& group) {
    gather(group, "a");
    if (group.rank() != 1) gather(group, "b");
    gather(group, "c");
  });
  check_aborted(ending, {"ranks disagree on the label of collective 1: b/forward on rank 0, "
                         "c/forward on rank 1",
                         "\n   0    1  all_gather  b/forward         4  ",
                         "\n   1    1  all_gather  c/forward         4  ",
                         "\n   2    1  all_gather  b/forward         4  "});
}

TEST_CASE("a rank that swaps two collectives", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      gather(group, "a");
      reduce(group, "a");
    } else {
      reduce(group, "a");
      gather(group, "a");
    }
  });
  check_aborted(ending, {"ranks disagree on the operation of collective 0: all_gather on rank 0, "
                         "all_reduce on rank 1",
                         "rank  seq  operation   unit       elements  state\n",
                         "   0    0  all_gather  a/forward         4  ",
                         "   1    0  all_reduce  a/forward         4  "});
}

TEST_CASE("a rank that passes another size, type, reduction or root", "[world]") {
  check_aborted(
      ending_of(4, [](ProcessGroup& group) { gather(group, "a", group.rank() == 2 ? 5 : 4); }),
      {"the number of elements of collective 0: 4 on rank 0, 5 on rank 2",
       "\n   2    0  all_gather  a/forward         5  "});
  check_aborted(ending_of(2,
                          [](ProcessGroup& group) {
                            gather(group, "a", 4,
                                   group.rank() == 1 ? DType::int32 : DType::float32);
                          }),
                {"the element type of collective 0: float32 on rank 0, int32 on rank 1"});
  check_aborted(ending_of(2,
                          [](ProcessGroup& group) {
                            reduce(group, "a", group.rank() == 1 ? ReduceOp::avg : ReduceOp::sum);
                          }),
                {"the reduction of collective 0: sum on rank 0, avg on rank 1"});
  check_aborted(ending_of(2,
                          [](ProcessGroup& group) {
                            group.broadcast(Tensor::zeros({1}), group.rank(), label("a")).wait();
                          }),
                {"the root of collective 0: 0 on rank 0, 1 on rank 1"});
}

TEST_CASE("no byte has moved when ranks disagree", "[world]") {
  std::vector<float> seen(2, -1);
  const Ending ending = ending_of(2, [&](ProcessGroup& group) {
    const Tensor data = Tensor::from<float>({static_cast<float>(group.rank())}, {1});
    try {
      group.all_reduce(data, ReduceOp::sum, label(group.rank() == 0 ? "a" : "b")).wait();
    } catch (const Aborted&) {
      seen[static_cast<std::size_t>(group.rank())] = *data.data<float>();
      throw;
    }
  });
  check_aborted(ending, {"the label"});
  for (const auto& [rank, message] : ending.ranks)
    CHECK(seen[static_cast<std::size_t>(rank)] == static_cast<float>(rank));
}

}  // namespace fsdp::comm_test
