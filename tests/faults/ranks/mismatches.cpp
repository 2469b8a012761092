// A rank calls something else than the others do.
#include "kinds.h"
#include "support/catch.h"

namespace fsdp::faults {
namespace {

using enum Promised;

/// The culprit calls `theirs`, the others `ours`.
Kind differs(const std::string& name, const std::string& what,
             const std::function<void(ProcessGroup&)>& ours,
             const std::function<void(ProcessGroup&)>& theirs) {
  return {name,
          [=](const Player& player) { (player.is_culprit() ? theirs : ours)(player.group); },
          aborted,
          {"ranks disagree on " + what, "on rank 1"}};
}

/// The culprit makes a call that is wrong by itself.
Kind refused(const std::string& name, const std::string& what,
             const std::function<void(ProcessGroup&)>& theirs) {
  return {name,
          [=](const Player& player) {
            if (player.is_culprit()) theirs(player.group);
            gather(player.group, "a");
          },
          error,
          {"rank 1: ", what}};
}

const auto kGather = [](ProcessGroup& group) { gather(group, "a"); };
const auto kReduce = [](ProcessGroup& group) { reduce(group, "a"); };

}  // namespace

TEST_CASE("misbehavior: a rank calls another collective") {
  check_kinds({
      differs("another operation", "the operation of collective 0", kGather, kReduce),
      differs("another size", "the number of elements", kGather,
              [](ProcessGroup& group) { gather(group, "a", 5); }),
      differs("another element type", "the element type", kGather,
              [](ProcessGroup& group) { gather(group, "a", 4, DType::float64); }),
      differs("another unit", "the label", kGather,
              [](ProcessGroup& group) { gather(group, "b"); }),
      differs("another phase", "the label", kReduce,
              [](ProcessGroup& group) {
                group.all_reduce(some(), ReduceOp::sum, {"a", Phase::backward}).wait();
              }),
      differs(
          "another reduction", "the reduction", kReduce,
          [](ProcessGroup& group) { group.all_reduce(some(), ReduceOp::avg, label("a")).wait(); }),
      differs(
          "another root", "the root",
          [](ProcessGroup& group) { group.broadcast(some(), 0, label("a")).wait(); },
          [](ProcessGroup& group) { group.broadcast(some(), 1, label("a")).wait(); }),
      differs(
          "a barrier for a split", "the operation",
          [](ProcessGroup& group) { (void)group.split(0, 0); },
          [](ProcessGroup& group) { group.barrier({}).wait(); }),
      differs("a split for a gather", "the operation", kGather,
              [](ProcessGroup& group) { (void)group.split_contiguous(1); }),
      differs(
          "skips one", "the label of collective 1",
          [](ProcessGroup& group) {
            for (const char* unit : {"a", "b", "c"}) gather(group, unit);
          },
          [](ProcessGroup& group) {
            for (const char* unit : {"a", "c"}) gather(group, unit);
          }),
      differs(
          "swaps two", "the operation of collective 0",
          [](ProcessGroup& group) { gather(group, "a"), reduce(group, "a"); },
          [](ProcessGroup& group) { reduce(group, "a"), gather(group, "a"); }),
      differs(
          "calls one twice", "the operation of collective 1",
          [](ProcessGroup& group) { gather(group, "a"), reduce(group, "a"); },
          [](ProcessGroup& group) { gather(group, "a"), gather(group, "a"); }),
      differs(
          "differs in a group of all ranks in another order", "the operation",
          [](ProcessGroup& group) { gather(*group.split(0, -group.rank()), "a"); },
          [](ProcessGroup& group) { reduce(*group.split(0, -group.rank()), "a"); }),
      differs(
          "differs with others issued ahead", "the label of collective 3",
          [](ProcessGroup& group) {
            const Work a = start_reduce(group, "a"), b = start_reduce(group, "b");
            const Work c = start_reduce(group, "c"), d = start_reduce(group, "d");
            gather(group, "e");
          },
          [](ProcessGroup& group) {
            const Work a = start_reduce(group, "a"), b = start_reduce(group, "b");
            const Work c = start_reduce(group, "c"), d = start_reduce(group, "z");
            gather(group, "e");
          }),
  });
}

TEST_CASE("misbehavior: a rank makes a call that is wrong by itself") {
  check_kinds({
      refused("a root that does not exist", "root 99 is not a rank",
              [](ProcessGroup& group) { group.broadcast(some(), 99, label("a")).wait(); }),
      refused("an undefined tensor", "`data` is an undefined tensor",
              [](ProcessGroup& group) { group.all_reduce({}, ReduceOp::sum, label("a")).wait(); }),
      refused("shapes that do not fit", "`out` has 7 elements",
              [](ProcessGroup& group) { group.all_gather(some(7), some(), label("a")).wait(); }),
      refused("input and output overlap", "overlap",
              [](ProcessGroup& group) {
                const Tensor out = some(8 * group.size());
                group.all_gather(out, out.narrow(0, 1, 8), label("a")).wait();
              }),
      refused("an average of integers", "would be rounded",
              [](ProcessGroup& group) {
                const Tensor data = Tensor::zeros({4}, DType::int32);
                group.all_reduce(data, ReduceOp::avg, label("a")).wait();
              }),
      refused("groups of a size that does not divide", "cannot be split into groups of",
              [](ProcessGroup& group) { (void)group.split_contiguous(group.size() + 1); }),
      refused("a stride of nothing", "stride of 0",
              [](ProcessGroup& group) { (void)group.split_strided(0); }),
  });
}

TEST_CASE("misbehavior: a rank waits for what can never come") {
  check_kinds({
      {"returns at once",
       [](const Player& player) {
         if (!player.is_culprit()) gather(player.group, "a");
       },
       aborted,
       {"which rank 1 has not called, and rank 1 has returned", "all_gather of a/forward"}},
      {"returns one collective early",
       [](const Player& player) {
         gather(player.group, "a");
         if (!player.is_culprit()) gather(player.group, "b");
       },
       aborted,
       {"all_gather of b/forward (collective 1 of ranks 0, 1", "rank 1 has returned"}},
      {"calls one more than the others",
       [](const Player& player) {
         gather(player.group, "a");
         if (player.is_culprit()) gather(player.group, "b");
       },
       aborted,
       {"rank 1 waits for all_gather of b/forward", "has returned"},
       true},
      {"takes two groups in the other order",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         gather(player.is_culprit() ? *other : player.group, "a");
         gather(player.is_culprit() ? player.group : *other, "a");
       },
       aborted,
       {"which rank 1 has not called", "rank 1 waits for all_gather"}},
      {"waits in a pair for a rank that waits for all",
       [](const Player& player) {
         const auto pair = player.group.split(player.group.rank() < 2 ? 0 : 1, 0);
         if (player.is_culprit()) gather(*pair, "pair");
         gather(player.group, "all");
       },
       aborted,
       {"rank 1 waits for all_gather of pair/forward (collective 0 of ranks 0, 1)"}},
      {"returns, and the others drop their Works",
       [](const Player& player) {
         if (!player.is_culprit()) const Work dropped = start_reduce(player.group, "a");
         if (!player.is_culprit()) player.group.barrier({}).wait();
       },
       aborted,
       {"all_reduce of a/forward", "rank 1 has returned"}},
  });
}

}  // namespace fsdp::faults
